/* roost up: a whole cluster on this machine for one run: certificates, servers, workers, and the
 * run itself, watched to its end. Everything lies in the run's directory:
 *
 *   up.lock                                this command's as long as it lasts: one at a time
 *   certs/ servers/N/ logs/ traces/        this command's and the daemons' own
 *   run.yaml steps.jsonl steps/ events/ checkpoints/    the run's, written by the daemons
 *
 * Servers and workers that end while the run goes on are started again, also those that somebody told
 * to go. With --churn or --trace they are also killed and started on purpose (churn.h). */
#include "common/file.h"
#include "common/files/run_directory.h"
#include "common/files/step_log.h"
#include "common/memory.h"
#include "common/model/model.h"
#include "common/rand.h"
#include "common/scoped.h"
#include "common/settings/flags.h"
#include "common/settings/options.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/children.h"
#include "deploy/roost/churn_options.h"
#include "deploy/roost/command.h"
#include "deploy/roost/launch.h"
#include "deploy/roost/predict.h"
#include "deploy/roost/print.h"
#include "deploy/roost/stored.h"
#include "deploy/roost/traces.h"
#include "deploy/roost/up_directory.h"
#include "deploy/roost/watch.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum {
    UP_SERVERS_MAX = 64,
    UP_WORKERS_MAX = CHURN_PROCESSES_MAX,
    UP_DEVICES_MAX = 16,
    DEVICE_NUMBERS = 1024, /* of a worker's --device, which counts round the GPUs there are */
    START_MS = 30000,      /* until the coordinator answers */
    LEAVE_MS = 10000,      /* until a process told to end has ended */
    PAUSE_MS = 35000, /* the same of servers that write a checkpoint first: their --stop-ms twice */
    PAUSE_SAID_MS = 1000, /* a shorter wait is not reported */
    PAUSE_LOOK_MS = 100,
    LOG_TAIL_BYTES = 2048,
    FAILED_STARTS_MAX = 5,
    STARTS_MAX = 64, /* workers that have been started and have not joined */
    PORT_FIRST = 20000,
    PORTS = 10000
};

static uint64_t now_ms(void)
{
    return time_now_ns() / 1000000;
}

struct up_options {
    struct launch_options launch;
    const char *directory; /* NULL: runs/NAME */
    uint32_t servers;
    uint32_t workers; /* 0: as many as the mesh needs */
    uint32_t devices; /* of each worker */
    const char *backend;
    bool insecure;
    struct churn_options churn;
    const char *trace_out; /* NULL: none */
};

struct up {
    const struct up_options *options;
    const struct watch_signals *signals;
    struct launch launch;
    uint32_t workers; /* that are there at once, at most */
    struct up_directory directory;
    char address[64]; /* of the coordinator */
    uint32_t port;    /* where to look for the next free one: another place in every `up` */
    struct children children;
    struct progress progress;
    struct churn churn;
    uint64_t run;              /* its number */
    uint64_t begun_ms;         /* the run, and the churn; 0: not yet */
    bool stops;                /* somebody asked for that, by the newest status */
    bool stopped;              /* the run is, before its end */
    bool summed_up;            /* it is over, and its summary is printed */
    struct tls_identity shown; /* the operator's certificate, without its texts */
    int64_t renewed_s;         /* when new ones were tried; 0: not yet */
    uint32_t begun;            /* workers: the lowest of so many have been started */
    uint64_t joined;           /* workers, by the newest status; who comes again counts again */
    bool unlogged;             /* that a process has no log is said */
    struct effort effort;
};

/* ---- options ---- */

enum { KEY_TRACE_OUT = 0x200, KEY_DEVICES };
static const char TRACE_FOLDER[] = "traces";
static const char BACKEND_DEFAULT[] = "cpu";

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct up_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->launch;
        state->child_inputs[1] = &options->churn;
        return 0;
    case 'S':
        options->servers = arguments_count(argument, "servers", UP_SERVERS_MAX, state);
        return 0;
    case 'W':
        options->workers = arguments_count(argument, "workers", UP_WORKERS_MAX, state);
        return 0;
    case 'd':
        options->directory = argument;
        return 0;
    case 'b':
        if (strcmp(argument, "cpu") != 0 && strcmp(argument, "cuda") != 0)
            argp_error(state, "backend %s is neither cpu nor cuda", argument);
        options->backend = argument;
        return 0;
    case 'I':
        options->insecure = true;
        return 0;
    case KEY_DEVICES:
        options->devices = arguments_count(argument, "devices", UP_DEVICES_MAX, state);
        return 0;
    case KEY_TRACE_OUT:
        options->trace_out = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- traces ---- */

static enum err trace_folder(const struct up *up, char *ret_path, size_t bytes,
                             struct reason *reason)
{
    return up_directory_join(&up->directory, TRACE_FOLDER, ret_path, bytes, reason);
}

/* Whether the whole can be written. It takes the place of what has its name: of files alone. */
static enum err try_trace_out(const char *path, struct reason *reason)
{
    scoped(file_writer_release) struct file_writer tried = {0};
    struct file_info there;
    if (file_stat(path, &there, NULL) == ERR_OK && there.kind != FILE_REGULAR)
        return reason_set(reason, ERR_INVALID, "--trace-out: %s is no file", path);
    return up_directory_making_error(file_writer_open(&file_ops_real, path, 0644, &tried, reason));
}

/* Without the traces of an earlier start. */
static enum err make_trace_folder(const struct up *up, struct reason *reason)
{
    char path[512];
    if (up->options->trace_out == NULL)
        return ERR_OK;
    enum err err = try_trace_out(up->options->trace_out, reason); /* it may lie in the directory */
    if (err != ERR_OK)
        up_directory_unmake(&up->directory);
    TRY(err);
    TRY(trace_folder(up, path, sizeof path, reason));
    TRY(file_make_dirs(path, 0755, reason));
    return traces_clear(path, reason);
}

static enum err join_traces(const struct up *up, struct reason *reason)
{
    char path[512];
    if (up->options->trace_out == NULL)
        return ERR_OK;
    TRY(trace_folder(up, path, sizeof path, reason));
    return traces_join(path, up->options->trace_out, reason);
}

static enum err make_certificates(const struct up *up, struct reason *reason)
{
    char path[512];
    struct tls_certificates wanted = {.now_s = (int64_t)time_wall_s()};
    TRY(up_directory_join(&up->directory, "certs", path, sizeof path, reason));
    return up->options->insecure ? ERR_OK : tls_make_cluster_certificates(path, &wanted, reason);
}

/* ---- processes ---- */

/* What is decided here, of settings that not every process is started with a flag for. Whoever calls
 * `roost up` may have the settings of a machine's own daemons in the environment. */
static const char *const forgotten[] = {
    CONFIG_ENVIRONMENT_PREFIX "ADDRESS",     CONFIG_ENVIRONMENT_PREFIX "ADVERTISE",
    CONFIG_ENVIRONMENT_PREFIX "COORDINATOR", CONFIG_ENVIRONMENT_PREFIX "DATA",
    CONFIG_ENVIRONMENT_PREFIX "INSECURE",    CONFIG_ENVIRONMENT_PREFIX "NO_CHUNKS",
    CONFIG_ENVIRONMENT_PREFIX "REVOKED",     CONFIG_ENVIRONMENT_PREFIX "SAMPLE",
    CONFIG_ENVIRONMENT_PREFIX "TRACE_OUT",   NULL};

/* A free port below those that the kernel gives to outgoing connections (ip_local_port_range: 32768
 * and up unless changed). One of those may be somebody's own end by the time that the daemon
 * listens, at its start or after a kill. */
static enum err free_address(struct up *up, char *ret_address, size_t bytes, struct reason *reason)
{
    for (uint32_t tried = 0; tried < PORTS; tried++) {
        uint16_t port = (uint16_t)(PORT_FIRST + up->port++ % PORTS);
        struct sockaddr_in name = {
            .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool found = fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0;
        if (fd >= 0)
            close(fd);
        snprintf(ret_address, bytes, "127.0.0.1:%u", port);
        if (found)
            return ERR_OK;
    }
    return reason_set(reason, ERR_IO, "no free port on 127.0.0.1 from %d to %d", PORT_FIRST,
                      PORT_FIRST + PORTS - 1);
}

static enum err start_process(struct up *up, const char *program, const char *name,
                              const char *const *own, struct reason *reason)
{
    char path[512], certs[512], log_name[64], log[512];
    const char *arguments[CHILD_ARGUMENTS_MAX + 1];
    size_t count = 0;
    TRY(children_program(program, path, sizeof path, reason));
    TRY(up_directory_join(&up->directory, "certs", certs, sizeof certs, reason));
    snprintf(log_name, sizeof log_name, "logs/%s.log", name);
    TRY(up_directory_join(&up->directory, log_name, log, sizeof log, reason));
    arguments[count++] = path;
    arguments[count++] = "--name";
    arguments[count++] = name;
    if (up->options->insecure) {
        arguments[count++] = "--insecure";
    } else {
        arguments[count++] = "--certs";
        arguments[count++] = certs;
    }
    while (*own != NULL && count < CHILD_ARGUMENTS_MAX)
        arguments[count++] = *own++;
    arguments[count] = NULL;
    return children_start(&up->children, name, log, arguments, true, reason);
}

static enum err start_server(struct up *up, uint32_t number, struct reason *reason)
{
    char name[32], part[48], state[512], address[64];
    snprintf(name, sizeof name, "server-%u", number);
    snprintf(part, sizeof part, "servers/%u", number);
    TRY(up_directory_join(&up->directory, part, state, sizeof state, reason));
    TRY(file_make_dirs(state, 0755, reason));
    TRY(free_address(up, address, sizeof address, reason));
    char members[16]; /* each may come again before its membership before has lapsed */
    snprintf(members, sizeof members, "%u",
             up->options->churn.trace == NULL ? 2 * up->workers + 2 : UP_WORKERS_MAX);
    const char *own[] = {"--address",
                         address,
                         "--dir",
                         state,
                         "--run-dir",
                         up->directory.path,
                         "--certificate-members-max",
                         members,
                         "--coordinator",
                         up->address,
                         NULL};
    if (number == 0) { /* the coordinator's: its store may name the folder's former path */
        snprintf(up->address, sizeof up->address, "%s", address);
        own[8] = "--continue-only";
        own[9] = up->directory.path;
    }
    return start_process(up, "roostd", name, own, reason);
}

/* Also one that was there before. */
static enum err start_worker(struct up *up, uint32_t number, struct reason *reason)
{
    char name[32];
    snprintf(name, sizeof name, "worker-%u", number);
    struct child *child = children_find(&up->children, name);
    if (child != NULL)
        return child_start(child, reason);
    char device[16], devices[16];
    snprintf(device, sizeof device, "%u", number * up->options->devices % DEVICE_NUMBERS);
    snprintf(devices, sizeof devices, "%u", up->options->devices);
    char memory[24];
    char trace_name[64], trace[512];
    snprintf(memory, sizeof memory, "%" PRIu64, memory_limit() / up->workers);
    snprintf(trace_name, sizeof trace_name, "%s/%s" TRACES_END, TRACE_FOLDER, name);
    TRY(up_directory_join(&up->directory, trace_name, trace, sizeof trace, reason));
    const char *own[] = {"--coordinator",
                         up->address,
                         "--backend",
                         up->options->backend,
                         "--device",
                         device,
                         "--devices",
                         devices,
                         "--memory",
                         memory,
                         "--notice", /* who would go on, when the machine goes? */
                         "none",
                         NULL,
                         NULL,
                         NULL,
                         NULL,
                         NULL};
    size_t count = 12;
    const struct spec_mesh *mesh = &up->launch.spec.mesh;
    if (spec_mesh_is_shared(mesh) || mesh->program[0] != 0) { /* else nobody asks it */
        own[count++] = "--address";
        own[count++] = "127.0.0.1:0";
    }
    if (up->options->trace_out != NULL) {
        own[count++] = "--trace-out";
        own[count++] = trace;
    }
    return start_process(up, "roost-worker", name, own, reason);
}

/* A few more than have joined: a thousand processes that start at once on a few cores keep each
 * other's handshakes from ending in time. Those of a trace come when it says so. */
static enum err start_workers(struct up *up, struct reason *reason)
{
    const uint32_t wanted = up->options->churn.trace == NULL ? up->workers : 0;
    while (up->begun < wanted && up->begun < up->joined + STARTS_MAX)
        TRY(start_worker(up, up->begun++, reason));
    return ERR_OK;
}

/* ---- churn ---- */

static enum err carry_out(struct up *up, const struct churn_event *event, struct reason *reason)
{
    const char *kind = event->kind == CHURN_SERVER_GOES ? "server" : "worker";
    char name[32];
    if (event->kind == CHURN_WORKER_COMES)
        return start_worker(up, event->number, reason);
    snprintf(name, sizeof name, "%s-%u", kind, event->number);
    struct child *child = children_find(&up->children, name);
    if (child != NULL) /* else it is still to be started */
        child_kill(child, event->kind == CHURN_WORKER_GOES);
    return ERR_OK;
}

/* A run that stops is left alone: a kill then would cost it the steps since its last checkpoint. */
static bool churns(const struct up *up)
{
    return churn_is_wanted(&up->options->churn) && up->begun_ms != 0 && !up->stops &&
           watch_signals_count(up->signals) == 0;
}

static enum err churn(struct up *up, uint64_t look_ms, struct reason *reason)
{
    struct churn_event event;
    while (churns(up) && churn_next(&up->churn, look_ms - up->begun_ms, &event))
        TRY(carry_out(up, &event, reason));
    return ERR_OK;
}

/* ---- what goes wrong with them ---- */

static void print_log_tail(const struct child *child)
{
    scoped(file_map_release) struct file_map log = {0};
    if (file_map_open(child->log_path, &log, NULL) != ERR_OK)
        return;
    size_t skip = log.bytes.bytes > LOG_TAIL_BYTES ? log.bytes.bytes - LOG_TAIL_BYTES : 0;
    fprintf(stderr, "--- the end of %s:\n", child->log_path);
    fwrite(log.bytes.data + skip, 1, log.bytes.bytes - skip, stderr);
}

static uint32_t running_workers(const struct children *children)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < children->count; i++) {
        const struct child *child = &children->list[i];
        count += child->pid != 0 && strncmp(child->name, "worker", strlen("worker")) == 0 ? 1 : 0;
    }
    return count;
}

/* A worker that has worked, and that another start would not help: it computes wrongly, say, and was
 * sent away. */
static bool is_spared(const struct up *up, const struct child *child)
{
    const struct spec_mesh *mesh = &up->launch.spec.mesh;
    bool worked = child->starts == 0 || up->joined >= up->workers;
    return worked && child->exit_code == EXIT_CONFIG &&
           strncmp(child->name, "worker", strlen("worker")) == 0 &&
           running_workers(&up->children) >= mesh->stages * spec_mesh_ranks(mesh);
}

/* A process that cannot start, or never will, ends the run, unless the others can do without it; any
 * other is started again. */
static enum err on_child_end(struct up *up, struct child *child, struct reason *reason)
{
    if (child->exit_code == EXIT_SUCCESS) { /* a worker that saw the run's end, or one that left */
        child->starts = 0;
        return ERR_OK;
    }
    progress_clear(&up->progress);
    if (is_spared(up, child)) {
        child->restart = false;
        print_log_tail(child);
        fprintf(stderr, "%s ended with exit code %d and is not started again; the others go on\n",
                child->name, child->exit_code);
        return ERR_OK;
    }
    bool hopeless = child->exit_code < 128 && child->exit_code != EXIT_AGAIN;
    if (hopeless || child->starts >= FAILED_STARTS_MAX) {
        print_log_tail(child);
        return reason_set(reason, child->exit_code == EXIT_CONFIG ? ERR_INVALID : ERR_RUN_FAILED,
                          "%s ended with exit code %d", child->name, child->exit_code);
    }
    fprintf(stderr, "%s ended with code %d and is started again\n", child->name, child->exit_code);
    return ERR_OK;
}

/* The run is not over, so they did not see its end: somebody sent them away. */
static void say_who_comes_back(struct up *up, uint64_t look_ms)
{
    for (uint32_t i = 0; i < up->children.count; i++) {
        const struct child *child = &up->children.list[i];
        bool comes = child->pid == 0 && child->restart && look_ms >= child->restart_at_ms;
        if (!comes || child->exit_code != EXIT_SUCCESS)
            continue;
        progress_clear(&up->progress);
        fprintf(stderr, "%s has left and is started again\n", child->name);
    }
}

/* Once: the others would lack theirs for the same reason. */
static void say_who_has_no_log(struct up *up)
{
    for (uint32_t i = 0; i < up->children.count && !up->unlogged; i++) {
        const struct child *child = &up->children.list[i];
        if (child->unlogged.text[0] == 0)
            continue;
        up->unlogged = true;
        progress_clear(&up->progress);
        fprintf(stderr, "%s has no log: %s\n", child->name, child->unlogged.text);
    }
}

/* In the last week of the certificates, once a day until it is done: a run may last longer. Every
 * process looks for newer ones, and its next connection takes them. */
static void renew_certificates(struct up *up)
{
    scoped(tls_identity_release) struct tls_identity newer = {0};
    struct reason reason = {0};
    int64_t now_s = (int64_t)time_wall_s();
    if (tls_identity_renewed(&up->shown, now_s, &newer))
        up->shown = tls_identity_names(&newer);
    if (!tls_warning_is_due(up->shown.not_after_s, now_s, &up->renewed_s))
        return;
    enum err err = make_certificates(up, &reason);
    progress_clear(&up->progress);
    if (err == ERR_OK)
        fprintf(stderr, "certificates are renewed\n");
    else
        fprintf(stderr, "certificates end soon, and new ones cannot be made: %s: %s\n",
                err_text(err), reason.text);
}

static enum err look_at_children(void *context, uint64_t look_ms, struct reason *reason)
{
    struct up *up = context;
    struct child *ended;
    say_who_comes_back(up, look_ms);
    while ((ended = children_poll(&up->children, look_ms)) != NULL)
        TRY(on_child_end(up, ended, reason));
    say_who_has_no_log(up);
    renew_certificates(up);
    if (up->begun_ms != 0)
        TRY(start_workers(up, reason));
    return churn(up, look_ms, reason);
}

static void see_status(void *context, const struct status_reply *status)
{
    struct up *up = context;
    effort_see(&up->effort, status);
    up->joined = status->workers_joined;
    up->stops = status->stops;
}

/* ---- the run ---- */

static enum err open_client(const struct up *up, struct client *ret_client, struct reason *reason)
{
    char certs[512];
    TRY(up_directory_join(&up->directory, "certs", certs, sizeof certs, reason));
    struct client_options options = {
        .cluster = up->address, .certs = certs, .insecure = up->options->insecure};
    return client_open(&options, ret_client, reason);
}

/* How to ask from another terminal. */
static void say_where(const struct up *up)
{
    char certs[540];
    struct client_options options = {
        .cluster = up->address, .certs = certs, .insecure = up->options->insecure};
    snprintf(certs, sizeof certs, "%s/certs", up->directory.path);
    fputs("roost status ", stderr);
    client_print_options(stderr, &options);
    fputc('\n', stderr);
}

/* Asks until the coordinator answers: it has just been started. */
static enum err start_run(struct up *up, struct client *client, const struct watch_signals *signals,
                          struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct start_run_reply reply;
    uint64_t deadline = time_after_ms(time_now_ns(), START_MS);
    struct start_run_request request =
        launch_request(&up->launch, &up->options->launch, up->directory.path, up->options->servers);
    enum err err;
    do {
        err = client_start_run(client, &request, &answer, &reply, reason);
        if (err != ERR_OK && err_reaction(err) != REACT_RETRY && err_reaction(err) != REACT_WAIT)
            return err;
        TRY(look_at_children(up, now_ms(), reason));
        if (err != ERR_OK)
            usleep(20000);
    } while (err != ERR_OK && (err == ERR_SEARCHING || time_now_ns() < deadline) &&
             watch_signals_count(signals) == 0);
    if (err != ERR_OK && watch_signals_count(signals) > 0)
        return reason_set(reason, ERR_CANCELLED, "interrupted before the coordinator answered");
    TRY(err);
    if (reply.notes[0] != 0)
        fprintf(stderr, "%s\n", reply.notes);
    say_where(up);
    up->run = reply.run;
    return ERR_OK;
}

/* Where the run goes on: its steps so far are none of ours. */
static enum err first_step_of(const struct up *up, struct client *client, uint64_t *ret_step,
                              struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply status = {0};
    if (up->options->launch.resume)
        TRY(client_status(client, &answer, &status, reason));
    *ret_step = status.step;
    return ERR_OK;
}

static void end_each(struct up *up, const char *kind, uint64_t most_ms)
{
    children_signal(&up->children, kind, SIGTERM);
    children_wait(&up->children, kind, most_ms);
}

/* The last tickets may have been completed after the end was seen. */
static void see_last_costs(struct client *client, struct client_answer *answer,
                           struct status_reply *status)
{
    struct status_reply last;
    if (client_status(client, answer, &last, NULL) != ERR_OK || last.run != status->run)
        return;
    status->cost_count = last.cost_count;
    status->costs = last.costs;
    status->validation_peer_bytes = last.validation_peer_bytes;
}

/* Somebody may have removed rows, or damaged them: the run is done all the same. */
static void see_kept_steps(struct up *up, uint64_t first_step, uint64_t end)
{
    struct reason why = {0};
    struct effort *effort = &up->effort;
    uint64_t reached;
    enum err err = step_log_times(up->directory.path, first_step, &effort->kept, &reached, &why);
    if (err == ERR_OK && reached < end)
        err = reason_set(&why, ERR_NOT_FOUND,
                         "rows of steps are missing in its log, from step %" PRIu64 " on", reached);
    effort->has_kept = err == ERR_OK;
    if (err != ERR_OK)
        fprintf(stderr, "the run's goodput is not known: %s\n", why.text);
}

static enum err digest_of_run(const struct up *up, struct digest_hex *ret_hex,
                              struct reason *reason)
{
    scoped(stored_release) struct stored stored = {0};
    struct digest digest;
    TRY(stored_open(up->directory.path, &stored, reason));
    TRY(stored_digest(&stored, &digest, reason));
    *ret_hex = digest_to_hex(&digest);
    return ERR_OK;
}

/* For whoever looks at what places did. False: it is not known. */
static bool predict_places(struct up *up, const struct status_reply *status,
                           struct prediction *ret_prediction)
{
    char spec[512], log[512];
    struct reason reason;
    const struct predict_wish wish = {
        .spec_path = spec,
        .slots = status->samples_here / up->launch.spec.train.slot_samples,
        .log_path = log,
        .uniform = options_environment(CONFIG_ENVIRONMENT_PREFIX "ACT_MS", NULL) != NULL,
    };
    const struct spec_mesh *mesh = &up->launch.spec.mesh;
    return up->options->trace_out != NULL && (spec_mesh_is_shared(mesh) || mesh->program[0] != 0) &&
           up_directory_join(&up->directory, "run.yaml", spec, sizeof spec, &reason) == ERR_OK &&
           up_directory_join(&up->directory, "logs/program.log", log, sizeof log, &reason) ==
               ERR_OK &&
           predict(&up->children, &wish, ret_prediction, &reason) == ERR_OK;
}

/* With what the run is computed on, which no file of it says. */
static void say_how_to_go_on(const struct up *up)
{
    const struct up_options *options = up->options;
    fputs("go on with: roost up --resume --dir ", stderr);
    print_quoted(stderr, up->directory.path);
    if (strcmp(options->backend, BACKEND_DEFAULT) != 0)
        fprintf(stderr, " --backend %s", options->backend);
    if (options->devices != 1)
        fprintf(stderr, " --devices %" PRIu32, options->devices);
    if (options->insecure)
        fputs(" --insecure", stderr);
    fputc('\n', stderr);
}

/* ERR: the digest is not known, and the summary is without it. */
static enum err print_summary(struct up *up, const struct status_reply *status,
                              struct reason *reason)
{
    struct digest_hex digest = {0};
    struct prediction prediction;
    enum err err = ERR_OK;
    struct summary summary = {
        .status = status,
        .effort = &up->effort,
        .directory = up->directory.path,
        .unigram_entropy = up->launch.unigram_entropy,
        .resident_bytes = children_resident_bytes(&up->children, "worker"),
        .sample_tokens = up->progress.sample_tokens,
    };
    if (predict_places(up, status, &prediction))
        summary.prediction = &prediction;
    if (status->cut.generation != 0) {
        err = digest_of_run(up, &digest, reason);
        summary.digest = err == ERR_OK ? digest.text : NULL;
    }
    summary_print(&summary, up->options->launch.json);
    if (up->stopped)
        say_how_to_go_on(up);
    return err;
}

/* The first error is the command's; of another one the user reads a line. */
static void note_error(enum err err, const struct reason *why, enum err *first,
                       struct reason *reason)
{
    if (err != ERR_OK && *first == ERR_OK)
        *first = reason_set(reason, err, "%s", why->text);
    else if (err != ERR_OK)
        fprintf(stderr, "%s\n", why->text);
}

static enum err sum_up(struct up *up, const struct status_reply *status, struct reason *reason)
{
    struct reason untraced = {0}, undigested = {0};
    enum err err = ERR_OK;
    enum err traced = join_traces(up, &untraced);
    enum err digested = print_summary(up, status, &undigested);
    up->summed_up = true;
    if (status->state == RUN_FAILED)
        err = reason_set(reason, ERR_RUN_FAILED, "%s", status->reason);
    note_error(digested, &undigested, &err, reason);
    note_error(traced, &untraced, &err, reason);
    return err;
}

static enum err train(struct up *up, struct watch_signals *signals, struct reason *reason)
{
    scoped(client_release) struct client client = {0};
    scoped(client_answer_release) struct client_answer answer = {0};
    scoped(client_answer_release) struct client_answer last = {0};
    struct status_reply status;
    uint64_t first_step;
    const struct up_directory_wish wish = {up->options->launch.spec_path, up->options->directory,
                                           up->options->launch.resume};
    TRY(up_directory_open(&wish, &up->directory, reason));
    TRY(make_trace_folder(up, reason));
    TRY(make_certificates(up, reason));
    TRY(rand_system(&up->port, sizeof up->port));
    for (uint32_t i = 0; i < up->options->servers; i++)
        TRY(start_server(up, i, reason));
    TRY(open_client(up, &client, reason));
    up->shown = tls_identity_names(&client.identity);
    TRY(start_run(up, &client, signals, reason));
    TRY(first_step_of(up, &client, &first_step, reason));
    up->begun_ms = now_ms();
    TRY(start_workers(up, reason));
    struct watch watch = {.client = &client,
                          .run = up->run,
                          .progress = &up->progress,
                          .signals = signals,
                          .look = look_at_children,
                          .see = see_status,
                          .context = up};
    TRY(watch_run(&watch, &answer, &status, reason));
    up->stopped = status.state == RUN_STOPPED;
    up->effort.up_ms = children_up_ms(&up->children, "worker");
    end_each(up, "worker", LEAVE_MS);
    see_last_costs(&client, &last, &status);
    end_each(up, "server", LEAVE_MS);
    see_kept_steps(up, first_step, status.step);
    return sum_up(up, &status, reason);
}

/* With fewer, a mesh waits for ever. */
static uint32_t workers_of(const struct up_options *options, const struct spec_mesh *mesh)
{
    enum { WORKERS = 2 };
    if (options->workers != 0)
        return options->workers;
    uint32_t places = mesh->stages * spec_mesh_ranks(mesh);
    return places > WORKERS ? places : WORKERS;
}

static enum err read_wishes(struct up *up, struct reason *reason)
{
    const struct up_options *options = up->options;
    TRY(launch_read(&options->launch, &up->launch, reason));
    up->workers = workers_of(options, &up->launch.spec.mesh);
    if (!churn_is_wanted(&options->churn))
        return ERR_OK;
    TRY(churn_open(&options->churn, up->workers, options->servers, &up->churn, reason));
    up->workers = up->churn.up_most;
    return ERR_OK;
}

/* Of a run that was stopped: whoever goes on with its weights must not take them for done. */
static int stopped_exit_code(const struct watch_signals *signals)
{
    int interrupted = watch_exit_code(signals);
    return interrupted != EXIT_SUCCESS ? interrupted : EXIT_STOPPED;
}

/* Until the servers have ended, or Ctrl-C is pressed once more than it was `heard`: the time to leave
 * that they have then is taken off. */
static void wait_for_checkpoint(struct up *up, unsigned heard)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), PAUSE_MS - LEAVE_MS);
    children_signal(&up->children, "server", SIGTERM);
    if (children_end_within(&up->children, "server", PAUSE_SAID_MS))
        return;
    fprintf(stderr, "waiting at most %d s for a checkpoint (Ctrl-C: %d s)\n", PAUSE_MS / 1000,
            LEAVE_MS / 1000);
    while (watch_signals_count(up->signals) == heard && time_now_ns() < deadline_ns &&
           !children_end_within(&up->children, "server", PAUSE_LOOK_MS))
        ;
}

/* After an error the coordinator's server writes a checkpoint, if there is time for it: after a second
 * Ctrl-C there is none. */
static void give_up(struct up *up, enum err err)
{
    bool at_once = err == ERR_CANCELLED;
    unsigned heard = watch_signals_count(up->signals);
    end_each(up, "worker", LEAVE_MS);
    if (!at_once)
        wait_for_checkpoint(up, heard);
    end_each(up, "server", LEAVE_MS);
    if (up->begun_ms != 0 && !up->summed_up && !at_once &&
        run_directory_has_checkpoint(up->directory.path))
        say_how_to_go_on(up);
}

/* *ret_stopped: the exit code when the run was stopped, by a signal or by somebody else; else 0. */
static enum err train_to_end(struct up *up, struct watch_signals *signals, int *ret_stopped,
                             struct reason *reason)
{
    up->progress = progress_new(model_sample(&up->launch.spec.model).predictions);
    enum err err = train(up, signals, reason);
    progress_clear(&up->progress);
    if (err != ERR_OK)
        give_up(up, err);
    if (up->stopped)
        *ret_stopped = stopped_exit_code(signals);
    else if (err == ERR_CANCELLED)
        *ret_stopped = watch_exit_code(signals);
    return err;
}

static enum err up_run(const struct up_options *options, int *ret_stopped, struct reason *reason)
{
    struct watch_signals *signals;
    struct up *up = calloc(1, sizeof *up);
    if (up == NULL)
        return ERR_NOMEM;
    up->options = options;
    options_forget_environment(forgotten);
    children_init(&up->children);
    enum err err = watch_signals_start("interrupted before the run was started", &signals);
    if (err != ERR_OK) {
        free(up);
        return err;
    }
    up->signals = signals;
    err = read_wishes(up, reason);
    watch_signals_set_ending(signals, NULL);
    if (err == ERR_OK)
        err = train_to_end(up, signals, ret_stopped, reason);
    watch_signals_free(signals);
    children_release(&up->children);
    up_directory_release(&up->directory);
    churn_release(&up->churn);
    launch_release(&up->launch);
    free(up);
    return err;
}

static int up_command(int argc, char **argv, const char *summary, const char *restore)
{
    static const struct argp_option rows[] = {
        {"servers", 'S', "N", 0, "roostd daemons (1)", 0},
        {"workers", 'W', "N", 0, "workers (2, or as many as the mesh has places)", 0},
        {"dir", 'd', "DIR", 0, "the run's directory (runs/NAME)", 0},
        {"backend", 'b', "cpu|cuda", 0, "what workers compute on (cpu)", 0},
        {"devices", KEY_DEVICES, "N", 0,
         "GPUs of each worker, which pulls and pushes once for all of them (1)", 0},
        {"insecure", 'I', NULL, 0, "no TLS on loopback", 0},
        {"trace-out", KEY_TRACE_OUT, "FILE", 0,
         "what workers did when, for Perfetto: acts, waits and messages", 0},
        {0},
    };
    static const struct argp_child children[] = {
        {&launch_argp, 0, NULL, 0}, {&churn_argp, 0, NULL, 0}, {0}};
    struct argp argp = {rows, parse_option, "SPEC", summary, children, NULL, NULL};
    struct up_options options = {
        .servers = 1, .devices = 1, .backend = BACKEND_DEFAULT, .churn.speed = 1};
    struct reason reason = {0};
    char stored_spec[4096];
    argp_err_exit_status = EXIT_USAGE;
    flags_parse(&argp, argc, argv, &options);
    if (restore != NULL && options.launch.restore == NULL) {
        fprintf(stderr, "%s: %s\n", argv[0], restore);
        return EXIT_USAGE;
    }
    if (options.launch.spec_path == NULL && options.launch.resume && options.directory != NULL) {
        snprintf(stored_spec, sizeof stored_spec, "%s/run.yaml", options.directory);
        options.launch.spec_path = stored_spec;
    }
    if (options.launch.spec_path == NULL) {
        fprintf(stderr, "%s: which spec? `%s --help`\n", argv[0], argv[0]);
        return EXIT_USAGE;
    }
    int stopped = EXIT_SUCCESS;
    enum err err = up_run(&options, &stopped, &reason);
    int failed = err == ERR_OK ? EXIT_SUCCESS : command_fail(err, &reason);
    return stopped != EXIT_SUCCESS ? stopped : failed;
}

int command_up(int argc, char **argv)
{
    return up_command(
        argc, argv,
        "Trains on this machine: starts servers and workers, runs SPEC to its end and "
        "prints a summary. Ctrl-C stops after a checkpoint; --resume goes on.",
        NULL);
}

int command_restore(int argc, char **argv)
{
    return up_command(
        argc, argv,
        "Trains SPEC like `roost up`, from the weights of a safetensors file (--from) "
        "instead of random ones.",
        "which weights? --from FILE");
}
