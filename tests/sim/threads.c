/* common/thread.h and the clock for processes of the simulator: threads are fibers, waiting is an
 * event. */
#include "common/thread.h"

#include "common/time.h"
#include "tests/sim/fiber.h"
#include "tests/sim/sim.h"

#include <string.h>

enum { JOIN_TURNS_MAX = 10000000 };

struct sim_fiber {
    struct fiber *fiber;
    struct life *life;
    uint32_t index;    /* of the process' threads */
    uint64_t waits;    /* serial: which wait an event ends */
    bool shard;        /* it is shard thread … */
    uint32_t number;   /* … of that number */
    const void *cond;  /* it waits for that; NULL: it runs, is woken, or spends time */
    const void *holds; /* a mutex */
    void (*run)(void *);
    void *argument;
};

struct world world;
static const void *main_holds; /* a mutex, by an event's code */

/* ---- processes ---- */

struct life *life_new(struct sim *sim, struct place place, void (*end)(struct life *), void *owner)
{
    struct life *life = calloc(1, sizeof *life);
    check(life != NULL);
    life->sim = sim;
    life->place = place;
    life->end = end;
    life->owner = owner;
    return life;
}

void life_enter(struct life *life)
{
    check(world.thread == NULL && world.life == NULL);
    world.life = life;
}

void life_leave(void)
{
    check(world.thread == NULL && main_holds == NULL);
    world.life = NULL;
}

void life_end(struct life *life)
{
    life_enter(life);
    rpc_end(life);
    life->end(life);
    life_leave();
    check(life->thread_count == 0 && life->streams == NULL && life->channels == NULL);
    free(life);
}

void life_kill(struct life *life)
{
    check(!life->dead);
    life->dead = true;
    life->next = life->sim->dead;
    life->sim->dead = life;
}

void life_bury(struct sim *sim)
{
    while (sim->dead != NULL) {
        struct life *life = sim->dead;
        sim->dead = life->next;
        life_end(life);
    }
}

bool life_shard_thread(uint32_t *ret_index)
{
    if (world.thread == NULL || !world.thread->shard)
        return false;
    *ret_index = world.thread->number;
    return true;
}

/* ---- who runs ---- */

static void put_event(const struct sim_fiber *thread, uint64_t at_us)
{
    const struct life *life = thread->life;
    queue_put(&life->sim->queue,
              (struct event){.at_us = at_us,
                             .kind = EVENT_THREAD,
                             .index = life->place.index,
                             .number = thread->waits,
                             .detail = life->place.kind * LIFE_THREADS_MAX + thread->index});
}

/* It goes on soon: at once, or when the processor has time. */
static void wake(struct sim_fiber *thread)
{
    struct sim *sim = thread->life->sim;
    uint64_t soon_us = sim_below(sim, 8) == 0 ? 2 * sim->scenario.apply_us : 8;
    thread->cond = NULL;
    thread->waits = ++sim->waits;
    put_event(thread, sim->now_us + sim_below(sim, soon_us));
}

static void resume(struct sim_fiber *thread)
{
    struct life *before = world.life;
    check(world.thread == NULL);
    world.life = thread->life;
    world.thread = thread;
    fiber_resume(thread->fiber);
    world.thread = NULL;
    world.life = before;
}

struct place life_event_place(const struct event *event)
{
    return (struct place){(enum place_kind)(event->detail / LIFE_THREADS_MAX), event->index};
}

void life_event(struct sim *sim, const struct event *event)
{
    const struct life *life = process_life(sim, life_event_place(event));
    uint32_t index = event->detail % LIFE_THREADS_MAX;
    if (life == NULL || index >= life->thread_count || life->threads[index]->waits != event->number)
        return;
    resume(life->threads[index]);
}

void life_spend(uint64_t us)
{
    struct sim_fiber *thread = world.thread;
    if (!life_acts() || thread == NULL || thread->holds != NULL)
        return;
    thread->waits = ++world.sim->waits;
    put_event(thread, world.sim->now_us + us);
    fiber_wait();
}

/* ---- common/thread.h ---- */

static void begin(void *argument)
{
    const struct sim_fiber *thread = argument;
    thread->run(thread->argument);
}

enum err thread_start(struct thread *thread, const char *name, void (*run)(void *), void *argument)
{
    struct life *life = world.life;
    unsigned number = 0;
    check(life != NULL && life->thread_count < LIFE_THREADS_MAX);
    struct sim_fiber *started = calloc(1, sizeof *started);
    check(started != NULL);
    *thread = (struct thread){.run = run, .argument = argument};
    memcpy(&thread->id, &started, sizeof started);
    started->life = life;
    started->index = life->thread_count;
    started->shard = sscanf(name, "shard-%u", &number) == 1;
    started->number = number;
    started->run = run;
    started->argument = argument;
    started->fiber = fiber_new(begin, started);
    life->threads[life->thread_count++] = started;
    wake(started);
    return ERR_OK;
}

/* All go on by turns, as if woken for nothing, until that one has ended. */
void thread_join(struct thread *thread)
{
    struct life *life = world.life;
    struct sim_fiber *joined;
    memcpy(&joined, &thread->id, sizeof joined);
    check(world.thread == NULL);
    for (unsigned turn = 0; !fiber_ended(joined->fiber); turn++) {
        struct sim_fiber *next = life->threads[turn % life->thread_count];
        check(turn < JOIN_TURNS_MAX);
        if (fiber_ended(next->fiber))
            continue;
        next->cond = NULL;
        next->waits = ++life->sim->waits;
        resume(next);
    }
    fiber_free(joined->fiber);
    life->thread_count--;
    for (uint32_t i = joined->index; i < life->thread_count; i++) {
        life->threads[i] = life->threads[i + 1];
        life->threads[i]->index = i;
    }
    free(joined);
}

unsigned thread_core_count(void)
{
    return 1;
}

void thread_mutex_init(struct thread_mutex *mutex)
{
    (void)mutex;
}

void thread_mutex_release(struct thread_mutex *mutex)
{
    (void)mutex;
}

static const void **held(void)
{
    return world.thread != NULL ? &world.thread->holds : &main_holds;
}

/* Nobody waits while it holds one, so it is always free. */
void thread_lock(struct thread_mutex *mutex)
{
    check(*held() == NULL); /* never two at a time */
    *held() = mutex;
}

void thread_unlock(struct thread_mutex *mutex)
{
    check(*held() == mutex);
    *held() = NULL;
}

void thread_cond_init(struct thread_cond *cond)
{
    (void)cond;
}

void thread_cond_release(struct thread_cond *cond)
{
    (void)cond;
}

/* When the process' clock shows that. */
static uint64_t moment_us(const struct life *life, uint64_t moment_ns)
{
    uint64_t clock_us = process_of(life->sim, life->place)->clock_us;
    uint64_t at_us = moment_ns / 1000 + 1;
    at_us = at_us > clock_us ? at_us - clock_us : 0;
    return at_us > life->sim->now_us ? at_us : life->sim->now_us;
}

enum err thread_wait_locked(struct thread_cond *cond, struct thread_mutex *mutex,
                            uint64_t deadline_ns)
{
    struct sim_fiber *thread = world.thread;
    struct sim *sim = world.sim;
    check(thread != NULL);
    thread_unlock(mutex);
    thread->cond = cond;
    thread->waits = ++sim->waits;
    if (deadline_ns != TIME_NEVER && !thread->life->dead)
        put_event(thread, moment_us(thread->life, deadline_ns));
    fiber_wait();
    bool woken = thread->cond == NULL;
    thread->cond = NULL;
    thread_lock(mutex);
    return woken ? ERR_OK : ERR_DEADLINE;
}

static void wake_those(const struct thread_cond *cond, uint32_t count_max)
{
    const struct life *life = world.life;
    check(life != NULL);
    for (uint32_t i = 0; i < life->thread_count && count_max > 0; i++)
        if (life->threads[i]->cond == cond) {
            wake(life->threads[i]);
            count_max--;
        }
}

void thread_wake_one(struct thread_cond *cond)
{
    wake_those(cond, 1);
}

void thread_wake_all(struct thread_cond *cond)
{
    wake_those(cond, UINT32_MAX);
}

/* ---- the clock ---- */

uint64_t __real_time_now_ns(void);
uint64_t __wrap_time_now_ns(void);

uint64_t __wrap_time_now_ns(void)
{
    if (world.life == NULL)
        return __real_time_now_ns();
    return (world.sim->now_us + process_of(world.sim, world.life->place)->clock_us) * 1000 + 1;
}
