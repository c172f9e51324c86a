/* UTF-8 as RFC 3629 has it: no surrogates, nothing above U+10FFFF, shortest forms only. */
#ifndef ROOST_COMMON_UTF8_H
#define ROOST_COMMON_UTF8_H

#include "common/buf.h"

/* The bytes (1 to 4) of the character that begins `text`; 0: it begins with no whole character. */
size_t utf8_length(struct slice text);
/* The character `code` as bytes; how many. `code` is no surrogate and at most 0x10FFFF. */
size_t utf8_encode(uint32_t code, uint8_t ret_bytes[static 4]);

#endif
