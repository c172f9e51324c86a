/* roost status, stop and checkpoint: one question to the coordinator each. */
#include "common/model/model.h"
#include "common/scoped.h"
#include "common/settings/spec.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"
#include "deploy/roost/watch.h"

#include <inttypes.h>
#include <math.h>

enum {
    EXIT_NOT_READY = 3,
    SILENT_S = 5 /* a worker is heard more often */
};

/* ---- status ---- */

static void put_member(struct json_writer *writer, const struct member_status *member)
{
    json_put_object(writer);
    json_member_uint(writer, "member", member->member);
    json_member_text(writer, "name", member->name);
    json_member_text(writer, "device", member->device);
    json_member_text(writer, "state", member->state);
    json_member_text(writer, "reason", member->reason);
    json_member_uint(writer, "tickets", member->tickets);
    json_member_real(writer, "silent_seconds", member->silent_seconds);
    json_member_uint(writer, "certificate_ends", member->certificate_ends_s);
    json_member_uint(writer, "kept_bytes", member->kept_bytes);
    json_put_end(writer);
}

static void put_place(struct json_writer *writer, const struct place_status *place)
{
    json_put_object(writer);
    json_member_text(writer, "kind", place->kind == TICKET_TRAIN ? "train" : "validate");
    json_member_uint(writer, "step", place->step);
    json_member_uint(writer, "slot", place->slot);
    json_member_uint(writer, "slots", place->slots);
    json_member_uint(writer, "attempt", place->attempt);
    json_member_bool(writer, "copy", place->copy);
    json_member_uint(writer, "stage", place->stage);
    json_member_uint(writer, "rank", place->rank);
    json_member_uint(writer, "member", place->member);
    json_member_text(writer, "name", place->name);
    json_member_bool(writer, "done", place->done);
    json_member_uint(writer, "tries", place->tries);
    json_member_real(writer, "seconds", place->seconds);
    json_put_end(writer);
}

static void put_unreachable(struct json_writer *writer, const struct unreachable_status *pair)
{
    json_put_object(writer);
    json_member_text(writer, "worker", pair->worker);
    json_member_text(writer, "other", pair->other);
    json_member_uint(writer, "times", pair->times);
    json_member_bool(writer, "apart", pair->apart);
    json_put_end(writer);
}

static void put_places(struct json_writer *writer, const struct status_reply *status)
{
    print_array(writer, "places");
    for (uint32_t i = 0; i < status->place_count; i++)
        put_place(writer, &status->places[i]);
    json_put_end(writer);
    print_array(writer, "unreachable");
    for (uint32_t i = 0; i < status->unreachable_count; i++)
        put_unreachable(writer, &status->unreachable[i]);
    json_put_end(writer);
}

static void put_server(struct json_writer *writer, const struct server_description *server)
{
    json_put_object(writer);
    json_member_text(writer, "name", server->name);
    json_member_text(writer, "address", server->address);
    json_member_uint(writer, "boot", server->boot);
    json_member_bool(writer, "connected", server->connected);
    json_member_text(writer, "state", server->state);
    json_member_uint(writer, "chunks", server->chunks);
    json_member_uint(writer, "certificate_ends", server->certificate_ends_s);
    json_put_end(writer);
}

/* How workers share a ticket; stages 0: they do not, or there is no run. */
struct mesh_text {
    uint32_t stages, ranks;
    char schedule[SPEC_PATH_BYTES + 16]; /* "1f1b", "program my.csv" */
};

static struct mesh_text mesh_of(const struct spec *spec)
{
    struct mesh_text mesh = {0};
    if (!spec_mesh_is_shared(&spec->mesh))
        return mesh;
    mesh.stages = spec->mesh.stages;
    mesh.ranks = spec_mesh_ranks(&spec->mesh);
    snprintf(mesh.schedule, sizeof mesh.schedule, "%s%s",
             spec->mesh.program[0] != 0 ? "program " : "",
             spec->mesh.program[0] != 0 ? spec->mesh.program : schedule_name(spec->mesh.schedule));
    return mesh;
}

/* What a run's spec tells of it. */
struct run_facts {
    struct mesh_text mesh;
    uint64_t sample_tokens; /* of one sample: 1 where samples have no tokens; 0: not known */
    uint64_t step_samples;  /* 0: not known */
};

/* {0} where the coordinator does not describe its run just now. */
static struct run_facts run_facts_of(struct client *client)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct describe_reply reply;
    struct spec spec;
    if (client_describe(client, &answer, &reply, NULL) != ERR_OK || !reply.has_run)
        return (struct run_facts){0};
    struct slice text = {(const uint8_t *)reply.spec, strlen(reply.spec)};
    if (spec_parse(text, "the run's spec", NULL, &spec, NULL) != ERR_OK)
        return (struct run_facts){0};
    return (struct run_facts){.mesh = mesh_of(&spec),
                              .sample_tokens = model_sample(&spec.model).predictions,
                              .step_samples = spec_step_samples(&spec)};
}

/* How fast it is, the mean of this start of the coordinator; NAN: not known. */
struct pace {
    double samples_per_second, step_seconds, seconds_left, checkpoint_seconds;
};

static uint64_t steps_since_cut(const struct status_reply *status)
{
    return status->step > status->cut.version ? status->step - status->cut.version : 0;
}

static struct pace pace_of(const struct status_reply *status, const struct run_facts *facts)
{
    struct pace pace = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    if (status->samples_here == 0 || status->seconds <= 0)
        return pace;
    pace.samples_per_second = (double)status->samples_here / status->seconds;
    if (facts->step_samples == 0)
        return pace;
    pace.step_seconds = (double)facts->step_samples / pace.samples_per_second;
    if (status->state != RUN_TRAINING)
        return pace;
    pace.seconds_left = pace.step_seconds * (double)(status->steps - status->step);
    pace.checkpoint_seconds = pace.step_seconds * (double)steps_since_cut(status);
    return pace;
}

static void put_mesh(struct json_writer *writer, const struct mesh_text *mesh)
{
    json_put_key(writer, "mesh");
    json_put_object(writer);
    json_member_uint(writer, "stages", mesh->stages > 0 ? mesh->stages : 1);
    json_member_uint(writer, "tensor", mesh->ranks > 0 ? mesh->ranks : 1);
    json_member_text(writer, "schedule", mesh->schedule);
    json_put_end(writer);
}

static void put_pace(struct json_writer *writer, const struct status_reply *status,
                     const struct run_facts *facts)
{
    struct pace pace = pace_of(status, facts);
    json_member_real(writer, "seconds", status->seconds > 0 ? status->seconds : (double)NAN);
    json_member_real(writer, "samples_per_second", pace.samples_per_second);
    json_member_real(writer, "tokens_per_second",
                     facts->sample_tokens > 1
                         ? pace.samples_per_second * (double)facts->sample_tokens
                         : (double)NAN);
    json_member_real(writer, "seconds_left", pace.seconds_left);
    json_member_uint(writer, "cut_steps", steps_since_cut(status));
    json_member_real(writer, "cut_seconds", pace.checkpoint_seconds);
}

static void put_results(struct json_writer *writer, const struct status_reply *status)
{
    bool stepped = status->samples_here > 0;
    json_member_real(writer, "loss", stepped ? status->loss : (double)NAN); /* null */
    json_member_real(writer, "accuracy", stepped ? status->accuracy : (double)NAN);
    json_member_real(writer, "validation_loss",
                     status->has_validation ? status->validation_loss : (double)NAN);
    json_member_real(writer, "validation_accuracy",
                     status->has_validation ? status->validation_accuracy : (double)NAN);
    json_member_real(writer, "lr", stepped ? status->lr : (double)NAN);
    json_member_real(writer, "norm", stepped ? status->norm : (double)NAN);
}

static void print_tool(const struct status_reply *status, const struct run_facts *facts)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    json_member_text(&writer, "state", print_state(status->state));
    json_member_bool(&writer, "stops", status->stops);
    json_member_text(&writer, "reason", status->reason);
    json_member_text(&writer, "directory", status->directory);
    json_member_text(&writer, "coordinator", status->coordinator);
    json_member_uint(&writer, "run", status->run);
    json_member_uint(&writer, "generation", status->generation);
    json_member_uint(&writer, "step", status->step);
    json_member_uint(&writer, "steps", status->steps);
    put_results(&writer, status);
    json_member_uint(&writer, "samples", status->samples);
    put_pace(&writer, status, facts);
    json_member_uint(&writer, "cut_generation", status->cut.generation);
    json_member_uint(&writer, "cut_version", status->cut.version);
    json_member_text(&writer, "cut_state", status->cut_state);
    json_member_uint(&writer, "workers_joined", status->workers_joined);
    json_member_uint(&writer, "workers_lost", status->workers_lost);
    print_moves(&writer, &status->moves);
    print_audits(&writer, &status->audits);
    print_array(&writer, "workers");
    for (uint32_t i = 0; i < status->member_count; i++)
        put_member(&writer, &status->members[i]);
    json_put_end(&writer);
    print_array(&writer, "servers");
    for (uint32_t i = 0; i < status->server_count; i++)
        put_server(&writer, &status->servers[i]);
    json_put_end(&writer);
    put_mesh(&writer, &facts->mesh);
    put_places(&writer, status);
    json_put_end(&writer);
    print_json(&writer);
}

static void print_member(const struct member_status *member)
{
    printf("worker %-16s %-22s %-10s %8" PRIu64 " tickets", member->name, member->device,
           member->state, member->tickets);
    if (member->kept_bytes > 0)
        printf("  keeps %.3g MB", (double)member->kept_bytes / 1e6);
    if (member->silent_seconds >= SILENT_S)
        printf("  silent for %s", time_format_duration(member->silent_seconds).text);
    printf("%s%s\n", member->reason[0] != 0 ? "  " : "", member->reason);
}

/* A line for each place of an open lease. */
static void print_place(const struct place_status *place, bool ranks)
{
    printf("stage %-3u ", place->stage);
    if (ranks)
        printf("rank %-2u ", place->rank);
    printf("%-16s %s %" PRIu64 " %s %u", place->member != 0 ? place->name : "nobody",
           place->kind == TICKET_TRAIN ? "step" : "version", place->step,
           place->kind == TICKET_TRAIN ? "slot" : "held-out piece", place->slot);
    if (place->slots > 1)
        printf(" to %u", place->slot + place->slots - 1);
    printf("%s  %s", place->copy ? " (copy)" : "", place->done ? "done, " : "");
    printf("for %s", time_format_duration(place->seconds).text);
    if (place->tries > 1)
        printf(", try %u of it", place->tries);
    printf("\n");
}

static void print_unreachable(const struct unreachable_status *pair)
{
    printf("workers %s and %s did not reach each other%s\n", pair->worker, pair->other,
           pair->apart ? " twice: they are not put side by side" : "");
}

static void print_validation(const struct status_reply *status, const struct run_facts *facts)
{
    printf("validation %s", print_number(status->validation_loss, 4).text);
    if (facts->sample_tokens > 1)
        printf(" nats a token\n");
    else
        printf("  accuracy %.1f %%\n", 100 * status->validation_accuracy);
}

static void print_pace(const struct status_reply *status, const struct run_facts *facts)
{
    struct pace pace = pace_of(status, facts);
    if (isnan(pace.samples_per_second))
        return;
    printf("speed %.1f samples/s", pace.samples_per_second);
    if (facts->sample_tokens > 1)
        printf(", %.0f tokens/s", pace.samples_per_second * (double)facts->sample_tokens);
    printf(" over %s", time_format_duration(status->seconds).text);
    if (!isnan(pace.seconds_left))
        printf("  ETA %s", time_format_duration(pace.seconds_left).text);
    printf("\n");
}

static void print_newest(const struct status_reply *status, const struct run_facts *facts)
{
    double seconds = pace_of(status, facts).checkpoint_seconds;
    uint64_t steps = steps_since_cut(status);
    printf("newest checkpoint: generation %" PRIu64 " version %" PRIu64, status->cut.generation,
           status->cut.version);
    if (steps > 0)
        printf(", %" PRIu64 " step%s ago", steps, plural(steps));
    if (steps > 0 && !isnan(seconds))
        printf(" (about %s)", time_format_duration(seconds).text);
}

static void print_cut(const struct status_reply *status, const struct run_facts *facts)
{
    if (status->cut.generation > 0)
        print_newest(status, facts);
    else
        printf("newest checkpoint: none");
    printf("%s%s\n", status->cut_state[0] != 0 ? "; NO CHECKPOINT: " : "", status->cut_state);
}

/* The daemon knows of a step what it has decided since its start. */
static void print_run(const struct status_reply *status, const struct run_facts *facts)
{
    printf("run %" PRIu64 "  generation %" PRIu64 "  step %" PRIu64 " of %" PRIu64, status->run,
           status->generation, status->step, status->steps);
    if (status->samples_here > 0)
        printf("  loss %s  lr %.3g", print_number(status->loss, 4).text, status->lr);
    if (status->samples_here > 0 && !isnan(status->norm)) /* async has none of a step */
        printf("  norm %.3g", status->norm);
    printf("\n");
    if (status->directory[0] != 0) /* an older daemon does not say it */
        printf("directory %s on %s\n", status->directory, status->coordinator);
    if (status->has_validation)
        print_validation(status, facts);
    print_pace(status, facts);
    print_cut(status, facts);
}

static void print_end(const char *kind, const char *name, uint64_t ends_s)
{
    if (tls_ends_soon((int64_t)ends_s, (int64_t)time_wall_s()))
        printf("certificate of %s %s ends at %s\n", kind, name,
               time_format_utc(ends_s * 1000000000).text);
}

/* Of those that are there, from a week before. */
static void print_certificates(const struct status_reply *status)
{
    for (uint32_t i = 0; i < status->server_count; i++)
        print_end("server", status->servers[i].name, status->servers[i].certificate_ends_s);
    for (uint32_t i = 0; i < status->member_count; i++)
        print_end("worker", status->members[i].name, status->members[i].certificate_ends_s);
}

static void print_people(const struct status_reply *status, const struct run_facts *facts)
{
    const struct mesh_text *mesh = &facts->mesh;
    printf("%s%s%s%s\n", print_state(status->state),
           status->stops ? ", stops after a checkpoint" : "", status->reason[0] != 0 ? ": " : "",
           status->reason);
    if (status->state != RUN_NONE)
        print_run(status, facts);
    for (uint32_t i = 0; i < status->server_count; i++)
        printf("server %-16s %-22s %-10s %8u chunks\n", status->servers[i].name,
               status->servers[i].address,
               status->servers[i].connected ? status->servers[i].state : "LOST",
               status->servers[i].chunks);
    if (status->moves.commits > 0)
        printf("moved: %" PRIu64 " chunk%s (%.1f MB), %" PRIu64 " server%s added, %" PRIu64
               " drained\n       longest step meanwhile %.0f ms, an ordinary one %.0f ms\n",
               status->moves.chunks, plural(status->moves.chunks),
               (double)status->moves.bytes / 1e6, status->moves.servers_added,
               plural(status->moves.servers_added), status->moves.servers_drained,
               status->moves.gap_ms_max, status->moves.step_ms);
    print_audits_line("audited: ", &status->audits);
    for (uint32_t i = 0; i < status->member_count; i++)
        print_member(&status->members[i]);
    if (mesh->stages > 0)
        printf("mesh of %u stage%s of %u worker%s each, %s\n", mesh->stages, plural(mesh->stages),
               mesh->ranks, plural(mesh->ranks), mesh->schedule);
    for (uint32_t i = 0; i < status->place_count; i++)
        print_place(&status->places[i], mesh->ranks > 1);
    for (uint32_t i = 0; i < status->unreachable_count; i++)
        print_unreachable(&status->unreachable[i]);
    print_certificates(status);
}

/* A run that stands still, or whose checkpoints fail, needs somebody. */
static bool is_ready(const struct status_reply *status)
{
    bool trains = status->state == RUN_TRAINING && status->reason[0] == 0;
    return (trains && status->cut_state[0] == 0) || status->state == RUN_ENDED;
}

int command_status(int argc, char **argv)
{
    static const struct arguments_about about = {
        .cluster = true,
        .json = true,
        .summary = "Prints what the cluster does. Exit code 0: it trains, or has ended; 3: it "
                   "does not, it waits, or its checkpoints fail."};
    struct arguments arguments;
    scoped(client_release) struct client client = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = client_open(&arguments.client, &client, &reason);
    if (err == ERR_OK)
        err = client_status(&client, &answer, &status, &reason);
    if (err != ERR_OK)
        return client_fail(&arguments.client, err, &reason);
    const struct run_facts facts = run_facts_of(&client);
    if (arguments.json)
        print_tool(&status, &facts);
    else
        print_people(&status, &facts);
    return is_ready(&status) ? EXIT_SUCCESS : EXIT_NOT_READY;
}

/* ---- stop ---- */

static void say_over(const struct status_reply *status)
{
    fprintf(stderr, "the run has %s%s%s\n", print_state(status->state),
            status->reason[0] != 0 ? ": " : "", status->reason);
}

/* A stop of a run that has not begun ends it at once, and so does a second one of a run whose last
 * checkpoint cannot be written, or that cannot go on. */
static void say_stopped(struct client *client, const struct client_options *options)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    struct reason why; /* not shown: the stop was taken, whoever answers now */
    bool answered = client_status(client, &answer, &status, &why) == ERR_OK;
    if (answered && watch_is_over(&status)) {
        say_over(&status);
        return;
    }
    fprintf(stderr, "the run stops%s. Watch it: roost watch ",
            answered && status.stops ? " after a checkpoint" : "");
    client_print_options(stderr, options);
    fputc('\n', stderr);
}

/* No run is active: an earlier stop, whose answer was lost, may be done. */
static enum err judge_over(struct client *client, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status;
    struct reason why; /* not shown: the stop has been answered */
    if (client_status(client, &answer, &status, &why) != ERR_OK || !watch_is_over(&status))
        return ERR_NO_RUN;
    if (status.state == RUN_FAILED)
        return reason_set(reason, ERR_RUN_FAILED, "the run has failed: %s", status.reason);
    say_over(&status);
    return ERR_OK;
}

int command_stop(int argc, char **argv)
{
    static const struct arguments_about about = {
        .cluster = true,
        .summary = "Ends the run after a checkpoint; it can be resumed. When that checkpoint "
                   "cannot be written, or the run cannot go on, it waits, and a second stop ends "
                   "it at the newest one."};
    struct arguments arguments;
    scoped(client_release) struct client client = {0};
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = client_open(&arguments.client, &client, &reason);
    if (err == ERR_OK)
        err = client_stop_run(&client, "roost stop", &reason);
    if (err == ERR_OK)
        say_stopped(&client, &arguments.client);
    else if (err == ERR_NO_RUN)
        err = judge_over(&client, &reason);
    return err == ERR_OK ? EXIT_SUCCESS : client_fail(&arguments.client, err, &reason);
}
