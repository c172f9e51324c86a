/* Whose act is next, of lanes that compute beside each other. */
#include "tests/unit/unit.h"

#include "common/thread.h"
#include "worker/turn.h"

enum { LANES = 3, TURNS = 200 };

/* Each lane's thread takes the turn again and again. */
struct turn_fixture {
    struct turn turn;
    struct lane {
        struct turn_fixture *f;
        uint32_t number;
        struct ticket ticket;
        struct thread thread;
    } lanes[LANES];
    uint32_t inside; /* who has the turn */
    uint32_t count;
    uint32_t order[LANES];
};

static void turn_set_up(struct turn_fixture *f)
{
    turn_init(&f->turn);
    for (uint32_t i = 0; i < LANES; i++)
        f->lanes[i] =
            (struct lane){.f = f, .number = i, .ticket = {.kind = TICKET_TRAIN, .step = LANES - i}};
}

static void turn_tear_down(struct turn_fixture *f)
{
    turn_release(&f->turn);
}

static void take_often(void *argument)
{
    struct lane *lane = argument;
    struct turn_fixture *f = lane->f;
    for (uint32_t i = 0; i < TURNS; i++) {
        turn_take(&f->turn, lane->number, &lane->ticket);
        check(f->inside++ == 0);
        f->inside--;
        turn_offer(&f->turn, lane->number);
        check(f->inside++ == 0);
        f->inside--;
        turn_give(&f->turn);
    }
}

static void take_once(void *argument)
{
    struct lane *lane = argument;
    turn_take(&lane->f->turn, lane->number, &lane->ticket);
    lane->f->order[lane->f->count++] = lane->number;
    turn_give(&lane->f->turn);
}

static bool all_want(struct turn *turn, uint32_t first)
{
    bool all = true;
    thread_lock(&turn->mutex);
    for (uint32_t i = first; i < LANES; i++)
        all = all && turn->lanes[i].wants;
    thread_unlock(&turn->mutex);
    return all;
}

static void start_from(struct turn_fixture *f, uint32_t first, void (*run)(void *))
{
    for (uint32_t i = first; i < LANES; i++)
        assert_int_equal(thread_start(&f->lanes[i].thread, "lane", run, &f->lanes[i]), ERR_OK);
}

static void join_from(struct turn_fixture *f, uint32_t first)
{
    for (uint32_t i = first; i < LANES; i++)
        thread_join(&f->lanes[i].thread);
}

TEST_F(one_lane_has_the_turn_at_a_time, turn)
{
    start_from(f, 0, take_often);
    join_from(f, 0);
}

/* The third lane has the lowest step. */
TEST_F(s9_the_oldest_ticket_comes_first, turn)
{
    turn_take(&f->turn, 0, &f->lanes[0].ticket);
    start_from(f, 1, take_once);
    while (!all_want(&f->turn, 1))
        ;
    turn_offer(&f->turn, 0); /* both are older */
    assert_int_equal(f->count, 2);
    assert_int_equal(f->order[0], 2);
    assert_int_equal(f->order[1], 1);
    turn_give(&f->turn);
    join_from(f, 1);
}
