/* A token file. What is accepted fills the file to its last byte, and after a check against a
 * vocabulary every token is inside it. */
#include "tests/fuzz/fuzz.h"

#include "common/data/tokens.h"

enum { VOCABULARY = 50257 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct slice file = {data, bytes};
    struct tokens tokens;
    struct reason reason;
    if (tokens_parse("file", file, &tokens, &reason) != ERR_OK)
        return 0;
    check(tokens.data + tokens.count * tokens.width == data + bytes);
    if (tokens_check("file", file, &tokens, VOCABULARY, &reason) != ERR_OK)
        return 0;
    for (uint64_t i = 0; i < tokens.count; i++) {
        int32_t token;
        tokens_read(&tokens, i, 1, &token);
        check(token >= 0 && token < VOCABULARY);
    }
    return 0;
}
