/* What a peer sends over a connection, HTTP/2 frames or anything else, after four bytes that say
 * how it is cut. It comes once as a whole, once byte by byte, and once in pieces: the sums are the
 * same, and no more than what came. */
#include "tests/fuzz/fuzz.h"

#include "common/check.h"
#include "common/rpc/frames.h"

#include <string.h>

enum { CUTS = 4, PREFACE_BYTES = 24 };

struct reader {
    struct frames frames;
    struct frames_brought brought;
    size_t came;
};

static void bring(struct reader *reader, const uint8_t *data, size_t bytes)
{
    frames_read(&reader->frames, (struct slice){data, bytes}, &reader->brought);
    reader->came += bytes;
}

/* Each byte that came is of one kind, and those of earlier frames' headers are not kept. */
static void check_sums(const struct reader *reader)
{
    const struct frames *frames = &reader->frames;
    const struct frames_brought *brought = &reader->brought;
    check(frames->preface_bytes <= PREFACE_BYTES && frames->header_bytes <= FRAMES_HEADER_BYTES);
    check(frames->header_bytes == FRAMES_HEADER_BYTES || frames->payload_bytes == 0);
    check(frames->preface_bytes + frames->header_bytes + (size_t)frames->open_bytes +
              brought->call_bytes <=
          reader->came);
    check(frames->preface_bytes + brought->streams * (size_t)FRAMES_HEADER_BYTES <= reader->came);
    check(brought->streams <= (frames->stream_max + 1) / 2); /* their numbers are odd, and rise */
}

static void check_same(const struct reader *a, const struct reader *b)
{
    check(a->came == b->came);
    check(a->frames.preface_bytes == b->frames.preface_bytes);
    check(a->frames.header_bytes == b->frames.header_bytes);
    check(memcmp(a->frames.header, b->frames.header, a->frames.header_bytes) == 0);
    check(a->frames.payload_bytes == b->frames.payload_bytes);
    check(a->frames.stream_max == b->frames.stream_max);
    check(a->frames.open_bytes == b->frames.open_bytes);
    check(a->brought.call_bytes == b->brought.call_bytes);
    check(a->brought.streams == b->brought.streams);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct reader whole = {0}, by_byte = {0}, by_piece = {0};
    if (bytes < CUTS)
        return 0;
    const uint8_t *cuts = data, *sent = data + CUTS;
    size_t sent_bytes = bytes - CUTS;
    for (unsigned piece = 0; by_piece.came < sent_bytes; piece++) {
        size_t left = sent_bytes - by_piece.came, cut = (size_t)1 + cuts[piece % CUTS];
        bring(&by_piece, sent + by_piece.came, cut < left ? cut : left);
        while (by_byte.came < by_piece.came)
            bring(&by_byte, sent + by_byte.came, 1);
        check_sums(&by_piece);
        check_same(&by_piece, &by_byte);
    }
    bring(&whole, sent, sent_bytes);
    check_same(&whole, &by_piece);
    return 0;
}
