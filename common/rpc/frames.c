/* A byte is of the preface, of a frame's header, or of its payload. */
#include "common/rpc/frames.h"

#include <stdbool.h>
#include <string.h>

enum { PREFACE_BYTES = 24 };
enum { FRAME_DATA = 0, FRAME_HEADERS = 1, FRAME_SETTINGS = 4, FRAME_CONTINUATION = 9 };
enum { FLAG_ACK = 1, FLAG_END_HEADERS = 4 };

static size_t at_most(size_t bytes, size_t bytes_max)
{
    return bytes < bytes_max ? bytes : bytes_max;
}

static uint32_t number_at(const uint8_t *bytes, unsigned count)
{
    uint32_t number = 0;
    for (unsigned i = 0; i < count; i++)
        number = number << 8 | bytes[i];
    return number;
}

static bool has_headers(const struct frames *frames)
{
    return frames->header[3] == FRAME_HEADERS || frames->header[3] == FRAME_CONTINUATION;
}

static void count_headers(struct frames *frames, uint32_t bytes)
{
    frames->headers_bytes += bytes;
    frames->headers_bytes_sum += bytes;
    if (frames->headers_bytes > frames->headers_bytes_most)
        frames->headers_bytes_most = frames->headers_bytes;
}

static void begin_frame(struct frames *frames, struct frames_brought *brought)
{
    uint32_t stream = number_at(frames->header + 5, 4) & INT32_MAX;
    frames->payload_bytes = number_at(frames->header, 3);
    if (has_headers(frames))
        count_headers(frames, FRAMES_HEADER_BYTES);
    /* The library ignores even numbers and those that do not rise. */
    if (frames->header[3] != FRAME_HEADERS || stream % 2 == 0 || stream <= frames->stream_max)
        return;
    frames->stream_max = stream;
    brought->streams++;
}

static void end_frame(struct frames *frames)
{
    uint8_t type = frames->header[3], flags = frames->header[4];
    bool whole = !has_headers(frames) || (flags & FLAG_END_HEADERS) != 0;
    if (type == FRAME_SETTINGS && (flags & FLAG_ACK) != 0 && frames->answered)
        frames->acknowledged = true;
    if (type != FRAME_DATA && whole)
        frames->open_bytes = 0;
    if (frames->acknowledged && whole)
        frames->headers_bytes = 0;
    frames->header_bytes = 0;
}

/* Some bytes of the preface, of a frame's header, or of its payload: returns how many. */
static size_t read_some(struct frames *frames, struct slice plain, struct frames_brought *brought)
{
    size_t count;
    if (frames->preface_bytes < PREFACE_BYTES) {
        count = at_most(plain.bytes, PREFACE_BYTES - frames->preface_bytes);
        frames->preface_bytes += (uint32_t)count;
        return count;
    }
    if (frames->header_bytes < FRAMES_HEADER_BYTES) {
        count = at_most(plain.bytes, FRAMES_HEADER_BYTES - frames->header_bytes);
        memcpy(frames->header + frames->header_bytes, plain.data, count);
        frames->header_bytes += (uint32_t)count;
        if (frames->header_bytes == FRAMES_HEADER_BYTES)
            begin_frame(frames, brought);
    } else {
        count = at_most(plain.bytes, frames->payload_bytes);
        frames->payload_bytes -= (uint32_t)count;
        if (frames->header[3] == FRAME_DATA)
            brought->call_bytes += count;
        else
            frames->open_bytes += (uint32_t)count;
        if (has_headers(frames))
            count_headers(frames, (uint32_t)count);
    }
    if (frames->header_bytes == FRAMES_HEADER_BYTES && frames->payload_bytes == 0)
        end_frame(frames);
    return count;
}

void frames_read(struct frames *frames, struct slice plain, struct frames_brought *brought)
{
    while (plain.bytes > 0) {
        size_t count = read_some(frames, plain, brought);
        plain.data += count;
        plain.bytes -= count;
    }
}
