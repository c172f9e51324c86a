/* What a server reports to a coordinator that follows a dead one (P7): which generation of which
 * run it holds, which chunks, and the newest decision. coordinator/succession.h is the other side.
 * Pure; part of struct server_member.
 *
 * A decision counts from the moment when it is received, carried out or not: it is sent only when
 * the sums of every server are there, and the sums stay until the next decision (P6), so a
 * successor can repeat it to all.
 *
 * Chunks that move with a decision stop being their old owner's when it receives the decision, and
 * become their new owner's when they arrive. Until they arrive the new owner reports that it holds
 * nothing, because the old one may not have received the decision. */
#ifndef ROOST_SERVER_MEMBER_HOLDINGS_H
#define ROOST_SERVER_MEMBER_HOLDINGS_H

#include "proto/wire.h"

struct holdings {
    struct server_held told; /* generation 0: nothing */
    bool *owned;             /* by chunk, those below `end` */
    uint32_t end;
    bool takes; /* with the newest decision chunks come */
    struct chunk_range *ranges;
};

void holdings_release(struct holdings *holdings); /* {0} is fine */

/* PREPARE of a newer generation. */
void holdings_prepare(struct holdings *holdings, const struct server_command *command);
/* COMMIT, before it is carried out. */
void holdings_commit(struct holdings *holdings, const struct server_command *command);
/* The run is over, or what is held cannot be known: from now on nothing is reported. */
void holdings_end(struct holdings *holdings);

/* The report, when the server has carried out the decisions below `committed`; borrowed until the
 * next command. */
struct server_held holdings_answer(const struct holdings *holdings, uint64_t committed);
/* The report's `spec` for a run of that spec and folder. */
uint64_t holdings_spec(const char *spec, const char *checkpoint_dir);

#endif
