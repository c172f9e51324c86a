#include "tests/sim/story.h"

#include "common/buf.h"
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <string.h>

enum {
    STORY_BYTES_MAX = 1 << 16,
    STORY_RULES_MAX = 16,
    STORY_LINE_BYTES = 320,
    NEVER_PERCENT = 1000000, /* of the usual time: no second attempts */
    DELAY_US = 1000,
    COMPUTE_US = 20000,
    STAGGER_US = 7000, /* each worker takes so much longer than the one before it, … */
    START_MS = 5,      /* … and starts so much later */
};

/* When the sentence is told, the deed follows. */
struct rule {
    char when[STORY_LINE_BYTES];
    char then[STORY_LINE_BYTES];
    bool met, done;
};

struct story {
    struct buf head;              /* the file up to the end of its plan */
    struct buf told;              /* lines, each with its end */
    char first[STORY_LINE_BYTES]; /* "": all are printed */
    size_t first_at;              /* where it is; SIZE_MAX: not told yet */
    size_t chapter_at;            /* what was told since is not told again */
    bool over;                    /* the run is: nothing is told any more */
    uint32_t servers, workers, stages, steps, slots, checkpoint_every, second_percent;
    bool async;
    uint32_t slow[SIM_WORKERS_MAX]; /* 0: not */
    bool wrong[SIM_WORKERS_MAX];
    uint32_t rule_count;
    struct rule rules[STORY_RULES_MAX];
};

/* ---- the plan ---- */

static bool take_number(const char *value, uint32_t *ret_number)
{
    return sscanf(value, "%u", ret_number) == 1;
}

static bool take_slow(struct story *story, const char *value)
{
    unsigned worker, times;
    bool right = sscanf(value, "w%u %u", &worker, &times) == 2 && worker < SIM_WORKERS_MAX;
    if (right)
        story->slow[worker] = times;
    return right;
}

static bool take_when(struct story *story, const char *value)
{
    if (story->rule_count == STORY_RULES_MAX)
        return false;
    snprintf(story->rules[story->rule_count++].when, STORY_LINE_BYTES, "%s", value);
    return true;
}

/* A second `then` of one `when` is a rule of its own. */
static bool take_then(struct story *story, const char *value)
{
    if (story->rule_count == 0)
        return false;
    struct rule *rule = &story->rules[story->rule_count - 1];
    if (rule->then[0] != 0) {
        char when[STORY_LINE_BYTES];
        memcpy(when, rule->when, sizeof when);
        if (!take_when(story, when))
            return false;
        rule++;
    }
    snprintf(rule->then, sizeof rule->then, "%s", value);
    return true;
}

static bool take(struct story *story, const char *key, const char *value)
{
    const struct {
        const char *key;
        uint32_t *number;
    } numbers[] = {{"servers", &story->servers},
                   {"workers", &story->workers},
                   {"stages", &story->stages},
                   {"steps", &story->steps},
                   {"slots", &story->slots},
                   {"checkpoint every", &story->checkpoint_every},
                   {"second attempt after", &story->second_percent}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].key) == 0)
            return take_number(value, numbers[i].number);
    if (strcmp(key, "consistency") == 0)
        return story->async = strcmp(value, "async") == 0;
    if (strcmp(key, "slow") == 0)
        return take_slow(story, value);
    if (strcmp(key, "when") == 0)
        return take_when(story, value);
    if (strcmp(key, "then") == 0)
        return take_then(story, value);
    if (strcmp(key, "told from") != 0)
        return false;
    snprintf(story->first, sizeof story->first, "%s", value);
    story->first_at = SIZE_MAX;
    return true;
}

static bool is_possible(const struct story *story)
{
    return story->servers > 0 && story->servers <= SIM_SERVERS_FIRST && story->workers > 0 &&
           story->workers <= SIM_WORKERS_MAX && story->stages > 0 &&
           story->stages <= 3 /* the toy model's units */ && story->steps > 0 &&
           story->steps <= SIM_STEPS_MAX && story->slots > 0 && story->slots <= SIM_SLOTS_MAX;
}

/* The first line, then the plan, which ends before the second empty line. */
static bool parse(struct story *story, struct slice text)
{
    const char *at = (const char *)text.data, *end = at + text.bytes;
    for (int empty = 0; at < end && empty < 2;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        char line[STORY_LINE_BYTES] = "", *colon;
        if (newline == NULL || (size_t)(newline - at) >= sizeof line)
            return false;
        memcpy(line, at, (size_t)(newline - at));
        at = newline + 1;
        empty += line[0] == 0;
        if (line[0] != ' ')
            continue;
        colon = strstr(line, ": ");
        if (colon == NULL)
            return false;
        *colon = 0;
        if (!take(story, line + strspn(line, " "), colon + 2))
            return false;
    }
    for (uint32_t i = 0; i < story->workers; i++) {
        char then[STORY_LINE_BYTES];
        snprintf(then, sizeof then, "after %u ms: w%u starts", i * START_MS, i);
        if (!take_when(story, "the cut of version 0 is recorded") || !take_then(story, then))
            return false;
    }
    size_t bytes = (size_t)(at - (const char *)text.data);
    return buf_append(&story->head, text.data, bytes) == ERR_OK && is_possible(story);
}

/* Of the machine, not of the disks here (disk.h). */
static bool read_file(const char *path, struct buf *text)
{
    char block[4096];
    size_t count = 0;
    FILE *file = fopen(path, "r");
    while (file != NULL && text->bytes < STORY_BYTES_MAX &&
           (count = fread(block, 1, sizeof block, file)) > 0)
        check(buf_append(text, block, count) == ERR_OK);
    bool whole = file != NULL && count == 0 && ferror(file) == 0;
    if (file != NULL)
        fclose(file);
    return whole;
}

struct story *story_read(const char *path)
{
    struct buf text = {0};
    struct story *story = calloc(1, sizeof *story);
    check(story != NULL);
    story->second_percent = NEVER_PERCENT;
    story->stages = 1;
    bool read = read_file(path, &text) && parse(story, buf_slice(&text));
    buf_release(&text);
    if (read)
        return story;
    fprintf(stderr, "sim: %s is no story\n", path);
    story_free(story);
    return NULL;
}

void story_free(struct story *story)
{
    if (story == NULL)
        return;
    buf_release(&story->head);
    buf_release(&story->told);
    free(story);
}

void story_scenario(const struct story *story, struct scenario *ret_scenario)
{
    scenario_init(ret_scenario, 1);
    struct spec *spec = &ret_scenario->spec;
    spec->train = (struct spec_train){.steps = story->steps,
                                      .slots = story->slots,
                                      .slot_samples = 2,
                                      .microbatch = 1,
                                      .seed = 1,
                                      .threads = 1,
                                      .logits_bytes_max = 1 << 20,
                                      .precision = SPEC_FP32,
                                      .node_slots = 1};
    spec->mesh = (struct spec_mesh){
        .stages = story->stages, .ranks = 1, .schedule = SCHEDULE_1F1B, .runs = 1};
    spec->consistency = (struct spec_consistency){.kind = SPEC_SYNC};
    spec->optimizer = (struct spec_optimizer){.kind = SPEC_SGD, .lr = 0.01};
    spec->checkpoint.every_steps = story->checkpoint_every;
    spec->checkpoint.keep = 2;
    spec->checkpoint.durability = SPEC_DURABILITY_CUT;
    if (story->async) {
        spec->consistency.kind = SPEC_ASYNC;
        spec->consistency.staleness_max = 16;
        spec->consistency.window = 2 * story->slots;
        spec->checkpoint.durability = SPEC_DURABILITY_LOGGED;
    }
    *ret_scenario = (struct scenario){
        .seed = 1,
        .spec = *spec,
        .model = SCENARIO_TOY,
        .servers = story->servers,
        .threads = 1,
        .parameter_bytes_max = UINT64_MAX,
        .office = {.heartbeat_ms = 250,
                   .lease_ms = 1000,
                   .speculation_percent = story->second_percent,
                   .stop_ms = 30000},
        .ahead_max = story->slots,
        .parked_member_bytes_max = 1 << 20,
        .snapshot_copies = 4,
        .delay_us = DELAY_US,
        .compute_us = COMPUTE_US,
        .apply_us = 2,
        .write_us = 1000,
        .calm_us = UINT64_C(3600) * 1000000,
    };
}

bool story_print(const struct story *story)
{
    bool whole = story->first_at < story->told.bytes;
    if (!whole)
        fprintf(stderr, "sim: this was never told: %s\n", story->first);
    for (uint32_t i = 0; i < story->rule_count; i++)
        if (!story->rules[i].done) {
            fprintf(stderr, "sim: this was never told: %s\n", story->rules[i].when);
            whole = false;
        }
    fwrite(story->head.data, 1, story->head.bytes, stdout);
    if (story->first_at < story->told.bytes)
        fwrite(story->told.data + story->first_at, 1, story->told.bytes - story->first_at, stdout);
    return whole;
}

uint64_t story_compute_us(const struct sim *sim, uint32_t worker)
{
    const struct story *story = sim->options.story;
    uint64_t usual_us = sim->scenario.compute_us;
    if (story == NULL)
        return usual_us;
    usual_us += (uint64_t)worker * STAGGER_US;
    return story->slow[worker] > 0 ? usual_us * story->slow[worker] : usual_us;
}

bool story_is_wrong(const struct sim *sim, uint32_t worker)
{
    return sim->options.story != NULL && sim->options.story->wrong[worker];
}

/* ---- telling ---- */

static bool was_told(const struct story *story, const char *line)
{
    size_t length = strlen(line);
    const char *at = (const char *)story->told.data + story->chapter_at;
    const char *end = (const char *)story->told.data + story->told.bytes;
    for (; at < end; at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1)
        if ((size_t)(end - at) > length && memcmp(at, line, length) == 0 && at[length] == '\n')
            return true;
    return false;
}

static void add_line(struct story *story, const char *before, const char *line)
{
    check(buf_append(&story->told, before, strlen(before)) == ERR_OK &&
          buf_append(&story->told, line, strlen(line)) == ERR_OK &&
          buf_append(&story->told, "\n", 1) == ERR_OK);
}

static void tell(struct story *story, const char *line)
{
    if (story->over)
        return;
    if (story->first_at == SIZE_MAX && strcmp(line, story->first) == 0)
        story->first_at = story->told.bytes;
    add_line(story, "", line);
    for (uint32_t i = 0; i < story->rule_count; i++)
        if (strcmp(story->rules[i].when, line) == 0)
            story->rules[i].met = true;
}

void story_tell(struct sim *sim, const char *format, ...)
{
    char line[STORY_LINE_BYTES];
    va_list arguments;
    if (sim->options.story == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    tell(sim->options.story, line);
}

void story_tell_once(struct sim *sim, const char *format, ...)
{
    char line[STORY_LINE_BYTES];
    va_list arguments;
    if (sim->options.story == NULL)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (!was_told(sim->options.story, line))
        tell(sim->options.story, line);
}

void story_chapter(struct sim *sim)
{
    if (sim->options.story != NULL)
        sim->options.story->chapter_at = sim->options.story->told.bytes;
}

void story_over(struct sim *sim)
{
    story_tell(sim, "the run is over, and its last cut is what one process alone comes to");
    if (sim->options.story == NULL)
        return;
    story_tell(sim, "its last step has the loss %.6f, its state the digest %.16s", sim->ledger.loss,
               ledger_digest(sim).text);
    sim->options.story->over = true;
}

/* The value of a key in a line of the log, without quotes; "": it is not there, or there is no key.
 */
static const char *value_of(const char *line, const char *key, char *ret_value, size_t bytes)
{
    const char *at = key[0] != 0 ? strstr(line, key) : NULL;
    ret_value[0] = 0;
    if (at == NULL)
        return ret_value;
    at += strlen(key);
    bool quoted = *at == '"';
    at += quoted;
    snprintf(ret_value, bytes, "%.*s", (int)strcspn(at, quoted ? "\"" : " "), at);
    return ret_value;
}

void story_log(struct sim *sim, const char *teller, const char *line)
{
    static const struct {
        const char *event; /* how the line begins */
        const char *says, *key, *rest, *second_key;
    } told[] = {
        {"server connected", "hears hello from ", " server=", "", ""},
        {"server lost  ", "has lost its link to ", " server=", "", ""},
        {"server lost its memory", "learns that ", " server=", " has lost its memory", ""},
        {"server joins", "will move chunks to ", " server=", "", ""},
        {"server drains", "will move the chunks of ", " server=", " to others", ""},
        {"server drained", "does not need ", " server=", " any more", ""},
        {"worker joined", "takes ", " worker=", " as a member", ""},
        {"worker gone", "drops ", " worker=", " from its members: ", " state="},
        {"join refused", "refuses ", " worker=", ": ", " err="},
        {"leases lapsed", "takes back the tickets that nobody completed", "", "", ""},
        {"bits differ", "learns that ", " worker=", " brought other bits than ", " counted="},
        {"coordinator cannot adopt", "cannot go on there: ", " reason=", "", ""},
        {"run stops", "stops the run", "", "", ""},
    };
    char first[STORY_LINE_BYTES], second[STORY_LINE_BYTES];
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        if (strncmp(line, told[i].event, strlen(told[i].event)) == 0)
            story_tell(sim, "%s %s%s%s%s", teller, told[i].says,
                       value_of(line, told[i].key, first, sizeof first), told[i].rest,
                       value_of(line, told[i].second_key, second, sizeof second));
}

/* ---- doing ---- */

/* "w1", "s0", "c0". */
static bool parse_place(const char *name, struct machine *ret_place)
{
    static const char letters[] = "wsc";
    static const uint32_t counts[] = {SIM_WORKERS_MAX, SIM_SERVERS_MAX, SIM_COORDINATORS};
    const char *letter = name[0] != 0 ? strchr(letters, name[0]) : NULL;
    if (letter == NULL || sscanf(name + 1, "%u", &ret_place->index) != 1)
        return false;
    ret_place->kind = (enum machine_kind)(letter - letters);
    return ret_place->index < counts[ret_place->kind];
}

/* A worker that vanishes with its machine closes no streams. */
static void kill_place(struct sim *sim, struct machine place, bool vanishes)
{
    if (place.kind == MACHINE_WORKER)
        sim_worker_kill(sim, &sim->workers[place.index], vanishes);
    else if (place.kind == MACHINE_SERVER)
        sim_server_crash(sim, &sim->servers[place.index]);
    else
        sim_coordinator_crash(sim, &sim->coordinators[place.index]);
}

static void start_place(struct sim *sim, struct machine place)
{
    if (place.kind == MACHINE_WORKER)
        sim_worker_start(sim, &sim->workers[place.index]);
    else if (place.kind == MACHINE_SERVER)
        sim_server_start(sim, &sim->servers[place.index]);
}

/* What the worker sends to the server, or to any, arrives later. */
static void hold_back(struct sim *sim, uint32_t worker, const uint32_t *server, uint32_t ms)
{
    for (size_t i = 0; i < sim->network.stream_count; i++) {
        struct stream *stream = sim->network.streams[i];
        if (stream->kind == STREAM_EXCHANGE && stream->worker == worker &&
            (server == NULL || stream->server == *server))
            network_clog(stream, ACCEPTOR, sim->now_us + (uint64_t)ms * 1000);
    }
}

static void lose_link(struct sim *sim, const struct sim_server *server)
{
    struct stream *link = sim_server_link(sim, server);
    if (link != NULL)
        network_break(sim, link);
}

/* Of one process: "NAME is killed", … */
static bool do_to_one(struct sim *sim, struct machine place, const char *deed)
{
    if (strcmp(deed, "is killed") == 0)
        kill_place(sim, place, false);
    else if (strcmp(deed, "vanishes with its machine") == 0)
        kill_place(sim, place, true);
    else if (strcmp(deed, "starts") == 0)
        start_place(sim, place);
    else if (strcmp(deed, "computes wrongly from now on") == 0)
        sim->options.story->wrong[place.index] = true;
    else if (strcmp(deed, "is told to leave") == 0)
        sim_worker_leave(sim, &sim->workers[place.index]);
    else if (strcmp(deed, "loses its link to the coordinator") == 0)
        lose_link(sim, &sim->servers[place.index]);
    else if (strcmp(deed, "is drained by its operator") == 0)
        sim_server_ask_drain(sim, &sim->servers[place.index]);
    else
        return false;
    return true;
}

static bool succeed(struct sim *sim)
{
    bool done = sim_coordinator_succeed(sim);
    if (done)
        sim_coordinator_start(sim, sim_coordinator_in_office(sim));
    return done;
}

static bool do_deed(struct sim *sim, const char *deed)
{
    char one[8];
    uint32_t worker, server, ms;
    struct machine place;
    if (strcmp(deed, "an operator asks for a checkpoint") == 0)
        return sim_coordinator_ask_cut(sim);
    if (strcmp(deed, "an operator stops the run") == 0)
        return sim_coordinator_stop_run(sim);
    if (strcmp(deed, "a second coordinator starts, and the first does not know") == 0)
        return succeed(sim);
    bool some = sscanf(deed, "the network holds back what w%u sends to s%u for %u ms", &worker,
                       &server, &ms) == 3;
    if (some ||
        sscanf(deed, "the network holds back what w%u sends for %u ms", &worker, &ms) == 2) {
        hold_back(sim, worker, some ? &server : NULL, ms);
        return true;
    }
    return sscanf(deed, "%7s", one) == 1 && parse_place(one, &place) &&
           do_to_one(sim, place, deed + strlen(one) + 1);
}

/* "after 30 ms: …" */
static bool put_later(struct sim *sim, uint32_t number, const char *then)
{
    uint32_t ms;
    int used = 0;
    if (sscanf(then, "after %u ms: %n", &ms, &used) != 1 || used == 0)
        return false;
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + (uint64_t)ms * 1000,
                                          .kind = EVENT_STORY,
                                          .index = number,
                                          .detail = (uint64_t)used});
    return true;
}

/* These do not wait until the code that runs has come to its end. */
static bool is_at_once(const char *deed)
{
    return strstr(deed, " is killed") != NULL || strstr(deed, " vanishes ") != NULL;
}

static void carry_out(struct sim *sim, const char *deed)
{
    add_line(sim->options.story, ">> ", deed);
    if (!do_deed(sim, deed)) {
        fprintf(stderr, "sim: nobody can do that: %s\n", deed);
        exit(2);
    }
}

void story_act(struct sim *sim)
{
    struct story *story = sim->options.story;
    for (uint32_t i = 0; story != NULL && i < story->rule_count; i++) {
        struct rule *rule = &story->rules[i];
        if (!rule->met || rule->done || (world.life != NULL && !is_at_once(rule->then)))
            continue;
        rule->done = true;
        if (!put_later(sim, i, rule->then))
            carry_out(sim, rule->then);
    }
}

void story_event(struct sim *sim, const struct event *event)
{
    carry_out(sim, sim->options.story->rules[event->index].then + event->detail);
}
