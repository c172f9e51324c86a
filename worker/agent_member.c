#include "worker/agent_member.h"

void agent_member_joined(struct agent_member *member, const struct join_reply *reply)
{
    check(member->phase == AGENT_PHASE_JOINING);
    member->phase = AGENT_PHASE_MEMBER;
    member->join_failures = 0;
    member->member = reply->member;
    member->secret = reply->secret;
    member->generation = reply->generation;
}

bool agent_member_waits(const struct agent_member *member, enum err err)
{
    return member->was_served ? agent_backoff_helps_member(err) : agent_backoff_helps(err);
}

bool agent_member_join_failed(struct agent_member *member, uint64_t now_ms, enum err err,
                              struct rand_state *jitter)
{
    if (!agent_member_waits(member, err) && err_reaction(err) != REACT_REJOIN)
        return false;
    /* Where waiting helps, the agent asks again soon. It asks an unreachable coordinator less and
     * less often. */
    unsigned failures = member->join_failures++;
    if (err_reaction(err) == REACT_WAIT && failures > AGENT_WAIT_FAILURES_MAX)
        failures = AGENT_WAIT_FAILURES_MAX;
    member->phase = AGENT_PHASE_AWAY;
    member->join_at = now_ms + agent_backoff_ms(jitter, failures);
    return true;
}

void agent_member_away(struct agent_member *member, uint64_t now_ms, struct rand_state *jitter)
{
    member->phase = AGENT_PHASE_AWAY;
    member->member = member->generation = 0;
    member->join_at = now_ms + agent_backoff_ms(jitter, member->join_failures++);
}

void agent_member_stop(struct agent_member *member, enum err err)
{
    check(member->phase != AGENT_PHASE_STOPPED);
    member->phase = AGENT_PHASE_STOPPED;
    member->member = member->generation = 0;
    member->stop = err;
}

void agent_member_leave(struct agent_member *member, uint64_t now_ms, uint64_t deadline_ms)
{
    member->leave_at = member->leaving ? now_ms : deadline_ms;
    member->leaving = true;
}

bool agent_member_next_join(struct agent_member *member, uint64_t now_ms,
                            struct agent_effect *effect)
{
    if (member->phase != AGENT_PHASE_AWAY || now_ms < member->join_at)
        return false;
    member->phase = AGENT_PHASE_JOINING;
    effect->kind = AGENT_JOIN;
    return true;
}

bool agent_member_next_stop(struct agent_member *member, struct agent_effect *effect)
{
    check(member->phase == AGENT_PHASE_STOPPED);
    if (member->stop_reported)
        return false;
    member->stop_reported = true;
    effect->kind = AGENT_STOP;
    effect->stop = member->stop;
    return true;
}

void agent_member_check(const struct agent_member *member)
{
    check((member->member != 0) == (member->phase == AGENT_PHASE_MEMBER));
    check(!member->leave_sent || member->phase == AGENT_PHASE_STOPPED);
    check(!member->stop_reported || member->phase == AGENT_PHASE_STOPPED);
}
