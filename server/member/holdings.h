/* What a server reports to a coordinator that follows a dead one (P7): which generation of which
 * run it holds, which chunks, and the newest decision. coordinator/succession.h is the other side.
 * Pure; part of struct server_member.
 *
 * A decision counts from the moment when it is received, carried out or not. The coordinator sends
 * a decision only when every server has its sums, and servers keep the sums until the next decision
 * (P6). So a successor can send the decision again to all of them.
 *
 * Chunks that move with a decision leave their old owner when it receives the decision, and belong
 * to their new owner when they arrive (P11). Until they arrive, the new owner reports that it holds
 * nothing, because the old owner may not have received the decision. */
#ifndef ROOST_SERVER_MEMBER_HOLDINGS_H
#define ROOST_SERVER_MEMBER_HOLDINGS_H

#include "proto/wire.h"

struct holdings {
    struct server_held told; /* generation 0: nothing */
    bool *owned;             /* by chunk, those below `end` */
    uint32_t end;
    bool takes; /* chunks come to this server with the newest decision */
    struct chunk_range *ranges;
};

void holdings_release(struct holdings *holdings); /* {0} is fine */

/* PREPARE of a newer generation. */
void holdings_prepare(struct holdings *holdings, const struct server_command *command);
/* COMMIT, before it is carried out. */
void holdings_commit(struct holdings *holdings, const struct server_command *command);
/* The run is over, or it is not known what the server holds: from now on the server reports that it
 * holds nothing. */
void holdings_end(struct holdings *holdings);

/* The report, when the server has carried out the decisions below `committed`; borrowed until the
 * next command. */
struct server_held holdings_answer(const struct holdings *holdings, uint64_t committed);
/* The report's `spec` for a run of that spec and folder. */
uint64_t holdings_spec(const char *spec, const char *checkpoint_dir);

#endif
