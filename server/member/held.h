/* What a server tells a coordinator that follows a dead one (P7): which generation of which run it
 * holds, which chunks, and the newest decision. Kept by who takes the coordinator's commands, the
 * daemon (shards.c) or the simulator; coordinator/succession.h is the other side. Pure; one owner.
 *
 * Told of is as good as carried out: a decision is sent only when the sums of every server are
 * there, and they stay until the next one (P6), so a successor can repeat it to all.
 *
 * Chunks that move with a decision are not their old owner's any more, and their new owner's when
 * they are there: until then it says that it holds nothing, because the old one may not have been
 * told. */
#ifndef ROOST_SERVER_MEMBER_HELD_H
#define ROOST_SERVER_MEMBER_HELD_H

#include "proto/wire.h"

struct held {
    struct server_held told; /* generation 0: nothing */
    bool *owned;             /* by chunk, those below `end` */
    uint32_t end;
    bool takes; /* with the newest decision chunks come */
    struct chunk_range *ranges;
};

void held_release(struct held *held); /* {0} is fine */

/* PREPARE of a newer generation; COMMIT, whatever comes of it; the run is over, or nobody knows
 * what is held. Commands of an older term or another boot are not to come here. */
void held_prepare(struct held *held, const struct server_command *command);
void held_commit(struct held *held, const struct server_command *command);
void held_end(struct held *held);

/* The answer, when the server has carried out the decisions below `committed`; borrowed until the
 * next command. */
struct server_held held_answer(const struct held *held, uint64_t committed);
/* What its `spec` is for a run of that spec and folder. */
uint64_t held_spec(const char *spec, const char *checkpoint_dir);

#endif
