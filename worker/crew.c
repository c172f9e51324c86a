/* A thread for each device behind the first, and how far each is. */
#include "worker/crew.h"

#include "common/thread.h"
#include "common/time.h"

#include <stdlib.h>
#include <string.h>

struct crew_part {
    struct crew *crew;
    uint32_t number;
    struct thread thread; /* not of the first, which is crew_run()'s */
    struct ticket ticket;
};

struct crew {
    struct crew_options options;
    uint32_t started;
    struct crew_part parts[CREW_DEVICES_MAX];
    struct ticket ticket; /* this and the next two: of the ticket that is computed */
    struct executor_hooks hooks;
    uint32_t used;             /* parts that it has */
    struct thread_mutex mutex; /* guards the rest */
    struct thread_cond changed;
    uint64_t turn; /* rises with each ticket */
    bool stopping;
    enum err err;      /* the first part's that failed */
    uint32_t running;  /* parts behind the first */
    bool *pulled;      /* by unit: its weights are in place */
    uint32_t *through; /* by unit: so many parts have its gradients */
};

/* ---- the hooks of a part ---- */

static void fail_locked(struct crew *crew, enum err err)
{
    if (crew->err == ERR_OK)
        crew->err = err;
    thread_wake_all(&crew->changed);
}

/* A CPU's executors use one copy of the weights: wherever the first one's lie. */
static void point_others(struct crew *crew, uint32_t unit)
{
    const struct model *model = crew->options.model;
    struct executor *const *executors = crew->options.executors;
    const struct model_unit *about = &model->units[unit];
    for (uint32_t use = about->use_first; use < about->use_first + about->uses_count; use++) {
        uint32_t parameter = model->uses[use].parameter;
        for (uint32_t i = 1; i < crew->used && parameter != model->loss_parameter; i++)
            if (executor_may_point(executors[i]))
                executor_point(executors[i], parameter, executor_weights(executors[0], parameter));
    }
}

static enum err pull_first(struct crew *crew, uint32_t unit)
{
    enum err err = ERR_OK;
    if (crew->hooks.pull != NULL)
        err = crew->hooks.pull(crew->hooks.context, unit);
    if (err == ERR_OK)
        point_others(crew, unit);
    thread_lock(&crew->mutex);
    if (err != ERR_OK)
        fail_locked(crew, err);
    crew->pulled[unit] = true;
    thread_wake_all(&crew->changed);
    thread_unlock(&crew->mutex);
    return err;
}

static enum err part_pull(void *context, uint32_t unit)
{
    struct crew_part *part = context;
    struct crew *crew = part->crew;
    if (part->number == 0)
        return pull_first(crew, unit);
    thread_lock(&crew->mutex);
    while (!crew->pulled[unit] && crew->err == ERR_OK)
        ignore(thread_wait_locked(&crew->changed, &crew->mutex, TIME_NEVER)); /* looks */
    enum err err = crew->err == ERR_OK ? ERR_OK : ERR_CANCELLED;
    thread_unlock(&crew->mutex);
    return err;
}

/* As the tree has them: (0 + 1) + (2 + 3). */
static void add_all(const struct crew_part *part, uint32_t unit)
{
    const struct crew *crew = part->crew;
    const struct crew_options *options = &crew->options;
    options->lock.take(options->lock.context);
    for (uint32_t step = 1; step < crew->used; step *= 2)
        for (uint32_t i = 0; i + step < crew->used; i += 2 * step)
            executor_add(options->executors[i], options->executors[i + step], unit);
    options->lock.give(options->lock.context);
    executor_use(options->executors[part->number]);
}

/* The last part that is through with a unit adds its gradients. The unit that follows it cannot be
 * finished by all before that. */
static enum err part_push(void *context, uint32_t unit, struct node node)
{
    const struct crew_part *part = context;
    struct crew *crew = part->crew;
    (void)node; /* the part's own */
    thread_lock(&crew->mutex);
    bool last = ++crew->through[unit] == crew->used;
    enum err err = crew->err == ERR_OK ? ERR_OK : ERR_CANCELLED;
    thread_unlock(&crew->mutex);
    if (!last || err != ERR_OK)
        return err;
    add_all(part, unit);
    return crew->hooks.push == NULL
               ? ERR_OK
               : crew->hooks.push(crew->hooks.context, unit, crew->ticket.node);
}

static bool part_cancelled(void *context)
{
    const struct crew_part *part = context;
    struct crew *crew = part->crew;
    thread_lock(&crew->mutex);
    bool failed = crew->err != ERR_OK;
    thread_unlock(&crew->mutex);
    return failed || (crew->hooks.cancelled != NULL && crew->hooks.cancelled(crew->hooks.context));
}

/* The first device's rows are those that are measured. */
static void part_row_begins(void *context, const struct program_row *row)
{
    const struct crew_part *part = context;
    part->crew->hooks.row_begins(part->crew->hooks.context, row);
}

static void part_row_ends(void *context, const struct program_row *row)
{
    const struct crew_part *part = context;
    part->crew->hooks.row_ends(part->crew->hooks.context, row);
}

static void run_part(struct crew_part *part)
{
    struct crew *crew = part->crew;
    const struct executor_hooks *hooks = &crew->hooks;
    bool measured = part->number == 0;
    const struct executor_hooks own = {
        .context = part,
        .pull = part_pull,
        .push = part_push,
        .cancelled = part_cancelled,
        .row_begins = measured && hooks->row_begins != NULL ? part_row_begins : NULL,
        .row_ends = measured && hooks->row_ends != NULL ? part_row_ends : NULL,
    };
    enum err err = executor_run(crew->options.executors[part->number], &part->ticket,
                                &crew->options.samples[part->number], &own, NULL);
    thread_lock(&crew->mutex);
    if (err != ERR_OK)
        fail_locked(crew, err);
    thread_unlock(&crew->mutex);
}

/* ---- the threads ---- */

/* Waits for a ticket that the part has a share of. False: the crew ends. */
static bool next_turn(const struct crew_part *part, uint64_t *turn)
{
    struct crew *crew = part->crew;
    bool mine = false;
    thread_lock(&crew->mutex);
    while (!crew->stopping && !mine) {
        if (crew->turn == *turn)
            ignore(thread_wait_locked(&crew->changed, &crew->mutex, TIME_NEVER)); /* looks */
        mine = crew->turn != *turn && part->number < crew->used;
        *turn = crew->turn;
    }
    thread_unlock(&crew->mutex);
    return mine;
}

static void compute_parts(void *argument)
{
    struct crew_part *part = argument;
    struct crew *crew = part->crew;
    uint64_t turn = 0;
    while (next_turn(part, &turn)) {
        run_part(part);
        thread_lock(&crew->mutex);
        crew->running--;
        thread_wake_all(&crew->changed);
        thread_unlock(&crew->mutex);
    }
}

void crew_free(struct crew *crew)
{
    if (crew == NULL)
        return;
    thread_lock(&crew->mutex);
    crew->stopping = true;
    thread_wake_all(&crew->changed);
    thread_unlock(&crew->mutex);
    for (uint32_t i = 1; i < crew->started; i++)
        thread_join(&crew->parts[i].thread);
    free(crew->pulled);
    free(crew->through);
    thread_cond_release(&crew->changed);
    thread_mutex_release(&crew->mutex);
    free(crew);
}

static enum err start(struct crew *crew)
{
    const struct crew_options *options = &crew->options;
    crew->pulled = calloc(options->model->units_count, sizeof *crew->pulled);
    crew->through = calloc(options->model->units_count, sizeof *crew->through);
    if (crew->pulled == NULL || crew->through == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < options->count; i++) {
        char name[16];
        struct crew_part *part = &crew->parts[i];
        part->crew = crew;
        part->number = i;
        snprintf(name, sizeof name, "device %u", i);
        if (i > 0)
            TRY(thread_start(&part->thread, name, compute_parts, part));
        crew->started++;
    }
    return ERR_OK;
}

enum err crew_new(const struct crew_options *options, struct crew **ret_crew)
{
    check(options->count >= 2 && options->count <= CREW_DEVICES_MAX);
    struct crew *crew = calloc(1, sizeof *crew);
    if (crew == NULL)
        return ERR_NOMEM;
    crew->options = *options;
    thread_mutex_init(&crew->mutex);
    thread_cond_init(&crew->changed);
    enum err err = start(crew);
    if (err == ERR_OK)
        *ret_crew = crew;
    else
        crew_free(crew);
    return err;
}

/* ---- a ticket ---- */

/* How often a node of that level is halved. */
static uint32_t halvings(uint32_t devices, uint32_t node_level)
{
    uint32_t count = 0;
    while (count < node_level && UINT32_C(2) << count <= devices)
        count++;
    return count;
}

uint32_t crew_devices(uint32_t devices, uint32_t node_slots_max)
{
    return UINT32_C(1) << halvings(devices, tree_level(node_slots_max));
}

uint32_t crew_part_slots(uint32_t devices, uint32_t node_slots_max)
{
    uint32_t level = tree_level(node_slots_max);
    uint32_t slots = UINT32_C(1) << (level - halvings(devices, level));
    return slots < node_slots_max ? slots : node_slots_max;
}

/* The node's descendants, one a part: as many as there are devices, and slots. A step's last nodes
 * have fewer. */
static uint32_t cut(struct crew *crew, const struct ticket *ticket)
{
    uint32_t level = halvings(crew->options.count, ticket->node.level), used = 0;
    for (uint32_t i = 0; i < UINT32_C(1) << level; i++) {
        const struct node node = {ticket->node.level - level, (ticket->node.index << level) + i};
        if (node_slots(node, crew->options.slots) == 0)
            break;
        crew->parts[used].ticket = *ticket;
        crew->parts[used++].ticket.node = node;
    }
    return used;
}

/* The first device comes first: it waits for the others' gradients. What they were given since, to
 * add it, was given to it as well. */
enum err crew_encoded(const struct crew *crew)
{
    enum err err = ERR_OK;
    for (uint32_t i = 0; i < crew->used; i++)
        if (executor_encoded(crew->options.executors[i]) != ERR_OK)
            err = ERR_IO;
    return err;
}

const char *crew_encode_failure(const struct crew *crew)
{
    const char *failure = "";
    for (uint32_t i = 0; i < crew->used && failure[0] == 0; i++)
        failure = executor_encode_failure(crew->options.executors[i]);
    return failure;
}

/* What was given to the devices is done, cancelled work too: the next ticket writes there. */
static enum err settle(const struct crew *crew)
{
    const struct crew_options *options = &crew->options;
    options->lock.take(options->lock.context);
    enum err err = crew_encoded(crew);
    options->lock.give(options->lock.context);
    executor_use(options->executors[0]);
    return err;
}

enum err crew_run(struct crew *crew, const struct ticket *ticket,
                  const struct executor_hooks *hooks, struct executor_loss *ret_loss)
{
    uint32_t units = crew->options.model->units_count;
    thread_lock(&crew->mutex);
    crew->ticket = *ticket;
    crew->hooks = *hooks;
    crew->used = cut(crew, ticket);
    crew->running = crew->used > 0 ? crew->used - 1 : 0;
    crew->err = ERR_OK;
    memset(crew->pulled, 0, units * sizeof *crew->pulled);
    memset(crew->through, 0, units * sizeof *crew->through);
    crew->turn++;
    thread_wake_all(&crew->changed);
    thread_unlock(&crew->mutex);
    if (crew->used == 0)
        return ERR_MALFORMED; /* no node of the run's */
    run_part(&crew->parts[0]);
    thread_lock(&crew->mutex);
    while (crew->running > 0)
        ignore(thread_wait_locked(&crew->changed, &crew->mutex, TIME_NEVER)); /* looks */
    enum err err = crew->err;
    thread_unlock(&crew->mutex);
    enum err settled = settle(crew);
    err = err == ERR_OK ? settled : err;
    if (err == ERR_OK) /* of all: they were added */
        err = executor_node_loss(crew->options.executors[0], ret_loss);
    return err;
}
