/* UTF-8 as RFC 3629 has it: no surrogates, nothing above U+10FFFF, shortest forms only. */
#ifndef ROOST_COMMON_UTF8_H
#define ROOST_COMMON_UTF8_H

#include "common/slice.h"

#include <stdbool.h>

/* The bytes (1 to 4) of the character that begins `text`; 0: it begins with no whole character. */
size_t utf8_length(struct slice text);
/* The same, but 0 also for a character that may not be shown inside a line: controls (C0, DEL, C1),
 * line and paragraph separators, and those that turn the direction of what follows (Unicode
 * standard annex 9: U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069). */
size_t utf8_plain_length(struct slice text);
/* Puts a question mark in the place of each byte of what may not be shown inside a line. */
void utf8_make_plain(char *text);
/* Whether all of it is plain, without quote, backslash, space and equals sign, and not empty: what
 * stands unquoted in a log line, the name of a server or worker. */
bool utf8_is_word(const char *text);
/* The character `code` as bytes; how many. `code` is no surrogate and at most 0x10FFFF. */
size_t utf8_encode(uint32_t code, uint8_t ret_bytes[static 4]);

#endif
