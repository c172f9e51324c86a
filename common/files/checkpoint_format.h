/* The layout of a checkpoint's files (the essay is in checkpoint.h), and the pure halves of reading
 * them. Only for common/checkpoint*.c, their tests and fuzz targets. */
#ifndef ROOST_COMMON_FILES_CHECKPOINT_FORMAT_H
#define ROOST_COMMON_FILES_CHECKPOINT_FORMAT_H

#include "common/files/checkpoint.h"

#include <string.h>

enum {
    CHECKPOINT_FORMAT = 1,
    CHECKPOINT_HEAD_BYTES = 64,
    CHECKPOINT_ENTRY_BYTES = 48,
    CHECKPOINT_TAIL_BYTES = 64,
    CHECKPOINT_CHUNKS_MAX = 1 << 20,
    CHECKPOINT_JSON_BYTES_MAX = 1 << 20,
};

#define CHECKPOINT_MAGIC "roostcut"
#define CHECKPOINT_END "cut-ends"
#define CHECKPOINT_JSON "cut.json"

/* Values are stored as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

static inline uint32_t checkpoint_get32(const uint8_t *bytes)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline uint64_t checkpoint_get64(const uint8_t *bytes)
{
    uint64_t value;
    memcpy(&value, bytes, sizeof value);
    return value;
}

static inline void checkpoint_put32(uint8_t *bytes, uint32_t value)
{
    memcpy(bytes, &value, sizeof value);
}

static inline void checkpoint_put64(uint8_t *bytes, uint64_t value)
{
    memcpy(bytes, &value, sizeof value);
}

/* Bytes of a chunk's block. */
static inline size_t checkpoint_block_bytes(struct checkpoint_arrays arrays, uint32_t n)
{
    return (size_t)n * (1 + arrays.states + arrays.versions) * sizeof(float) + arrays.extra_bytes;
}

/* The 64 bytes at a file's beginning. */
void checkpoint_put_head(uint8_t head[static CHECKPOINT_HEAD_BYTES], struct checkpoint_name name,
                         uint32_t server, struct checkpoint_arrays arrays);

/* A server's file after its checks; slices borrow its bytes. */
struct checkpoint_view {
    struct slice bytes;
    const char *path;
    struct checkpoint_arrays arrays;
    uint32_t count;
    const uint8_t *table; /* count entries */
    struct digest manifest;
};

struct checkpoint_entry {
    uint32_t chunk;
    uint32_t n;
    uint64_t offset;
    struct digest digest;
};
struct checkpoint_entry checkpoint_view_entry(const struct checkpoint_view *view, uint32_t index);

/* Checks all of a file but its blocks. `path` is for the reasons and borrowed by the view. */
enum err checkpoint_view_init(struct slice bytes, const char *path, struct checkpoint_name name,
                              uint32_t server, struct checkpoint_view *ret_view,
                              struct reason *reason) MUST_USE;

/* cut.json from its bytes and back. The spec of a parsed record is the caller's to free(). */
enum err checkpoint_record_parse(struct slice bytes, const char *path,
                                 struct checkpoint_record *ret_record, char **ret_spec,
                                 struct reason *reason) MUST_USE;
enum err checkpoint_record_print(const struct checkpoint_record *record, struct buf *out) MUST_USE;

#endif
