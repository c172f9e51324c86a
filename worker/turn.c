#include "worker/turn.h"

#include "common/time.h"

void turn_init(struct turn *turn)
{
    *turn = (struct turn){0};
    thread_mutex_init(&turn->mutex);
    thread_cond_init(&turn->changed);
}

void turn_release(struct turn *turn)
{
    thread_cond_release(&turn->changed);
    thread_mutex_release(&turn->mutex);
}

/* Whether an older ticket wants the turn. */
static bool has_older(const struct turn *turn, const struct turn_lane *lane)
{
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++)
        if (turn->lanes[i].wants && ticket_is_older(turn->lanes[i].ticket, lane->ticket))
            return true;
    return false;
}

static void take_locked(struct turn *turn, struct turn_lane *lane)
{
    lane->wants = true;
    while (turn->taken || has_older(turn, lane))
        ignore(thread_wait_locked(&turn->changed, &turn->mutex, TIME_NEVER)); /* looks again */
    lane->wants = false;
    turn->taken = true;
}

static void give_locked(struct turn *turn)
{
    check(turn->taken);
    turn->taken = false;
    thread_wake_all(&turn->changed);
}

void turn_take(struct turn *turn, uint32_t lane, const struct ticket *ticket)
{
    thread_lock(&turn->mutex);
    turn->lanes[lane].ticket = ticket;
    take_locked(turn, &turn->lanes[lane]);
    thread_unlock(&turn->mutex);
}

void turn_give(struct turn *turn)
{
    thread_lock(&turn->mutex);
    give_locked(turn);
    thread_unlock(&turn->mutex);
}

void turn_offer(struct turn *turn, uint32_t lane)
{
    thread_lock(&turn->mutex);
    if (has_older(turn, &turn->lanes[lane])) {
        give_locked(turn);
        take_locked(turn, &turn->lanes[lane]);
    }
    thread_unlock(&turn->mutex);
}
