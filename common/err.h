/* The one error type: what happened, how the caller reacts, and the text. */
#ifndef ROOST_COMMON_ERR_H
#define ROOST_COMMON_ERR_H

#include "common/check.h"

#include <stdint.h>

/* What the caller does: go on, ask again after a backoff, wait for the event, drop the ticket,
 * join again, refuse the message, or stop the process with a reason. */
#define REACTION_TABLE(X) X(DONE) X(RETRY) X(WAIT) X(DROP) X(REJOIN) X(REJECT) X(STOP)

/* code, reaction, text. The order is part of the wire (`Status.code`): append only. */
#define ERR_TABLE(X)                                                                               \
    X(OK, DONE, "ok")                                                                              \
    X(NOMEM, STOP, "out of memory")                                                                \
    X(INVALID, STOP, "invalid setting or argument")                                                \
    X(MALFORMED, REJECT, "message does not decode or breaks a limit")                              \
    X(UNREACHABLE, RETRY, "peer did not answer")                                                   \
    X(DEADLINE, RETRY, "deadline passed")                                                          \
    X(BUSY, RETRY, "receiver is full")                                                             \
    X(TOO_EARLY, WAIT, "that version is not complete yet")                                         \
    X(BEHIND, WAIT, "receiver is behind the sender's generation")                                  \
    X(TOO_LATE, DROP, "that version is gone")                                                      \
    X(MOVED, RETRY, "chunk is on another server")                                                  \
    X(OLD_GENERATION, REJOIN, "sender belongs to an older generation")                             \
    X(OLD_TERM, REJECT, "command comes from an older term")                                        \
    X(OLD_BOOT, REJECT, "command is for an earlier start of this server")                          \
    X(UNKNOWN_MEMBER, REJOIN, "coordinator does not know this member")                             \
    X(NO_RUN, WAIT, "no run is active")                                                            \
    X(NOT_COORDINATOR, RETRY, "this server is not the coordinator")                                \
    X(NOT_FOUND, REJECT, "no such thing")                                                          \
    X(EXISTS, REJECT, "already there")                                                             \
    X(DENIED, STOP, "not permitted")                                                               \
    X(UNTRUSTED, STOP, "certificate is missing, expired or of another CA")                         \
    X(WIRE_VERSION, STOP, "peer speaks another wire version")                                      \
    X(FINGERPRINT, STOP, "this machine computes other bits than the run")                          \
    X(DATA_SET, STOP, "data set differs from the run's")                                           \
    X(SPEC_DIFFERS, STOP, "spec differs from the stored run's")                                    \
    X(WRONG_BITS, REJECT, "duplicate's digest differs from the first's")                           \
    X(IO, STOP, "input or output failed")                                                          \
    X(NO_SPACE, RETRY, "no space left on device")                                                  \
    X(CORRUPT, STOP, "stored bytes do not match their digest")                                     \
    X(UNSUPPORTED, STOP, "not supported here")                                                     \
    X(CANCELLED, DONE, "cancelled")                                                                \
    X(NON_FINITE, STOP, "too many non-finite steps in a row")                                      \
    X(RUN_FAILED, STOP, "the run failed")                                                          \
    X(STALE, DROP, "weights used are too far behind, or lost")                                     \
    X(BEYOND, DROP, "ticket is beyond the window")                                                 \
    X(NO_GRANT, DROP, "ticket was not granted to the sender")                                      \
    X(NOT_SYNCED, STOP, "what was written may not be on disk")                                     \
    X(NAME_TAKEN, STOP, "another server of this name is connected")                                \
    X(EXPELLED, REJECT, "worker was expelled from the run")                                        \
    X(SEARCHING, WAIT, "a checkpoint or a data set is still read")                                 \
    X(NOT_VALID_YET, WAIT, "certificate is not valid yet")                                         \
    X(RUN_CHANGED, STOP,                                                                           \
      "another run was started, or this one goes on with other settings: start this worker again")

#define ERR_ENUM(code, reaction, text) ERR_##code,
#define REACTION_ENUM(reaction) REACT_##reaction,
enum reaction { REACTION_TABLE(REACTION_ENUM) REACTION_COUNT };
enum err { ERR_TABLE(ERR_ENUM) ERR_COUNT };
#undef ERR_ENUM
#undef REACTION_ENUM

const char *err_name(enum err err);                /* "OLD_GENERATION" */
const char *err_text(enum err err);                /* "sender belongs to an older generation" */
enum reaction err_reaction(enum err err);          /* REACT_REJOIN */
const char *reaction_name(enum reaction reaction); /* "rejoin" */
/* The err of a number from a peer; ERR_MALFORMED when there is no such code. */
enum err err_from_wire(unsigned code);
/* The err of an errno of open, read, write, fsync and their like. */
enum err err_from_errno(int number);

/* Passes an error up; the only macro that hides control flow. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum err try_err_ = (expression);                                                          \
        if (try_err_ != ERR_OK)                                                                    \
            return try_err_;                                                                       \
    } while (0)

#define ignore(expression) ((void)((expression) == ERR_OK)) /* write why beside it */

/* For counts in sentences: "%u slot%s". */
static inline const char *plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* The sentence that goes with an error: names the thing and the place (file:line, offset, peer).
 * Plain data; functions that check foreign input take one as the last argument and fill it when
 * they fail. */
struct reason {
    char text[512];
};
/* Fills `reason` (may be NULL) and returns `err`: `return reason_set(reason, ERR_INVALID, "…");`. A question
 * mark stands for each byte of what may not be shown inside a line (utf8_make_plain()). */
enum err reason_set(struct reason *reason, enum err err, const char *format, ...) PRINTF_LIKE(3, 4);
/* What people read: the reason where there is one, else the error's own words, which are
 * general. */
const char *reason_text(enum err err, const struct reason *reason);

#endif
