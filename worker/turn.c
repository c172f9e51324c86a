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

/* ---- who is next ---- */

/* Whether an older ticket is computed, or wants the turn now. */
static bool has_older(const struct turn *turn, const struct turn_lane *lane, bool wants)
{
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++) {
        const struct turn_lane *other = &turn->lanes[i];
        if (other->ticket != NULL && (!wants || other->wants) &&
            ticket_is_older(other->ticket, lane->ticket))
            return true;
    }
    return false;
}

/* Whether a forward of the lane comes too early. */
static bool is_early(const struct turn *turn, const struct turn_lane *lane, struct turn_room room)
{
    uint32_t stored = 0;
    for (uint32_t i = 0; i < AGENT_LANES_MAX; i++)
        stored += turn->lanes[i].ticket != NULL ? turn->lanes[i].stored : 0;
    return stored + room.each > room.most && !turn->in_vain && has_older(turn, lane, false);
}

static void take_locked(struct turn *turn, struct turn_lane *lane)
{
    lane->wants = true;
    while (turn->taken || has_older(turn, lane, true))
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

/* Without the turn. */
static void wait_locked(struct turn *turn, const struct turn_lane *lane, struct turn_room room)
{
    uint64_t until_ns = time_now_ns() + TURN_PATIENCE * turn->longest_ns;
    enum err err = ERR_OK;
    while (err == ERR_OK && !lane->cancelled && is_early(turn, lane, room))
        err = thread_wait_locked(&turn->changed, &turn->mutex, until_ns);
    turn->in_vain = turn->in_vain || err == ERR_DEADLINE;
}

/* ---- tickets and rows ---- */

void turn_begin(struct turn *turn, uint32_t lane, const struct ticket *ticket)
{
    thread_lock(&turn->mutex);
    bool cancelled = turn->lanes[lane].cancelled;
    turn->lanes[lane] = (struct turn_lane){.ticket = ticket, .cancelled = cancelled};
    take_locked(turn, &turn->lanes[lane]);
    thread_unlock(&turn->mutex);
}

void turn_end(struct turn *turn, uint32_t lane)
{
    thread_lock(&turn->mutex);
    turn->lanes[lane] = (struct turn_lane){0};
    give_locked(turn);
    thread_unlock(&turn->mutex);
}

void turn_give(struct turn *turn, uint32_t lane)
{
    thread_lock(&turn->mutex);
    turn->lanes[lane].given_ns = time_now_ns();
    give_locked(turn);
    thread_unlock(&turn->mutex);
}

void turn_take(struct turn *turn, uint32_t lane)
{
    thread_lock(&turn->mutex);
    take_locked(turn, &turn->lanes[lane]);
    turn->lanes[lane].begun_ns += time_now_ns() - turn->lanes[lane].given_ns;
    thread_unlock(&turn->mutex);
}

void turn_begin_row(struct turn *turn, uint32_t number, const struct program_row *row,
                    struct turn_room room)
{
    thread_lock(&turn->mutex);
    struct turn_lane *lane = &turn->lanes[number];
    bool next = !turn_goes_on(lane->act, lane->microbatch, row);
    bool early = next && row->act == ACT_F && is_early(turn, lane, room);
    if (early || (next && has_older(turn, lane, true))) {
        give_locked(turn);
        if (early)
            wait_locked(turn, lane, room);
        take_locked(turn, lane);
    }
    if (next) {
        lane->act = row->act;
        lane->microbatch = row->microbatch;
    }
    lane->begun_ns = time_now_ns();
    thread_unlock(&turn->mutex);
}

void turn_end_row(struct turn *turn, uint32_t number, const struct program_row *row)
{
    enum act act = row->act;
    thread_lock(&turn->mutex);
    struct turn_lane *lane = &turn->lanes[number];
    uint64_t ns = time_now_ns() - lane->begun_ns;
    if (act == ACT_F && ns > turn->longest_ns)
        turn->longest_ns = ns;
    lane->stored = turn_stored(lane->stored, act);
    if (turn_stored(1, act) < 1) {
        turn->in_vain = false;
        thread_wake_all(&turn->changed);
    }
    thread_unlock(&turn->mutex);
}

void turn_cancel(struct turn *turn, uint32_t lane, bool cancelled)
{
    thread_lock(&turn->mutex);
    turn->lanes[lane].cancelled = cancelled;
    thread_wake_all(&turn->changed);
    thread_unlock(&turn->mutex);
}
