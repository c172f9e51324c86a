#include "common/shared/shared_link.h"

#include "common/shared/shared_link_core.h"

#include <inttypes.h>
#include <string.h>
#include <sys/socket.h>

enum { LINE_BYTES = SHARED_LINK_LINE_BYTES };

/* What a message begins with; the header follows, the payload begins at the next line. */
struct frame {
    uint32_t header_bytes, zero;
    uint64_t payload_bytes;
};

/* ---- send ---- */

static void send_byte(const struct shared_link *link)
{
    (void)send(link->socket, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL); /* a full socket wakes as well */
}

void shared_link_wake(struct shared_link *link, atomic_uint *sleeps)
{
    /* The position before the look; see shared_link_wait(). */
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(sleeps, memory_order_relaxed) == 0)
        return;
    atomic_store_explicit(sleeps, 0, memory_order_relaxed);
    send_byte(link);
}

static uint64_t to_line(uint64_t bytes)
{
    return (LINE_BYTES - bytes % LINE_BYTES) % LINE_BYTES;
}

/* Copies into room that is known to be there. */
static enum err put(struct shared_link *link, const uint8_t *bytes, size_t count,
                    struct reason *reason)
{
    while (count > 0) {
        uint8_t *at;
        size_t room;
        TRY(shared_ring_room(&link->out, &at, &room, reason));
        size_t some = count < room ? count : room;
        memcpy(at, bytes, some);
        shared_ring_wrote(&link->out, some);
        bytes += some;
        count -= some;
    }
    return ERR_OK;
}

/* Zeros behind a payload, as far as there is room. */
static enum err pad(struct shared_link *link, struct reason *reason)
{
    static const uint8_t zeros[LINE_BYTES];
    uint64_t room;
    if (link->out_pad == 0 || link->out_left > 0)
        return ERR_OK;
    TRY(shared_ring_room_bytes(&link->out, &room, reason));
    if (room < link->out_pad)
        return ERR_OK;
    TRY(put(link, zeros, (size_t)link->out_pad, reason));
    link->out_pad = 0;
    return ERR_OK;
}

enum err shared_link_begin(struct shared_link *link, struct slice header, uint64_t payload_bytes,
                           struct reason *reason)
{
    uint8_t block[LINE_BYTES + SHARED_LINK_HEADER_BYTES_MAX] = {0};
    const struct frame frame = {(uint32_t)header.bytes, 0, payload_bytes};
    uint64_t room;
    check(link->out_left == 0 && header.bytes <= SHARED_LINK_HEADER_BYTES_MAX);
    check(payload_bytes <= link->options.payload_bytes_max);
    size_t bytes = sizeof frame + header.bytes;
    bytes += (size_t)to_line(bytes);
    TRY(pad(link, reason));
    TRY(shared_ring_room_bytes(&link->out, &room, reason));
    if (link->out_pad > 0 || room < bytes)
        return ERR_BUSY;
    memcpy(block, &frame, sizeof frame);
    memcpy(block + sizeof frame, header.data, header.bytes);
    TRY(put(link, block, bytes, reason));
    link->out_left = payload_bytes;
    link->out_pad = to_line(payload_bytes);
    shared_link_wake(link, &link->out.positions->reader_sleeps);
    return ERR_OK;
}

enum err shared_link_write(struct shared_link *link, const void *bytes, size_t count,
                           size_t *ret_written, struct reason *reason)
{
    const uint8_t *from = bytes;
    size_t written = 0;
    check(count <= link->out_left);
    while (written < count) {
        uint8_t *at;
        size_t room;
        TRY(shared_ring_room(&link->out, &at, &room, reason));
        size_t some = count - written < room ? count - written : room;
        if (some == 0)
            break;
        memcpy(at, from + written, some);
        shared_ring_wrote(&link->out, some);
        written += some;
    }
    link->out_left -= written;
    if (written > 0)
        shared_link_wake(link, &link->out.positions->reader_sleeps);
    *ret_written = written;
    return ERR_OK;
}

/* ---- receive ---- */

/* Copies what is known to be there; the same bytes are not read again. */
static enum err get(struct shared_link *link, uint8_t *bytes, size_t count, struct reason *reason)
{
    while (count > 0) {
        struct slice there;
        TRY(shared_ring_look(&link->in, &there, reason));
        size_t some = count < there.bytes ? count : there.bytes;
        memcpy(bytes, there.data, some);
        shared_ring_took(&link->in, some);
        bytes += some;
        count -= some;
    }
    atomic_signal_fence(memory_order_seq_cst); /* what follows looks at the copy */
    return ERR_OK;
}

/* Skips what fills the line behind a payload. */
static enum err skip_pad(struct shared_link *link, struct reason *reason)
{
    uint8_t ignored[LINE_BYTES];
    uint64_t there;
    TRY(shared_ring_there_bytes(&link->in, &there, reason));
    if (there < link->in_pad)
        return ERR_BUSY;
    TRY(get(link, ignored, (size_t)link->in_pad, reason));
    link->in_pad = 0;
    return ERR_OK;
}

static enum err judge_frame(const struct shared_link *link, const struct frame *frame,
                            struct reason *reason)
{
    if (frame->header_bytes > SHARED_LINK_HEADER_BYTES_MAX)
        return reason_set(reason, ERR_MALFORMED, "a message with a header of %u bytes",
                          frame->header_bytes);
    if (frame->payload_bytes > link->options.payload_bytes_max)
        return reason_set(reason, ERR_MALFORMED,
                          "a message of %" PRIu64 " bytes, where there are at most %" PRIu64,
                          frame->payload_bytes, link->options.payload_bytes_max);
    return ERR_OK;
}

enum err shared_link_next(struct shared_link *link, struct slice *ret_header,
                          uint64_t *ret_payload_bytes, struct reason *reason)
{
    struct frame frame;
    uint64_t there;
    check(link->in_left == 0);
    TRY(skip_pad(link, reason));
    /* A writer shows the header's lines one after another where the ring ends; the first one says how
     * many there are, and is read again when the others are there. */
    TRY(shared_ring_there_bytes(&link->in, &there, reason));
    if (there < LINE_BYTES)
        return ERR_BUSY;
    struct shared_ring before = link->in;
    struct slice line;
    TRY(shared_ring_look(&before, &line, reason));
    memcpy(link->header, line.data, sizeof frame); /* lines do not wrap */
    atomic_signal_fence(memory_order_seq_cst);
    memcpy(&frame, link->header, sizeof frame);
    TRY(judge_frame(link, &frame, reason));
    uint64_t bytes = sizeof frame + frame.header_bytes;
    bytes += to_line(bytes);
    if (there < bytes)
        return ERR_BUSY;
    TRY(get(link, link->header, (size_t)bytes, reason));
    link->in_left = frame.payload_bytes;
    link->in_pad = to_line(frame.payload_bytes);
    *ret_header = (struct slice){link->header + sizeof frame, frame.header_bytes};
    *ret_payload_bytes = frame.payload_bytes;
    shared_link_wake(link, &link->in.positions->writer_sleeps);
    return ERR_OK;
}

enum err shared_link_look(struct shared_link *link, struct slice *ret_bytes, struct reason *reason)
{
    TRY(shared_ring_look(&link->in, ret_bytes, reason));
    if (ret_bytes->bytes > link->in_left)
        ret_bytes->bytes = (size_t)link->in_left;
    return ERR_OK;
}

void shared_link_took(struct shared_link *link, size_t count)
{
    check(count <= link->in_left);
    link->in_left -= count;
    shared_ring_took(&link->in, count);
    shared_link_wake(link, &link->in.positions->writer_sleeps);
}

uint64_t shared_link_read_bytes(const struct shared_link *link)
{
    return link->in.mine;
}

/* ---- lend ---- */

bool shared_link_may_lend(const struct shared_link *link)
{
    return shared_loans_may(&link->loans);
}

uint32_t shared_link_lend(struct shared_link *link, void *item)
{
    return shared_loans_lend(&link->loans, item);
}

void *shared_link_returned(struct shared_link *link, bool all)
{
    return shared_loans_next(&link->loans, all);
}

bool shared_link_lends(const struct shared_link *link)
{
    return link->loans.count > 0;
}

enum err shared_link_borrow(struct shared_link *link, uint64_t number, struct reason *reason)
{
    if (number >= SHARED_LOANS_MAX || link->lent.data == NULL)
        return reason_set(reason, ERR_MALFORMED, "loan %" PRIu64 ", which nobody makes", number);
    atomic_fetch_add_explicit(&link->references, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&link->held, 1, memory_order_relaxed);
    return ERR_OK;
}

/* One byte for all that were held together: who lends much at a time is not woken for each. */
void shared_link_give_back(struct shared_link *link, uint32_t number)
{
    shared_returns_give(link->returns, number);
    if (atomic_fetch_sub_explicit(&link->held, 1, memory_order_acq_rel) == 1)
        send_byte(link);
    shared_link_drop(link);
}

enum err shared_link_borrowed(const struct shared_link *link, uint64_t offset, uint64_t bytes,
                              struct slice *ret_bytes, struct reason *reason)
{
    if (offset > link->lent.bytes || bytes > link->lent.bytes - offset)
        return reason_set(reason, ERR_MALFORMED,
                          "a loan of %" PRIu64 " bytes from %" PRIu64
                          " on, outside of the sender's memory",
                          bytes, offset);
    *ret_bytes = (struct slice){link->lent.data + offset, (size_t)bytes};
    return ERR_OK;
}
