/* Records with their length in front and their hash behind. */
#include "common/files/order.h"

#include "common/digest.h"
#include "common/scoped.h"
#include "common/tree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { HEAD_BYTES = 8, HASH_BYTES = 8, STEP_HEAD_BYTES = 20 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are stored as they lie");
_Static_assert(STEP_HEAD_BYTES + TREE_SLOTS_MAX <= ORDER_PAYLOAD_BYTES_MAX, "a step fits");

void order_name_file(struct order_name name, char ret_file[static ORDER_NAME_BYTES])
{
    snprintf(ret_file, ORDER_NAME_BYTES, "server-%" PRIu32 "-g%" PRIu64 "-b%" PRIu64 ".log",
             name.server, name.generation, name.boot);
}

bool order_parse_name(const char *file, struct order_name *ret_name)
{
    struct order_name name;
    char again[ORDER_NAME_BYTES];
    if (sscanf(file, "server-%10" SCNu32 "-g%20" SCNu64 "-b%20" SCNu64 ".log", &name.server,
               &name.generation, &name.boot) != 3)
        return false;
    order_name_file(name, again);
    if (strcmp(again, file) != 0)
        return false;
    *ret_name = name;
    return true;
}

/* Appends one record to `buf`. */
static enum err append(struct buf *buf, const struct order_record *record)
{
    check(record->payload.bytes <= ORDER_PAYLOAD_BYTES_MAX);
    uint32_t head[2] = {(uint32_t)record->payload.bytes, (uint32_t)record->kind};
    size_t begin = buf->bytes;
    enum err err = buf_append(buf, head, sizeof head);
    if (err == ERR_OK)
        err = buf_append(buf, record->payload.data, record->payload.bytes);
    if (err == ERR_OK) {
        uint64_t hash = digest_fast64((struct slice){buf->data + begin, buf->bytes - begin});
        err = buf_append(buf, &hash, sizeof hash);
    }
    if (err != ERR_OK)
        buf->bytes = begin; /* whole records only */
    return err;
}

static enum err corrupt(const char *path, size_t offset, const char *what, struct reason *reason)
{
    return reason_set(reason, ERR_CORRUPT, "%s: offset %zu: %s", path, offset, what);
}

enum err order_next(struct slice log, const char *path, size_t *offset,
                    struct order_record *ret_record, struct reason *reason)
{
    uint32_t head[2];
    size_t left = log.bytes - *offset;
    if (left < HEAD_BYTES)
        return ERR_NOT_FOUND;
    const uint8_t *at = log.data + *offset;
    memcpy(head, at, sizeof head);
    if (head[0] > ORDER_PAYLOAD_BYTES_MAX)
        return corrupt(path, *offset, "a record's length is impossible", reason);
    size_t bytes = HEAD_BYTES + (size_t)head[0];
    if (left < bytes + HASH_BYTES)
        return ERR_NOT_FOUND;
    uint64_t hash;
    memcpy(&hash, at + bytes, sizeof hash);
    if (hash != digest_fast64((struct slice){at, bytes}))
        return corrupt(path, *offset, "a record does not match its hash", reason);
    *ret_record = (struct order_record){(enum order_kind)head[1], {at + HEAD_BYTES, head[0]}};
    *offset += bytes + HASH_BYTES;
    return ERR_OK;
}

enum err order_append_step(struct buf *buf, const struct order_step *step)
{
    scoped(buf_release) struct buf payload = {0};
    TRY(buf_append(&payload, &step->generation, 8));
    TRY(buf_append(&payload, &step->step, 8));
    TRY(buf_append(&payload, &step->slots, 4));
    TRY(buf_append(&payload, step->behind, step->slots));
    return append(buf, &(struct order_record){ORDER_STEP, buf_slice(&payload)});
}

enum err order_step(const struct order_record *record, struct order_step *ret_step)
{
    struct order_step step;
    const struct slice *payload = &record->payload;
    if (record->kind != ORDER_STEP || payload->bytes < STEP_HEAD_BYTES)
        return ERR_CORRUPT;
    memcpy(&step.generation, payload->data, 8);
    memcpy(&step.step, payload->data + 8, 8);
    memcpy(&step.slots, payload->data + 16, 4);
    step.behind = payload->data + STEP_HEAD_BYTES;
    if (step.slots != payload->bytes - STEP_HEAD_BYTES)
        return ERR_CORRUPT;
    for (uint32_t i = 0; i < step.slots; i++)
        if (step.behind[i] > step.step)
            return ERR_CORRUPT;
    *ret_step = step;
    return ERR_OK;
}

/* As it lies in the file; the first two numbers are generation and boot, or attempt and ticket. */
struct chunks_head {
    uint64_t first, second;
    float scale;
    uint32_t count;
};
struct chunks_entry {
    uint32_t chunk, zero;
    uint64_t version, used;
};

enum err order_append_chunks(struct buf *buf, const struct order_chunks *chunks)
{
    scoped(buf_release) struct buf payload = {0};
    bool begin = chunks->kind == ORDER_BEGIN;
    struct chunks_head head = {.first = begin ? chunks->generation : chunks->attempt,
                               .second = begin ? chunks->boot : chunks->ticket,
                               .scale = chunks->scale,
                               .count = chunks->count};
    check(chunks->count <= ORDER_CHUNKS_MAX);
    TRY(buf_append(&payload, &head, sizeof head));
    for (uint32_t i = 0; i < chunks->count; i++) {
        const struct order_chunk *chunk = &chunks->chunks[i];
        struct chunks_entry entry = {chunk->chunk, 0, chunk->version, chunk->used};
        TRY(buf_append(&payload, &entry, sizeof entry));
    }
    return append(buf, &(struct order_record){chunks->kind, buf_slice(&payload)});
}

enum err order_chunks(const struct order_record *record, struct order_chunk *chunks,
                      struct order_chunks *ret_chunks)
{
    struct chunks_head head;
    const struct slice *payload = &record->payload;
    if (record->kind < ORDER_BEGIN || record->kind > ORDER_TAKE || payload->bytes < sizeof head)
        return ERR_CORRUPT;
    memcpy(&head, payload->data, sizeof head);
    if (head.count > ORDER_CHUNKS_MAX || !__builtin_isfinite(head.scale) ||
        payload->bytes != sizeof head + head.count * sizeof(struct chunks_entry))
        return ERR_CORRUPT;
    for (uint32_t i = 0; i < head.count; i++) {
        struct chunks_entry entry;
        memcpy(&entry, payload->data + sizeof head + i * sizeof entry, sizeof entry);
        chunks[i] = (struct order_chunk){entry.chunk, entry.version, entry.used};
    }
    bool begin = record->kind == ORDER_BEGIN;
    *ret_chunks = (struct order_chunks){.kind = record->kind,
                                        .attempt = begin ? 0 : head.first,
                                        .ticket = begin ? 0 : head.second,
                                        .scale = head.scale,
                                        .generation = begin ? head.first : 0,
                                        .boot = begin ? head.second : 0,
                                        .count = head.count,
                                        .chunks = chunks};
    return ERR_OK;
}

size_t order_keep_steps(struct slice log, uint64_t version)
{
    struct order_record record;
    struct order_step step;
    size_t end = 0, next = 0;
    while (order_next(log, "", &next, &record, NULL) == ERR_OK &&
           order_step(&record, &step) == ERR_OK && step.step < version)
        end = next;
    return end;
}
