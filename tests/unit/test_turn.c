/* Whose act is next, of lanes that compute beside each other. */
#include "tests/unit/unit.h"

#include "common/thread.h"
#include "common/time.h"
#include "worker/turn.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { LANES = 3, TURNS = 200 };

static const struct turn_room one = {1, 1};

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
    atomic_uint count;
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
        turn_begin(&f->turn, lane->number, &lane->ticket);
        for (uint32_t row = 0; row < 2; row++) {
            turn_begin_row(&f->turn, lane->number,
                           &(struct program_row){.act = row == 0 ? ACT_F : ACT_B}, one);
            check(f->inside++ == 0);
            f->inside--;
            turn_end_row(&f->turn, lane->number,
                         &(struct program_row){.act = row == 0 ? ACT_F : ACT_B});
        }
        turn_end(&f->turn, lane->number);
    }
}

static void take_once(void *argument)
{
    struct lane *lane = argument;
    turn_begin(&lane->f->turn, lane->number, &lane->ticket);
    lane->f->order[lane->f->count++] = lane->number;
    turn_end(&lane->f->turn, lane->number);
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

/* Two units, and 1F1B with one microbatch ahead. */
TEST(the_room_of_a_place)
{
    struct program_row rows[] = {{ACT_LOAD, 0, 0}, {ACT_F, 0, 0}, {ACT_F, 1, 0}, {ACT_SEND_F, 1, 0},
                                 {ACT_F, 0, 1},    {ACT_F, 1, 1}, {ACT_B, 1, 0}, {ACT_B, 0, 0},
                                 {ACT_F, 0, 2},    {ACT_F, 1, 2}};
    struct program_place places[4] = {
        [2] = {.rows = rows, .rows_count = sizeof rows / sizeof rows[0]},
        [0] = {.rows = rows, .rows_count = 8}, /* two microbatches alone */
    };
    const struct program program = {.places = places, .places_count = 4};
    struct mesh mesh = {.schedule = SCHEDULE_1F1B, .places = 4, .runs = 1};
    const struct turn_room room = turn_room(&mesh, &program, 2);
    assert_int_equal(room.most, 4);
    assert_int_equal(room.each, 2);
    assert_int_equal(turn_room(&mesh, &program, 0).most, 8);
    mesh.schedule = SCHEDULE_ZB_H1; /* beside what a ticket keeps, the next one's first */
    assert_int_equal(turn_room(&mesh, &program, 2).most, 6);
}

TEST_F(one_lane_has_the_turn_at_a_time, turn)
{
    start_from(f, 0, take_often);
    join_from(f, 0);
}

/* The third lane has the lowest step. */
TEST_F(s9_the_oldest_ticket_comes_first, turn)
{
    turn_begin(&f->turn, 0, &f->lanes[0].ticket);
    start_from(f, 1, take_once);
    while (!all_want(&f->turn, 1))
        ;
    turn_begin_row(&f->turn, 0, &(struct program_row){.act = ACT_B}, one); /* both are older */
    assert_int_equal(f->count, 2);
    assert_int_equal(f->order[0], 2);
    assert_int_equal(f->order[1], 1);
    turn_end(&f->turn, 0);
    join_from(f, 1);
}

/* The third lane has the turn for its backward while the first, which is younger, waits. */
static void forward(void *argument)
{
    struct lane *lane = argument;
    struct turn *turn = &lane->f->turn;
    turn_begin(turn, lane->number, &lane->ticket);
    turn->longest_ns = UINT64_C(3600000000000); /* patience for days */
    turn_begin_row(turn, lane->number, &(struct program_row){.act = ACT_F}, one);
    lane->f->order[lane->f->count++] = lane->number;
    turn_end_row(turn, lane->number, &(struct program_row){.act = ACT_F});
    turn_end(turn, lane->number);
}

/* The lane has begun its ticket, nobody has the turn, and it does not want it. */
static bool waits(struct turn *turn, uint32_t number)
{
    const struct turn_lane *lane = &turn->lanes[number];
    thread_lock(&turn->mutex);
    bool ret = lane->ticket != NULL && !lane->wants && !turn->taken;
    thread_unlock(&turn->mutex);
    return ret;
}

TEST_F(a_forward_waits_for_a_backward_of_the_oldest_ticket, turn)
{
    struct lane *oldest = &f->lanes[2], *younger = &f->lanes[0];
    turn_begin(&f->turn, 2, &oldest->ticket);
    turn_begin_row(&f->turn, 2, &(struct program_row){.act = ACT_F}, one);
    turn_end_row(&f->turn, 2,
                 &(struct program_row){.act = ACT_F}); /* as many activations as one ticket has */
    assert_int_equal(thread_start(&younger->thread, "lane", forward, younger), ERR_OK);
    turn_give(&f->turn, 2); /* it waits for its neighbour … */
    while (!waits(&f->turn, 0) && f->count == 0)
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    turn_take(&f->turn, 2);
    assert_int_equal(f->count, 0);
    turn_begin_row(&f->turn, 2, &(struct program_row){.act = ACT_B}, one);
    turn_end_row(&f->turn, 2, &(struct program_row){.act = ACT_B});
    turn_give(&f->turn, 2);
    thread_join(&younger->thread);
    assert_int_equal(f->count, 1);
    turn_take(&f->turn, 2);
    turn_end(&f->turn, 2);
}

/* S9: a wait in one lease never blocks another. */
TEST_F(s9_a_forward_waits_for_no_more_than_some_acts, turn)
{
    struct lane *oldest = &f->lanes[2], *younger = &f->lanes[0];
    turn_begin(&f->turn, 2, &oldest->ticket);
    turn_begin_row(&f->turn, 2, &(struct program_row){.act = ACT_F}, one);
    turn_end_row(&f->turn, 2, &(struct program_row){.act = ACT_F});
    turn_give(&f->turn, 2); /* for good */
    turn_begin(&f->turn, 0, &younger->ticket);
    turn_begin_row(&f->turn, 0, &(struct program_row){.act = ACT_F}, one);
    turn_end_row(&f->turn, 0, &(struct program_row){.act = ACT_F});
    turn_begin_row(&f->turn, 0, &(struct program_row){.act = ACT_F}, one);
    turn_end_row(&f->turn, 0, &(struct program_row){.act = ACT_F});
    assert_true(f->turn.in_vain); /* it did wait */
    turn_end(&f->turn, 0);
    turn_take(&f->turn, 2);
    turn_end(&f->turn, 2);
}

/* The third lane goes backward never. */
TEST_F(a_forward_of_a_cancelled_ticket_waits_for_nobody, turn)
{
    struct lane *oldest = &f->lanes[2], *younger = &f->lanes[0];
    turn_begin(&f->turn, 2, &oldest->ticket);
    turn_begin_row(&f->turn, 2, &(struct program_row){.act = ACT_F}, one);
    turn_end_row(&f->turn, 2, &(struct program_row){.act = ACT_F});
    assert_int_equal(thread_start(&younger->thread, "lane", forward, younger), ERR_OK);
    turn_give(&f->turn, 2);
    while (!waits(&f->turn, 0) && f->count == 0)
        sched_yield();
    turn_cancel(&f->turn, 0, true);
    thread_join(&younger->thread);
    assert_int_equal(f->count, 1);
    turn_cancel(&f->turn, 0, true); /* before it begins */
    assert_int_equal(thread_start(&younger->thread, "lane", forward, younger), ERR_OK);
    thread_join(&younger->thread);
    assert_int_equal(f->count, 2);
    turn_take(&f->turn, 2);
    turn_end(&f->turn, 2);
}

TEST_F(a_wait_inside_a_forward_makes_nobody_more_patient, turn)
{
    enum { AWAY_NS = 20000000 };
    const struct program_row row = {.act = ACT_F};
    turn_begin(&f->turn, 0, &f->lanes[0].ticket);
    uint64_t begun_ns = time_now_ns();
    turn_begin_row(&f->turn, 0, &row, one);
    turn_give(&f->turn, 0);
    nanosleep(&(struct timespec){.tv_nsec = AWAY_NS}, NULL);
    turn_take(&f->turn, 0);
    turn_end_row(&f->turn, 0, &row);
    assert_true(f->turn.longest_ns + AWAY_NS <= time_now_ns() - begun_ns);
    turn_end(&f->turn, 0);
}
