/* The agent's membership: joining, being a member, leaving, and the end. For agent*.c only.
 *
 * Invariants (agent_member_check):
 *  1 it has a member number exactly while it is a member;
 *  2 an agent that has sent LEAVE or reported STOP has stopped. */
#ifndef ROOST_WORKER_AGENT_MEMBER_H
#define ROOST_WORKER_AGENT_MEMBER_H

#include "worker/agent_backoff.h"
#include "worker/agent_effects.h"

enum agent_phase {
    AGENT_PHASE_AWAY,    /* no member; joins at `join_at` */
    AGENT_PHASE_JOINING, /* asked */
    AGENT_PHASE_MEMBER,
    AGENT_PHASE_STOPPED,
};

struct agent_member {
    enum agent_phase phase;
    uint64_t join_at;
    unsigned join_failures;      /* in a row */
    uint64_t member, generation; /* 0 while it is no member */
    struct proof secret;
    bool was_served; /* a stream to a server has been up: certificates and addresses were right */

    bool leaving, leave_sent;
    uint64_t leave_at; /* its tickets are dropped at this moment */

    enum err stop; /* why it stopped */
    bool stop_reported;
};

void agent_member_joined(struct agent_member *member, const struct join_reply *reply);
/* Whether what failed so is asked again later. */
bool agent_member_waits(const struct agent_member *member, enum err err);
/* The join failed. False: waiting does not help, and the agent stops. */
bool agent_member_join_failed(struct agent_member *member, uint64_t now_ms, enum err err,
                              struct rand_state *jitter);
/* The coordinator has forgotten the member, or the agent has lost the coordinator: joins again,
 * later. */
void agent_member_away(struct agent_member *member, uint64_t now_ms, struct rand_state *jitter);
void agent_member_stop(struct agent_member *member, enum err err);
/* When it is called again: leaves now. */
void agent_member_leave(struct agent_member *member, uint64_t now_ms, uint64_t deadline_ms);

/* The effect JOIN, if it is due. */
bool agent_member_next_join(struct agent_member *member, uint64_t now_ms,
                            struct agent_effect *effect);
/* The last effect of a stopped agent, once. */
bool agent_member_next_stop(struct agent_member *member, struct agent_effect *effect);

void agent_member_check(const struct agent_member *member);

#endif
