/* What a link between two processes is made with (shared_link.h). */
#ifndef ROOST_COMMON_SHARED_SHARED_LINK_OPTIONS_H
#define ROOST_COMMON_SHARED_SHARED_LINK_OPTIONS_H

#include "common/shared/shared_pool.h"

enum {
    SHARED_LINK_HEADER_BYTES_MAX = 448,
    SHARED_LINK_RING_BYTES_MIN = 4096,
    SHARED_LINK_RING_BYTES_MAX = 64 * 1024 * 1024,
    SHARED_LINK_WAIT_MAX = 64, /* links that are waited for together */
    SHARED_LINK_WORD_BYTES = 16,
};

struct shared_link_options {
    uint32_t ring_bytes; /* of each way, a power of two; the side that connects decides */
    uint64_t payload_bytes_max;
    uint32_t spins;                       /* looks before a wait sleeps; 0: none */
    uint8_t word[SHARED_LINK_WORD_BYTES]; /* what the side that connects says with the memory */
    struct shared_pool *pool;             /* from which this side lends; borrowed, may be NULL */
};

#endif
