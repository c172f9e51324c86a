/* Token files: llm.c's (header 20240520 version 1: uint16; 20240801 version 7: uint32) and
 * nanoGPT's (no header, uint16). Pure, on the file's bytes. Little-endian throughout. */
#ifndef ROOST_COMMON_DATA_TOKENS_H
#define ROOST_COMMON_DATA_TOKENS_H

#include "common/buf.h"

struct tokens {
    const uint8_t *data; /* the first token; borrowed from the file's bytes */
    uint64_t count;
    unsigned width; /* bytes a token: 1 (text), 2, 4 */
};

/* ERR_MALFORMED; `name` and the offset are in the reason. */
enum err tokens_parse(const char *name, struct slice file, struct tokens *ret_tokens,
                      struct reason *reason) MUST_USE;
/* ERR_MALFORMED: a token is not smaller than `vocabulary`; names the file's offset of the first. */
enum err tokens_check(const char *name, struct slice file, const struct tokens *tokens,
                      uint32_t vocabulary, struct reason *reason) MUST_USE;
/* Tokens [first, first + count) as int32. */
void tokens_read(const struct tokens *tokens, uint64_t first, uint64_t count, int32_t *ret_tokens);

#endif
