/* Which limits have closed connections of a server since a log said so last. A flood must not fill the
 * log: each limit has one line in so many seconds, of the first connection and how many there were.
 * Plain data; whoever has it guards it. */
#ifndef ROOST_COMMON_RPC_CLOSINGS_H
#define ROOST_COMMON_RPC_CLOSINGS_H

#include "common/rpc/tls.h"

/* The word and the sentence of a line, and the seconds between two. Anybody can cause the first three
 * as often as he wants. */
#define CLOSING_TABLE(X)                                                                           \
    X(PLACES, "places", 60, "no place is left for one more connection")                            \
    X(HALF_OPEN, "half_open", 60, "a newer one takes its place, and it proved no certificate yet") \
    X(HANDSHAKE, "handshake", 60, "its handshake is too long")                                     \
    X(CERTIFICATE, "certificate", 10, "its certificate has as many connections as it may have")    \
    X(WORKERS, "workers", 10, "workers have as many connections as they may have")                 \
    X(REVOKED, "revoked", 10, "its certificate is revoked")                                        \
    X(EXPIRED, "expired", 10, "its certificate has ended")                                         \
    X(UNFINISHED, "unfinished", 10, "too many bytes of messages or headers that are not whole")    \
    X(MOST_UNFINISHED, "most_unfinished", 10,                                                      \
      "it has most bytes of messages that are not whole, and all connections have too many")       \
    X(CALLS, "calls", 10, "too many open calls")                                                   \
    X(RESETS, "resets", 10, "it gives up calls too often")                                         \
    X(REKEYS, "rekeys", 10, "it renews its keys too often")                                        \
    X(HEADERS, "headers", 10, "the headers of a call are too long")
enum closing {
#define CLOSING_ROW(name, word, seconds, text) CLOSING_##name,
    CLOSING_TABLE(CLOSING_ROW)
#undef CLOSING_ROW
        CLOSING_COUNT
};
const char *closing_word(enum closing closing);
const char *closing_text(enum closing closing);

enum { CLOSED_ADDRESS_BYTES = 80 };
struct closed {
    uint64_t count;
    struct tls_holder holder;           /* of the first; zeros: it has proved none */
    char address[CLOSED_ADDRESS_BYTES]; /* its own: "127.0.0.1:41022", "[::1]:41022" */
};

struct closings { /* zeros: none was closed */
    struct closings_row {
        uint64_t said_ns; /* 0: never */
        struct closed closed;
    } rows[CLOSING_COUNT];
};

/* `holder` NULL: none is proved. */
void closings_add(struct closings *closings, enum closing closing, const struct tls_holder *holder,
                  const char *address);
/* True: a line is due at that time, about *ret_closed, which counts no more. UINT64_MAX: the last
 * time, when all is due. */
bool closings_take(struct closings *closings, enum closing closing, uint64_t now_ns,
                   struct closed *ret_closed);

#endif
