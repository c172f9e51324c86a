/* How far a peer's HTTP/2 frames have come (RFC 9113 3.4, 4.1, 6), and what they brought. Pure; it
 * judges nothing: the library that gets the same bytes does. */
#ifndef ROOST_COMMON_RPC_FRAMES_H
#define ROOST_COMMON_RPC_FRAMES_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAMES_HEADER_BYTES = 9 };

struct frames { /* zeros: nothing has come */
    uint32_t preface_bytes;
    uint32_t header_bytes; /* of the newest frame's header */
    uint8_t header[FRAMES_HEADER_BYTES];
    uint32_t payload_bytes; /* of it, still to come */
    uint32_t stream_max;
    uint32_t open_bytes; /* of a frame or headers that are not whole */
    bool answered;       /* the library has sent its settings; the user sets it */
    bool acknowledged;   /* and the peer has read them */
    /* Of frames with headers: those of one call, or of all until `acknowledged`; the most that these
     * were; all that there were. */
    uint32_t headers_bytes, headers_bytes_most;
    uint64_t headers_bytes_sum;
};

/* Bytes of calls, and how many calls were begun. */
struct frames_brought {
    size_t call_bytes;
    uint32_t streams;
};

/* Reads the next bytes, which end anywhere; adds to *brought. */
void frames_read(struct frames *frames, struct slice plain, struct frames_brought *brought);

#endif
