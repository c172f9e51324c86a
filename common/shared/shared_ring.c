#include "common/shared/shared_ring.h"

#include <inttypes.h>

/* ---- the writer ---- */

enum err shared_ring_room_bytes(struct shared_ring *writer, uint64_t *ret_bytes,
                                struct reason *reason)
{
    uint64_t read = atomic_load_explicit(&writer->positions->read, memory_order_acquire);
    if (read < writer->theirs || read > writer->mine)
        return reason_set(reason, ERR_MALFORMED,
                          "the reader says that it has read %" PRIu64 " bytes, of %" PRIu64
                          " written and %" PRIu64 " read before",
                          read, writer->mine, writer->theirs);
    writer->theirs = read;
    check(writer->mine - read <= writer->capacity);
    *ret_bytes = writer->capacity - (writer->mine - read);
    return ERR_OK;
}

/* Bytes of `count` from that position on that lie in one piece. */
static size_t in_one_piece(const struct shared_ring *ring, uint64_t count)
{
    uint64_t to_end = ring->capacity - ring->mine % ring->capacity;
    return (size_t)(count < to_end ? count : to_end);
}

enum err shared_ring_room(struct shared_ring *writer, uint8_t **ret_at, size_t *ret_bytes,
                          struct reason *reason)
{
    uint64_t room;
    TRY(shared_ring_room_bytes(writer, &room, reason));
    *ret_at = writer->bytes + writer->mine % writer->capacity;
    *ret_bytes = in_one_piece(writer, room);
    return ERR_OK;
}

void shared_ring_wrote(struct shared_ring *writer, size_t count)
{
    check(count <= writer->capacity - (writer->mine - writer->theirs));
    writer->mine += count;
    atomic_store_explicit(&writer->positions->written, writer->mine, memory_order_release);
}

/* ---- the reader ---- */

enum err shared_ring_there_bytes(struct shared_ring *reader, uint64_t *ret_bytes,
                                 struct reason *reason)
{
    uint64_t written = atomic_load_explicit(&reader->positions->written, memory_order_acquire);
    if (written < reader->theirs || written - reader->mine > reader->capacity)
        return reason_set(reason, ERR_MALFORMED,
                          "the writer says that it has written %" PRIu64 " bytes, of %" PRIu64
                          " read and %" PRIu64 " written before",
                          written, reader->mine, reader->theirs);
    reader->theirs = written;
    *ret_bytes = written - reader->mine;
    return ERR_OK;
}

enum err shared_ring_look(struct shared_ring *reader, struct slice *ret_bytes,
                          struct reason *reason)
{
    uint64_t there;
    TRY(shared_ring_there_bytes(reader, &there, reason));
    *ret_bytes = (struct slice){reader->bytes + reader->mine % reader->capacity,
                                in_one_piece(reader, there)};
    return ERR_OK;
}

void shared_ring_took(struct shared_ring *reader, size_t count)
{
    check(count <= reader->theirs - reader->mine);
    reader->mine += count;
    atomic_store_explicit(&reader->positions->read, reader->mine, memory_order_release);
}
