/* Fields by the pull parser; then the tensors are put in the order of their bytes and must follow
 * each other from the buffer's first byte to the file's last. */
#include "common/files/safetensors.h"

#include "common/files/json.h"
#include "common/files/json_pull.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <string.h>

#define LENGTH_BYTES 8
#define METADATA_MAX 1024u

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
#define DTYPE_ROW(dtype, bits) [SAFETENSORS_##dtype] = {#dtype, bits},
    SAFETENSORS_DTYPE_TABLE(DTYPE_ROW)
#undef DTYPE_ROW
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtypes[dtype].name;
}

/* The state of reading the header. */
struct parser {
    struct safetensors_tensor *tensors;
    size_t count, room;
    const char *metadata_keys[METADATA_MAX];
    size_t metadata_count;
    bool has_metadata;
};

/* A tensor while it is parsed. */
struct entry {
    struct safetensors_tensor tensor;
    bool has_dtype, has_shape, has_offsets;
};

static enum err parse_dtype(struct json_pull *pull, enum safetensors_dtype *ret_dtype)
{
    const char *name = NULL;
    size_t begin = pull->at;
    TRY(json_pull_text(pull, &name));
    for (size_t i = 0; i < SAFETENSORS_DTYPE_COUNT; i++)
        if (strcmp(name, dtypes[i].name) == 0) {
            *ret_dtype = (enum safetensors_dtype)i;
            return ERR_OK;
        }
    return json_pull_fail(pull, begin, "no such dtype");
}

static enum err parse_offsets(struct json_pull *pull, struct safetensors_tensor *tensor)
{
    uint64_t offsets[2];
    unsigned count = 0;
    TRY(json_pull_uints(pull, 2, offsets, &count));
    if (count != 2)
        return json_pull_fail(pull, pull->at, "data_offsets has not two numbers");
    tensor->begin = offsets[0];
    tensor->end = offsets[1];
    return ERR_OK;
}

static enum err parse_field(struct json_pull *pull, const char *key, void *context)
{
    struct entry *entry = context;
    bool *seen = strcmp(key, "dtype") == 0          ? &entry->has_dtype
                 : strcmp(key, "shape") == 0        ? &entry->has_shape
                 : strcmp(key, "data_offsets") == 0 ? &entry->has_offsets
                                                    : NULL;
    if (seen == NULL)
        return json_pull_fail(pull, pull->at, "no such key of a tensor");
    if (*seen)
        return json_pull_fail(pull, pull->at, "the key comes twice");
    *seen = true;
    if (seen == &entry->has_dtype)
        return parse_dtype(pull, &entry->tensor.dtype);
    if (seen == &entry->has_offsets)
        return parse_offsets(pull, &entry->tensor);
    return json_pull_uints(pull, SAFETENSORS_DIMS_MAX, entry->tensor.shape, &entry->tensor.dims);
}

/* The bytes that dtype and shape need; false: more than 2^64 bits, or no whole bytes. */
static bool tensor_bytes(const struct safetensors_tensor *tensor, uint64_t *ret_bytes)
{
    uint64_t bits = dtypes[tensor->dtype].bits;
    for (unsigned i = 0; i < tensor->dims; i++)
        if (__builtin_mul_overflow(bits, tensor->shape[i], &bits))
            return false;
    *ret_bytes = bits / 8;
    return bits % 8 == 0;
}

static enum err add_tensor(struct parser *p, const struct json_pull *pull,
                           const struct safetensors_tensor *tensor)
{
    if (p->count == SAFETENSORS_TENSORS_MAX)
        return json_pull_fail(pull, pull->at, "too many tensors");
    if (p->count == p->room) {
        size_t room = p->room == 0 ? 64 : p->room * 2;
        struct safetensors_tensor *tensors = reallocarray(p->tensors, room, sizeof *tensors);
        if (tensors == NULL)
            return reason_set(pull->reason, ERR_NOMEM, "%s: no memory to parse it", pull->name);
        p->tensors = tensors;
        p->room = room;
    }
    p->tensors[p->count++] = *tensor;
    return ERR_OK;
}

static enum err parse_metadata(struct json_pull *pull, const char *key, void *context)
{
    struct parser *p = context;
    const char *value = NULL;
    if (p->metadata_count == METADATA_MAX)
        return json_pull_fail(pull, pull->at, "too much metadata");
    p->metadata_keys[p->metadata_count++] = key;
    return json_pull_text(pull, &value);
}

static enum err parse_entry(struct json_pull *pull, const char *key, void *context)
{
    struct parser *p = context;
    if (strcmp(key, "__metadata__") == 0) {
        if (p->has_metadata)
            return json_pull_fail(pull, pull->at, "__metadata__ comes twice");
        p->has_metadata = true;
        return json_pull_members(pull, parse_metadata, p);
    }
    struct entry entry = {.tensor = {.name = key}};
    TRY(json_pull_members(pull, parse_field, &entry));
    if (!entry.has_dtype || !entry.has_shape || !entry.has_offsets)
        return json_pull_fail(pull, pull->at, "a tensor needs dtype, shape and data_offsets");
    uint64_t bytes;
    if (entry.tensor.end < entry.tensor.begin || !tensor_bytes(&entry.tensor, &bytes) ||
        entry.tensor.end - entry.tensor.begin != bytes)
        return json_pull_fail(pull, pull->at, "data_offsets do not fit dtype and shape");
    return add_tensor(p, pull, &entry.tensor);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    return strcmp(left->name, right->name);
}

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    if (left->begin != right->begin)
        return left->begin < right->begin ? -1 : 1;
    if (left->end != right->end)
        return left->end < right->end ? -1 : 1;
    return by_name(a, b);
}

static enum err check_names(struct parser *p, const struct json_pull *pull)
{
    if (p->metadata_count > 1)
        qsort(p->metadata_keys, p->metadata_count, sizeof *p->metadata_keys, by_text);
    for (size_t i = 1; i < p->metadata_count; i++)
        if (strcmp(p->metadata_keys[i - 1], p->metadata_keys[i]) == 0)
            return reason_set(pull->reason, ERR_MALFORMED, "%s: metadata %s comes twice",
                              pull->name, p->metadata_keys[i]);
    if (p->count > 1)
        qsort(p->tensors, p->count, sizeof *p->tensors, by_name);
    for (size_t i = 1; i < p->count; i++)
        if (strcmp(p->tensors[i - 1].name, p->tensors[i].name) == 0)
            return reason_set(pull->reason, ERR_MALFORMED, "%s: tensor %s comes twice", pull->name,
                              p->tensors[i].name);
    return ERR_OK;
}

/* No holes, no overlap, nothing behind the last of the buffer's bytes. */
static enum err check_places(struct parser *p, const struct json_pull *pull, uint64_t buffer_bytes)
{
    if (p->count > 1)
        qsort(p->tensors, p->count, sizeof *p->tensors, by_offset);
    uint64_t expected = 0;
    for (size_t i = 0; i < p->count; i++) {
        if (p->tensors[i].begin != expected)
            return reason_set(pull->reason, ERR_MALFORMED,
                              "%s: tensor %s begins at %" PRIu64 " of the buffer, not at %" PRIu64,
                              pull->name, p->tensors[i].name, p->tensors[i].begin, expected);
        expected = p->tensors[i].end;
        if (expected > buffer_bytes)
            return reason_set(pull->reason, ERR_MALFORMED,
                              "%s: tensor %s ends at %" PRIu64
                              " of the buffer, the file at %" PRIu64,
                              pull->name, p->tensors[i].name, expected, buffer_bytes);
    }
    if (buffer_bytes != expected)
        return reason_set(pull->reason, ERR_MALFORMED,
                          "%s: the tensors have %" PRIu64 " bytes, the file has %" PRIu64
                          " after its header",
                          pull->name, expected, buffer_bytes);
    return ERR_OK;
}

static enum err parse_header(struct parser *p, struct json_pull *pull, uint64_t buffer_bytes)
{
    if (pull->at == pull->text.bytes || pull->text.data[pull->at] != '{')
        return json_pull_fail(pull, pull->at, "the header does not begin with '{'");
    TRY(json_pull_members(pull, parse_entry, p));
    TRY(json_pull_end(pull));
    TRY(check_names(p, pull));
    return check_places(p, pull, buffer_bytes);
}

/* Length and header; the file must hold them. */
static enum err find_header(const char *name, struct slice file, struct slice *ret_header,
                            struct reason *reason)
{
    if (file.bytes < LENGTH_BYTES)
        return reason_set(reason, ERR_MALFORMED, "%s: offset %zu: the file ends in its length",
                          name, file.bytes);
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | file.data[i];
    if (length > SAFETENSORS_HEADER_BYTES_MAX)
        return reason_set(reason, ERR_MALFORMED,
                          "%s: offset 0: a header of %" PRIu64 " bytes is longer than %u", name,
                          length, SAFETENSORS_HEADER_BYTES_MAX);
    if (length > file.bytes - LENGTH_BYTES)
        return reason_set(reason, ERR_MALFORMED, "%s: offset %zu: the file ends in its header",
                          name, file.bytes);
    *ret_header = (struct slice){file.data, LENGTH_BYTES + (size_t)length};
    return ERR_OK;
}

enum err safetensors_parse(const char *name, struct slice file, uint64_t file_bytes,
                           struct safetensors *ret_header, struct reason *reason)
{
    check(file.bytes <= file_bytes);
    struct slice header;
    TRY(find_header(name, file, &header, reason));
    scoped(json_pull_release) struct json_pull pull = {0};
    TRY(json_pull_init(&pull, name, header, LENGTH_BYTES, reason));
    struct parser p = {0};
    enum err err = parse_header(&p, &pull, file_bytes - header.bytes);
    if (err != ERR_OK) {
        free(p.tensors);
        return err;
    }
    *ret_header =
        (struct safetensors){p.tensors, p.count, header.bytes, json_pull_detach_texts(&pull)};
    return ERR_OK;
}

void safetensors_release(struct safetensors *header)
{
    free(header->tensors);
    free(header->texts);
    *header = (struct safetensors){0};
}

const struct safetensors_tensor *safetensors_find(const struct safetensors *header,
                                                  const char *name)
{
    for (size_t i = 0; i < header->count; i++)
        if (strcmp(header->tensors[i].name, name) == 0)
            return &header->tensors[i];
    return NULL;
}

static int by_writing_order(const void *a, const void *b)
{
    const struct safetensors_tensor *left = a, *right = b;
    unsigned left_bits = dtypes[left->dtype].bits, right_bits = dtypes[right->dtype].bits;
    if (left_bits != right_bits)
        return left_bits > right_bits ? -1 : 1;
    return by_name(a, b);
}

static enum err place_tensors(struct safetensors_tensor *tensors, size_t count,
                              struct reason *reason)
{
    if (count > 1)
        qsort(tensors, count, sizeof *tensors, by_writing_order);
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes;
        tensors[i].begin = offset;
        if (!tensor_bytes(&tensors[i], &bytes) || __builtin_add_overflow(offset, bytes, &offset))
            return reason_set(reason, ERR_INVALID, "tensor %s has no whole number of bytes",
                              tensors[i].name);
        tensors[i].end = offset;
    }
    return ERR_OK;
}

static void put_tensor(struct json_writer *json, const struct safetensors_tensor *tensor)
{
    json_put_key(json, tensor->name);
    json_put_object(json);
    json_member_text(json, "dtype", dtypes[tensor->dtype].name);
    json_put_key(json, "shape");
    json_put_array(json);
    for (unsigned i = 0; i < tensor->dims; i++)
        json_put_uint(json, tensor->shape[i]);
    json_put_end(json);
    json_put_key(json, "data_offsets");
    json_put_array(json);
    json_put_uint(json, tensor->begin);
    json_put_uint(json, tensor->end);
    json_put_end(json);
    json_put_end(json);
}

/* Some loaders insist on "format": "pt". */
static enum err put_json(struct buf *out, const struct safetensors_tensor *tensors, size_t count)
{
    struct json_writer json = json_writer(out);
    json_put_object(&json);
    json_put_key(&json, "__metadata__");
    json_put_object(&json);
    json_member_text(&json, "format", "pt");
    json_put_end(&json);
    for (size_t i = 0; i < count; i++)
        put_tensor(&json, &tensors[i]);
    json_put_end(&json);
    return json_writer_finish(&json);
}

enum err safetensors_put_header(struct buf *out, struct safetensors_tensor *tensors, size_t count,
                                struct reason *reason)
{
    TRY(place_tensors(tensors, count, reason));
    scoped(buf_release) struct buf json = {0};
    enum err err = put_json(&json, tensors, count);
    while (err == ERR_OK && json.bytes % LENGTH_BYTES != 0)
        err = buf_append(&json, " ", 1);
    uint8_t length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (uint8_t)((uint64_t)json.bytes >> 8 * i);
    if (err == ERR_OK)
        err = buf_append(out, length, sizeof length);
    if (err == ERR_OK)
        err = buf_append(out, json.data, json.bytes);
    return err == ERR_OK ? ERR_OK : reason_set(reason, err, "no room for the header");
}
