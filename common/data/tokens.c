/* Formats: karpathy/llm.c (dev/data, llmc/dataloader.h) and karpathy/nanoGPT (data/, prepare.py).
 */
#include "common/data/tokens.h"

#include <inttypes.h>

#define HEADER_BYTES 1024
#define COUNT_MAX 0x7fffffffu /* llm.c keeps it in an int */

/* What may begin a file; `width` 0: it is something else of llm.c. */
static const struct {
    uint32_t magic, version;
    unsigned width;
    const char *what;
} formats[] = {
    {20240520, 1, 2, "tokens"},
    {20240801, 7, 4, "tokens"},
    {20240522, 0, 0, "an evaluation set"},
    {20240326, 0, 0, "a model"},
    {20240803, 0, 0, "a model"},
    {20240327, 0, 0, "a debug state"},
    {20240328, 0, 0, "a tokenizer"},
    {20240527, 0, 0, "an optimizer state"},
};
#define FORMAT_COUNT (sizeof formats / sizeof formats[0])

static uint32_t read_u16(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static uint32_t read_u32(const uint8_t *bytes)
{
    return read_u16(bytes) | read_u16(bytes + 2) << 16;
}

static enum err parse_header(const char *name, struct slice file, size_t format,
                             struct tokens *ret_tokens, struct reason *reason)
{
    if (formats[format].width == 0)
        return reason_set(reason, ERR_MALFORMED, "%s: offset 0: %s of llm.c, not tokens", name,
                          formats[format].what);
    if (file.bytes < HEADER_BYTES)
        return reason_set(reason, ERR_MALFORMED, "%s: offset %zu: the file ends in its header",
                          name, file.bytes);
    uint32_t version = read_u32(file.data + 4), count = read_u32(file.data + 8);
    if (version != formats[format].version)
        return reason_set(reason, ERR_MALFORMED, "%s: offset 4: version %" PRIu32 ", not %" PRIu32,
                          name, version, formats[format].version);
    if (count > COUNT_MAX)
        return reason_set(reason, ERR_MALFORMED, "%s: offset 8: %" PRIu32 " tokens are too many",
                          name, count);
    uint64_t bytes = HEADER_BYTES + (uint64_t)count * formats[format].width;
    if (file.bytes != bytes)
        return reason_set(reason, ERR_MALFORMED,
                          "%s: offset %" PRIu64 ": the header's %" PRIu32
                          " tokens end here, the file at %zu",
                          name, bytes, count, file.bytes);
    *ret_tokens = (struct tokens){file.data + HEADER_BYTES, count, formats[format].width};
    return ERR_OK;
}

enum err tokens_parse(const char *name, struct slice file, struct tokens *ret_tokens,
                      struct reason *reason)
{
    if (file.bytes == 0)
        return reason_set(reason, ERR_MALFORMED, "%s: offset 0: the file is empty", name);
    for (size_t i = 0; i < FORMAT_COUNT && file.bytes >= 4; i++)
        if (read_u32(file.data) == formats[i].magic)
            return parse_header(name, file, i, ret_tokens, reason);
    if (file.bytes % 2 != 0)
        return reason_set(reason, ERR_MALFORMED, "%s: offset %zu: half a token of 16 bits", name,
                          file.bytes - 1);
    *ret_tokens = (struct tokens){file.data, file.bytes / 2, 2};
    return ERR_OK;
}

enum err tokens_check(const char *name, struct slice file, const struct tokens *tokens,
                      uint32_t vocabulary, struct reason *reason)
{
    int32_t block[1024];
    const uint64_t block_count = sizeof block / sizeof block[0];
    for (uint64_t first = 0; first < tokens->count; first += block_count) {
        uint64_t left = tokens->count - first, count = left < block_count ? left : block_count;
        tokens_read(tokens, first, count, block);
        uint32_t largest = 0;
        for (uint64_t i = 0; i < count; i++)
            largest = (uint32_t)block[i] > largest ? (uint32_t)block[i] : largest;
        if (largest < vocabulary)
            continue;
        uint64_t i = 0;
        while ((uint32_t)block[i] < vocabulary)
            i++;
        uint64_t offset = (uint64_t)(tokens->data - file.data) + (first + i) * tokens->width;
        return reason_set(reason, ERR_MALFORMED,
                          "%s: offset %" PRIu64 ": token %" PRIu32
                          " is not in the vocabulary of %" PRIu32,
                          name, offset, (uint32_t)block[i], vocabulary);
    }
    return ERR_OK;
}

void tokens_read(const struct tokens *tokens, uint64_t first, uint64_t count, int32_t *ret_tokens)
{
    check(first <= tokens->count);
    check(count <= tokens->count - first);
    const uint8_t *data = tokens->data + first * tokens->width;
    switch (tokens->width) {
    case 1:
        for (uint64_t i = 0; i < count; i++)
            ret_tokens[i] = data[i];
        return;
    case 2:
        for (uint64_t i = 0; i < count; i++)
            ret_tokens[i] = (int32_t)read_u16(data + 2 * i);
        return;
    default:
        check(tokens->width == 4);
        for (uint64_t i = 0; i < count; i++)
            ret_tokens[i] = (int32_t)read_u32(data + 4 * i);
    }
}
