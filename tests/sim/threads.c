/* common/thread.h, common/signals.h, clocks and chance for processes of the simulator: threads are
 * fibers, waiting is an event. */
#include "common/thread.h"

#include "common/scene.h"
#include "common/signals.h"
#include "common/time.h"
#include "tests/sim/fiber.h"
#include "tests/sim/sim.h"

#include <signal.h>
#include <string.h>

enum { TURNS_MAX = 10000000 };
#define WALL_NS 1767225600000000000u /* 2026 begins */

struct sim_fiber {
    struct fiber *fiber;
    struct life *life;
    uint64_t waits;  /* serial: which wait an event ends */
    bool shard;      /* it is shard thread … */
    uint32_t number; /* … of that number */
    bool begun, ended;
    const void *cond;  /* it waits for that; NULL: it runs, is woken, or spends time */
    const void *holds; /* a mutex */
    struct scene *innermost;
    void (*run)(void *);
    void *argument;
};

struct world world;
static const void *main_holds; /* a mutex, by an event's code */

/* ---- processes ---- */

static void run_main(void *argument)
{
    struct life *life = argument;
    life->run(life);
}

static struct sim_fiber *start(struct life *life, const char *name, void (*run)(void *),
                               void *argument);

struct life *life_new(struct sim *sim, struct machine place, void (*run)(struct life *))
{
    struct life *life = calloc(1, sizeof *life);
    check(life != NULL);
    life->sim = sim;
    life->place = place;
    life->run = run;
    start(life, "main", run_main, life);
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

void life_signal(struct life *life, int number)
{
    if (life->signalled == NULL)
        return;
    life_enter(life);
    life->signalled(life->signalled_owner, number);
    life_leave();
}

static void wake(struct sim_fiber *thread);

void life_wake(struct life *life)
{
    for (uint32_t i = 0; i < life->thread_count; i++)
        if (life->threads[i]->cond != NULL)
            wake(life->threads[i]);
}

static void drop_thread(struct life *life, struct sim_fiber *thread)
{
    uint32_t i = 0;
    while (life->threads[i] != thread)
        i++;
    life->threads[i] = life->threads[--life->thread_count];
    fiber_free(thread->fiber);
    free(thread);
}

bool life_ended(const struct life *life)
{
    return life->threads[0]->ended;
}

void life_free(struct life *life)
{
    check(life->thread_count == 1 && life->streams == NULL && life->channels == NULL &&
          life->requests == NULL);
    drop_thread(life, life->threads[0]);
    free(life);
}

void life_kill(struct life *life)
{
    check(!life->dead);
    life->dead = true;
    life->next = life->sim->dead;
    life->sim->dead = life;
}

static void resume(struct sim_fiber *thread);

/* All threads go on by turns, as if woken for nothing, until the process has ended as it is told to
 * with its second signal. */
static void run_to_end(struct life *life)
{
    bool told = false;
    for (unsigned turn = 0; !life_ended(life); turn++) {
        struct sim_fiber *next = life->threads[turn % life->thread_count];
        check(turn < TURNS_MAX);
        if (!told && life->signalled != NULL) {
            life_signal(life, SIGTERM);
            life_signal(life, SIGTERM);
            told = true;
        }
        if (next->ended)
            continue;
        next->cond = NULL;
        next->waits = ++life->sim->waits;
        resume(next);
    }
}

void life_bury(struct sim *sim)
{
    while (sim->dead != NULL) {
        struct life *life = sim->dead;
        sim->dead = life->next;
        if (life->threads[0]->begun)
            run_to_end(life);
        life_free(life);
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
    queue_put(&life->sim->queue, (struct event){.at_us = at_us,
                                                .kind = EVENT_THREAD,
                                                .index = life->place.index,
                                                .number = thread->waits,
                                                .detail = life->place.kind});
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

struct machine life_event_place(const struct event *event)
{
    return (struct machine){(enum machine_kind)event->detail, event->index};
}

void life_event(struct sim *sim, const struct event *event)
{
    struct life *life = process_life(sim, life_event_place(event));
    uint32_t i = 0;
    while (life != NULL && i < life->thread_count && life->threads[i]->waits != event->number)
        i++;
    if (life == NULL || i == life->thread_count)
        return; /* it waits for something else by now */
    resume(life->threads[i]);
    if (!life->dead && life_ended(life))
        sim_daemon_ended(sim, life->place);
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

static void wake_those(const void *cond, uint32_t count_max);

static void begin(void *argument)
{
    struct sim_fiber *thread = argument;
    thread->begun = true;
    thread->run(thread->argument);
    thread->ended = true;
    wake_those(thread, 1); /* who joins it */
}

static struct sim_fiber *start(struct life *life, const char *name, void (*run)(void *),
                               void *argument)
{
    unsigned number = 0;
    struct sim_fiber *started = calloc(1, sizeof *started);
    check(started != NULL && life->thread_count < LIFE_THREADS_MAX);
    started->life = life;
    started->shard = sscanf(name, "shard-%u", &number) == 1;
    started->number = number;
    started->run = run;
    started->argument = argument;
    started->fiber = fiber_new(begin, started);
    life->threads[life->thread_count++] = started;
    wake(started);
    return started;
}

enum err thread_start(struct thread *thread, const char *name, void (*run)(void *), void *argument)
{
    check(world.life != NULL);
    struct sim_fiber *started = start(world.life, name, run, argument);
    *thread = (struct thread){.run = run, .argument = argument};
    memcpy(&thread->id, &started, sizeof started);
    return ERR_OK;
}

void thread_end_process(int status)
{
    (void)status;
    if (!world.life->dead)
        sim_daemon_failed(world.sim, world.life->place);
}

void thread_join(struct thread *thread)
{
    struct sim_fiber *joined, *self = world.thread;
    memcpy(&joined, &thread->id, sizeof joined);
    check(self != NULL && self->holds == NULL);
    while (!joined->ended) {
        self->cond = joined;
        self->waits = ++world.sim->waits;
        fiber_wait();
    }
    drop_thread(self->life, joined);
}

bool thread_is_current(const struct thread *thread)
{
    const struct sim_fiber *started;
    memcpy(&started, &thread->id, sizeof started);
    return started == world.thread;
}

void thread_lower_priority(enum thread_share share)
{
    (void)share;
}

void thread_rest(uint64_t ns)
{
    (void)ns;
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

static void wake_those(const void *cond, uint32_t count_max)
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

/* ---- common/scene.h: each thread has its own, and nothing is remembered ---- */

static struct scene *main_innermost; /* of an event's code */

static struct scene **innermost(void)
{
    return world.thread != NULL ? &world.thread->innermost : &main_innermost;
}

void scene_enter(struct scene *scene)
{
    scene->outer = *innermost();
    *innermost() = scene;
}

void scene_leave(struct scene *scene)
{
    *innermost() = scene->outer;
}

void scene_remember(struct scene_memory *memory)
{
    (void)memory;
}

void check_print(void)
{
    char text[SCENE_TEXT_BYTES] = "";
    for (const struct scene *scene = *innermost(); scene != NULL; scene = scene->outer) {
        if (scene->describe != NULL)
            scene->describe(scene->object, text, sizeof text);
        fprintf(stderr, "event=\"%s\" number=%llu state=\"%s\"\n", scene->event,
                (unsigned long long)scene->number, text);
    }
}

void check_end(void)
{
}

/* ---- common/signals.h ---- */

enum err signals_start(struct signals *signals, void (*said)(void *owner, int number), void *owner)
{
    (void)signals;
    world.life->signalled = said;
    world.life->signalled_owner = owner;
    return ERR_OK;
}

void signals_stop(struct signals *signals)
{
    (void)signals;
    world.life->signalled = NULL;
}

void signals_exit_after(uint32_t ms)
{
    struct life *life = world.life;
    if (!life_acts())
        return;
    life->exits = ++life->sim->waits;
    uint64_t after_us = ((uint64_t)ms + 999) / 1000 * 1000000;
    queue_put(&life->sim->queue, (struct event){.at_us = life->sim->now_us + after_us,
                                                .kind = EVENT_PROCESS_EXIT,
                                                .index = life->place.index,
                                                .number = life->exits,
                                                .detail = life->place.kind});
}

void life_exit(struct sim *sim, const struct event *event)
{
    const struct life *life = process_life(sim, life_event_place(event));
    if (life != NULL && life->exits == event->number)
        sim_daemon_failed(sim, life->place);
}

/* ---- clocks and chance ---- */

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

REAL(uint64_t, time_now_ns, void);
REAL(uint64_t, time_wall_ns, void);
REAL(double, time_wall_s, void);
REAL(enum err, rand_system, void *bytes, size_t count);

uint64_t __wrap_time_now_ns(void)
{
    if (world.life == NULL)
        return __real_time_now_ns();
    return (world.sim->now_us + process_of(world.sim, world.life->place)->clock_us) * 1000 + 1;
}

uint64_t __wrap_time_wall_ns(void)
{
    return world.life == NULL ? __real_time_wall_ns() : WALL_NS + world.sim->now_us * 1000;
}

double __wrap_time_wall_s(void)
{
    return world.life == NULL ? __real_time_wall_s() : (double)__wrap_time_wall_ns() / 1e9;
}

enum err __wrap_rand_system(void *bytes, size_t count)
{
    if (world.life == NULL)
        return __real_rand_system(bytes, count);
    /* Keys have a stream of their own: what a seed plans does not depend on them. */
    struct rand_state *random = count > sizeof(uint64_t) ? &world.sim->keys : &world.sim->random;
    for (size_t i = 0; i < count; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)rand_below(random, 256);
    return ERR_OK;
}
