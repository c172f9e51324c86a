#include "worker/agent_backoff.h"

uint64_t agent_backoff_ms(struct rand_state *jitter, unsigned failures)
{
    uint64_t ms = AGENT_BACKOFF_MS_MIN;
    while (failures-- > 0 && ms < AGENT_BACKOFF_MS_MAX)
        ms *= 2;
    if (ms > AGENT_BACKOFF_MS_MAX)
        ms = AGENT_BACKOFF_MS_MAX;
    return ms / 2 + rand_below(jitter, ms + 1);
}

bool agent_backoff_helps(enum err err)
{
    enum reaction reaction = err_reaction(err);
    return err == ERR_CANCELLED || reaction == REACT_RETRY || reaction == REACT_WAIT;
}

bool agent_backoff_helps_member(enum err err)
{
    return err == ERR_UNTRUSTED || agent_backoff_helps(err);
}
