/* Which cut is durable (P9). A cut is ordered with a commit; each server writes its file and sends
 * its manifest's digest; when all manifests are there, and the cut is newer than the newest
 * recorded one, the coordinator's daemon writes it down, and then the cut is recorded. Pure; one
 * owner. */
#ifndef ROOST_SERVER_COORDINATOR_CUTS_H
#define ROOST_SERVER_COORDINATOR_CUTS_H

#include "server/coordinator/coordinator.h"

enum { CUTS_PENDING_MAX = 8 };

struct pending_cut {
    struct cut_record record;
    struct map map; /* servers as the record numbers them */
    uint32_t have_count;
    bool complete; /* every manifest is there: it is being written down */
    bool asked;    /* somebody asked for it: when it is given up, it is made again */
    bool have[WIRE_SERVERS_MAX];
};

struct cuts {
    struct cut_record newest; /* recorded; generation 0: none */
    /* Its chunk map (P10); without ranges when another start recorded the cut. */
    struct map map;
    bool wanted;       /* the next commit is to be one */
    uint64_t asked_at; /* and so is the first that leads to this version or beyond; 0: none */
    uint32_t pending_count;
    struct pending_cut *pending;        /* CUTS_PENDING_MAX, oldest first */
    char error[COORDINATOR_TEXT_BYTES]; /* why the newest was not recorded; "" */
    struct cut_name waiting;            /* the run's first or last, for room; generation 0: none */
    uint32_t fails;    /* in a row, for want of room, of those that were waited for */
    uint32_t attempt;  /* the newest at it that has begun */
    uint64_t again_ms; /* when the next one begins; 0: nobody waits for one */
};

enum err cuts_init(struct cuts *cuts, const struct cut_record *newest) MUST_USE; /* ERR_NOMEM */
void cuts_release(struct cuts *cuts);

/* The next commit is to be a cut; the one that leads to this version, or to a later one. */
void cuts_ask(struct cuts *cuts);
void cuts_ask_at(struct cuts *cuts, uint64_t version);
/* Whether the commit that leads to this version is to be one; and it is: its cut was ordered. */
bool cuts_asked(const struct cuts *cuts, uint64_t version);
void cuts_ask_done(struct cuts *cuts);
bool cuts_same(struct cut_name a, struct cut_name b);
bool cuts_is_newer(struct cut_name a, struct cut_name b); /* a than b */

/* The pending cut of this name is one that is recorded by its seed: it is being written down from
 * now on, and this is its record, as of cuts_manifest(). NULL: there is none. */
const struct cut_record *cuts_by_seed(struct cuts *cuts, struct cut_name name);

/* A cut is under way; of the record all but the digests is filled in. When too many are, the oldest
 * that is not being written down is given up: it would be the first to be pruned. */
void cuts_order(struct cuts *cuts, const struct cut_record *record, struct map *take_map);
/* Cuts are ordered faster than they are written. Another one would take the place of the oldest,
 * which is the next to be recorded: then none ever is, and files that nobody prunes fill the
 * disk. */
bool cuts_full(const struct cuts *cuts);
bool cuts_ordered(const struct cuts *cuts, struct cut_name name);
/* Every manifest of it is there: it is being written down, and may be recorded any moment. */
bool cuts_complete(const struct cuts *cuts, struct cut_name name);
/* The manifest of the server of this name. Returns the cut's record when this manifest was the last
 * missing one; borrowed until the cut is recorded or has failed. NULL: other manifests are missing,
 * nobody waits for this cut, or a newer cut is being written down (P9: an older one must not
 * follow). */
const struct cut_record *cuts_manifest(struct cuts *cuts, struct cut_name name, const char *server,
                                       const uint8_t digest[static WIRE_DIGEST_BYTES]);
/* A cut is being written down, so the newest recorded cut may change at any moment. */
bool cuts_are_written(const struct cuts *cuts);
/* P11: the newest recorded cut needs a file of that server, or one that is pending does. */
bool cuts_need(const struct cuts *cuts, const char *server);
/* The newest cut that was ordered (pending, or else recorded) needs a file of that server. */
bool cuts_last_needs(const struct cuts *cuts, const char *server);
/* The server's number in the record; WIRE_SERVERS_MAX: the cut needs no file of it. */
uint32_t cuts_file(const struct cut_record *record, const char *server);
/* A cut that was taken from its directory: which servers wrote its files is not known. */
bool cuts_is_nameless(const struct cut_record *record);
/* The cut is written down: it is `newest` now, and older ones are forgotten. False: nobody waits
 * for it. */
bool cuts_recorded(struct cuts *cuts, struct cut_name name);
/* `newest` is this older cut: those that were recorded since are damaged. Its map is not known. */
void cuts_go_back(struct cuts *cuts, const struct cut_record *whole);
/* The cut could not be written down. False: nobody waits for it. */
bool cuts_fail(struct cuts *cuts, struct cut_name name);
/* Why it failed, on which side, and how much a cut takes (0: not known), until another is recorded.
 */
struct cut_failure {
    const char *who;
    enum err code;
    uint64_t bytes;
};
void cuts_note_error(struct cuts *cuts, struct cut_name name, const struct cut_failure *failure);
/* There was no room for the run's first or last cut: there will be another attempt, each later than
 * the one before. */
void cuts_wait(struct cuts *cuts, struct cut_name name, uint64_t now_ms);
/* The run's last cut was ordered by a coordinator that is dead, up to that attempt: the next one
 * begins now. */
void cuts_resume(struct cuts *cuts, struct cut_name name, uint32_t attempt, uint64_t now_ms);
/* The next attempt begins. */
void cuts_try_again(struct cuts *cuts);
bool cuts_again_is_due(const struct cuts *cuts, uint64_t now_ms);
bool cuts_waits(const struct cuts *cuts);
/* The newest attempt at that cut; 0: the first. A server that comes back between two attempts gets
 * the one that has failed: it writes its file once more with the next. */
uint32_t cuts_attempt(const struct cuts *cuts, struct cut_name name);

/* A server lost its memory while the others go on (P12): it would not write the same bytes again,
 * and it may have written its file already. Cuts that are not complete are given up. False: there
 * were none. */
bool cuts_server_lost(struct cuts *cuts, const char *server);
/* A rewind: forgets all pending cuts but those that are being written down. One that was asked for
 * is made when the run has come to its version again. */
void cuts_forget(struct cuts *cuts);

#endif
