/* What the files of a link share. For shared_link*.c only. */
#ifndef ROOST_COMMON_SHARED_SHARED_LINK_CORE_H
#define ROOST_COMMON_SHARED_SHARED_LINK_CORE_H

#include "common/shared/shared_link_options.h"
#include "common/shared/shared_loans.h"
#include "common/shared/shared_ring.h"

#include <sys/types.h>

enum { SHARED_LINK_LINE_BYTES = 64 }; /* headers and payloads begin at multiples of it */

/* The first page of the memory; the rings follow, in this order. */
struct shared_link_page {
    struct shared_positions ways[2]; /* from who connects, to who connects */
    struct shared_returns returns[2];
};

struct shared_link {
    struct shared_link_options options;
    atomic_uint references; /* the owner's, and one for each loan that this side holds */
    atomic_uint held;       /* such loans */
    int socket;
    bool ended;
    struct shared_link_page *page; /* mapped */
    size_t mapped_bytes;
    struct shared_ring out, in;
    struct shared_loans loans;      /* of this side */
    struct shared_returns *returns; /* of what the other one lends */
    struct slice lent;              /* its pool, mapped; {0}: not yet */
    uint64_t out_left, out_pad;     /* of the payload that is being written, and behind it */
    uint64_t in_left, in_pad;
    uint64_t written_seen, read_seen; /* positions of the other side, when the last wait ended */
    _Alignas(SHARED_LINK_LINE_BYTES)
        uint8_t header[SHARED_LINK_LINE_BYTES + SHARED_LINK_HEADER_BYTES_MAX];
};

/* ---- shared_link.c ---- */

/* The other side, if it said that it sleeps; its word is cleared. */
void shared_link_wake(struct shared_link *link, atomic_uint *sleeps);

/* ---- shared_link_begin.c ---- */

/* The owner's reference, or that of a loan. */
void shared_link_drop(struct shared_link *link);
enum err shared_link_io_error(struct reason *reason, const char *what);
/* What is there on the socket, as recv() says it without waiting; *ret_file: close(), -1: no file came
 * with it. */
ssize_t shared_link_receive(const struct shared_link *link, void *bytes, size_t bytes_max,
                            int *ret_file);
/* A positive number of milliseconds until the moment, as poll() takes it; -1: for ever. */
int shared_link_poll_ms(uint64_t deadline_ns);

#endif
