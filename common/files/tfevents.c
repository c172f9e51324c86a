/* Protobuf and TFRecord framing by hand: five fields are all there is. */
#include "common/files/tfevents.h"

#include "common/digest.h"
#include "common/scoped.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static enum err put_u32(struct buf *out, uint32_t value)
{
    const uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16),
                              (uint8_t)(value >> 24)};
    return buf_append(out, bytes, sizeof bytes);
}

static enum err put_u64(struct buf *out, uint64_t value)
{
    TRY(put_u32(out, (uint32_t)value));
    return put_u32(out, (uint32_t)(value >> 32));
}

static enum err put_varint(struct buf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        TRY(buf_append(out, &(uint8_t){(uint8_t)(value | 0x80)}, 1));
    return buf_append(out, &(uint8_t){(uint8_t)value}, 1);
}

/* Protobuf's wire types, in the low three bits of a field's key. */
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

static enum err put_key(struct buf *out, unsigned field, unsigned type)
{
    return put_varint(out, field << 3 | type);
}

static enum err put_double(struct buf *out, unsigned field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    TRY(put_key(out, field, FIXED64));
    return put_u64(out, bits);
}

static enum err put_float(struct buf *out, unsigned field, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    TRY(put_key(out, field, FIXED32));
    return put_u32(out, bits);
}

static enum err put_bytes(struct buf *out, unsigned field, struct slice bytes)
{
    TRY(put_key(out, field, LENGTH));
    TRY(put_varint(out, bytes.bytes));
    return buf_append(out, bytes.data, bytes.bytes);
}

static enum err put_text(struct buf *out, unsigned field, const char *text)
{
    return put_bytes(out, field, (struct slice){(const uint8_t *)text, strlen(text)});
}

/* TensorFlow masks checksums because checksums of data that holds checksums are poor ones. */
static enum err put_checksum(struct buf *out, struct slice bytes)
{
    uint32_t crc = digest_crc32c(0, bytes);
    return put_u32(out, (crc >> 15 | crc << 17) + 0xA282EAD8);
}

static enum err put_record(struct buf *out, const struct buf *event)
{
    scoped(buf_release) struct buf length = {0};
    TRY(put_u64(&length, event->bytes));
    TRY(buf_append(out, length.data, length.bytes));
    TRY(put_checksum(out, buf_slice(&length)));
    TRY(buf_append(out, event->data, event->bytes));
    return put_checksum(out, buf_slice(event));
}

enum err tfevents_put_version(struct buf *out, double wall_s)
{
    scoped(buf_release) struct buf event = {0};
    TRY(put_double(&event, 1, wall_s)); /* Event.wall_time */
    TRY(put_text(&event, 3, "brain.Event:2"));
    return put_record(out, &event);
}

enum err tfevents_put_scalar(struct buf *out, const struct tfevents_scalar *scalar)
{
    scoped(buf_release) struct buf value = {0}, summary = {0}, event = {0};
    TRY(put_text(&value, 1, scalar->tag));    /* Summary.Value.tag */
    TRY(put_float(&value, 2, scalar->value)); /* .simple_value */
    TRY(put_bytes(&summary, 1, buf_slice(&value)));
    TRY(put_double(&event, 1, scalar->wall_s));
    TRY(put_key(&event, 2, VARINT)); /* Event.step */
    TRY(put_varint(&event, scalar->step));
    TRY(put_bytes(&event, 5, buf_slice(&summary)));
    return put_record(out, &event);
}

static enum err append(struct tfevents *events, enum err made, const struct buf *record,
                       struct reason *reason)
{
    if (made != ERR_OK)
        return reason_set(reason, made, "no memory for an event of %s", events->log.path);
    return file_log_append(&events->log, buf_slice(record), reason);
}

enum err tfevents_open(const struct file_ops *ops, const char *dir, double wall_s,
                       struct tfevents *ret_events, struct reason *reason)
{
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    scoped(buf_release) struct buf path = {0}, record = {0};
    if (buf_printf(&path, "%s/events.out.tfevents.%010" PRIu64 ".%s.%d.0", dir, (uint64_t)wall_s,
                   host, (int)getpid()) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to open a file in %s", dir);
    scoped(tfevents_release) struct tfevents events = {0};
    TRY(file_log_open(ops, (const char *)path.data, &events.log, reason));
    TRY(append(&events, tfevents_put_version(&record, wall_s), &record, reason));
    *ret_events = events;
    events = (struct tfevents){0};
    return ERR_OK;
}

void tfevents_release(struct tfevents *events)
{
    file_log_release(&events->log);
}
