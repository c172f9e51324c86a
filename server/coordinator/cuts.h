/* Which cut is durable (P9). A cut is ordered with a commit; each server writes its file and sends
 * its manifest's digest; when all are there, and it is newer than the newest recorded, it is to be
 * written down, and recorded when that is done. Pure; one owner. */
#ifndef ROOST_SERVER_COORDINATOR_CUTS_H
#define ROOST_SERVER_COORDINATOR_CUTS_H

#include "server/coordinator/coordinator.h"

enum { CUTS_PENDING_MAX = 8 };

struct pending_cut {
    struct cut_record record;
    struct map map; /* servers as the record numbers them */
    uint32_t have_count;
    bool complete; /* it is to be written down */
    bool have[WIRE_SERVERS_MAX];
};

struct cuts {
    struct cut_record newest; /* recorded; generation 0: none */
    struct map map;           /* its chunk map (P10); no ranges: not known, from another start */
    bool asked;               /* the next commit is to be one */
    uint32_t pending_count;
    struct pending_cut *pending;        /* CUTS_PENDING_MAX, oldest first */
    char error[COORDINATOR_TEXT_BYTES]; /* why the newest was not recorded; "" */
};

enum err cuts_init(struct cuts *cuts, const struct cut_record *newest) MUST_USE; /* ERR_NOMEM */
void cuts_release(struct cuts *cuts);

/* The next commit is to be a cut; and it is one. */
void cuts_ask(struct cuts *cuts);
void cuts_ask_done(struct cuts *cuts);
bool cuts_same(struct cut_name a, struct cut_name b);

/* A cut is under way; of the record all but the digests is filled in. When too many are, the oldest
 * that is not being written down is given up: it would be the first to be pruned. */
void cuts_order(struct cuts *cuts, const struct cut_record *record, struct map *take_map);
bool cuts_ordered(const struct cuts *cuts, struct cut_name name);
/* Every manifest of it is there: it is being written down, and may be recorded any moment. */
bool cuts_complete(const struct cuts *cuts, struct cut_name name);
/* The manifest of the server of this name. The record: it was the last one missing; borrowed until
 * the cut is recorded or has failed. NULL: others are missing, nobody waits for it (any more), or a
 * newer one is being written down, which this one must not follow. */
const struct cut_record *cuts_manifest(struct cuts *cuts, struct cut_name name, const char *server,
                                       const uint8_t digest[static WIRE_DIGEST_BYTES]);
/* Some cut is being written down: which one is the newest may be another any moment. */
bool cuts_are_written(const struct cuts *cuts);
/* P11: the newest recorded cut needs a file of that server, or one that is pending does. */
bool cuts_need(const struct cuts *cuts, const char *server);
/* The newest that was ordered needs one: pending, or recorded if none is. */
bool cuts_last_needs(const struct cuts *cuts, const char *server);
/* Its number in the record; WIRE_SERVERS_MAX: the cut needs none of its files. */
uint32_t cuts_file(const struct cut_record *record, const char *server);
/* It is written down: `newest` is this cut now, older ones are forgotten. False: nobody waits. */
bool cuts_recorded(struct cuts *cuts, struct cut_name name);
/* It could not be written. False: nobody waits for it. */
bool cuts_fail(struct cuts *cuts, struct cut_name name);
/* Why it failed, and on which side, until another is recorded. */
void cuts_note_error(struct cuts *cuts, const char *who, struct cut_name name, enum err code);
/* A server lost its memory while the others go on (P12): it would not write the same bytes again,
 * and may have written its file. Those that are not complete are given up. False: there were none.
 */
bool cuts_server_lost(struct cuts *cuts, const char *server);
/* A rewind: all that are pending but those that are being written down. */
void cuts_forget(struct cuts *cuts);

#endif
