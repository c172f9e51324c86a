/* roost-worker: attaches a device, or several that compute together, to a cluster (worker.h). */
#include "common/file.h"
#include "common/memory.h"
#include "common/rpc/rpc.h"
#include "common/scene.h"
#include "common/scoped.h"
#include "common/settings/config.h"
#include "common/settings/options.h"
#include "common/time.h"
#include "proto/wire.h"
#include "worker/crew.h"
#include "worker/devices.h"
#include "worker/text.h"
#include "worker/trace.h"
#include "worker/worker.h"

#include <errno.h>
#include <unistd.h>

struct settings {
    char coordinator[257];
    char name[WIRE_NAME_BYTES];
    char address[WIRE_ADDRESS_BYTES];
    char advertise[WIRE_ADDRESS_BYTES];
    uint64_t memory;
    uint32_t act_ms;
    char trace_out[513];
    char certs[513];
    bool insecure;
    bool network_only;
    uint32_t backend; /* enum kernels_backend */
    uint32_t device, devices;
    char data[513];
    uint32_t leave_ms;
    uint32_t notice; /* index into clouds */
    char notice_endpoint[257];
    uint32_t notice_ms;
    uint32_t connect_s;
    char failed_check[513];
    uint32_t log_level; /* enum log_level */
    /* without a cluster */
    char sample[513];
    char prompt[1025];
    uint32_t tokens;
    double temperature;
    uint32_t top_k;
    uint64_t seed;
};

static const char *const backends[] = {"cpu", "cuda", NULL};
/* After the first two, as enum notice_cloud. */
static const char *const clouds[] = {"none", "auto", "aws", "gcp", "azure", NULL};
static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};

#define AT(field) .path = #field, .offset = offsetof(struct settings, field)
#define TEXT(field) AT(field), .type = CONFIG_TEXT, .max = sizeof(((struct settings *)0)->field) - 1

static const struct config_field fields[] = {
    {TEXT(coordinator), .min = 3, .initial = "127.0.0.1:7400", .help = "host:port to attach to"},
    {TEXT(name), .help = "name for people; empty: the host's"},
    {TEXT(address),
     .help = "host:port to listen at for other workers, for a run with stages or "
             "tensor; port 0: any; empty: nobody can ask this worker, and such a run refuses it"},
    {TEXT(advertise), .help = "host:port where other workers reach it; empty: --address, or, where "
                              "that is 0.0.0.0, the host that the coordinator is called from"},
    {AT(memory), .type = CONFIG_U64, .max = INT64_MAX, .initial = "0",
     .help =
         "bytes that it may take for a stage, on a CPU; 0: what its control group has, else the "
         "machine"},
    {AT(act_ms), .type = CONFIG_U32, .max = 60000, .initial = "0",
     .help =
         "milliseconds that the forward of a stage takes at least, and its backward twice that, as "
         "in roost program --uniform; for measuring schedules on few cores"},
    {TEXT(trace_out),
     .help = "file that gets each act, wait and message as a trace event, for Perfetto; "
             "empty: none"},
    {TEXT(certs), .initial = "certs", .help = "folder of ca.crt, worker.crt and worker.key"},
    {AT(insecure), .type = CONFIG_BOOL, .initial = "false", .help = "no TLS; loopback only"},
    {AT(network_only), .type = CONFIG_BOOL, .initial = "false",
     .help = "no shared memory with processes of the same user on this machine either"},
    {AT(backend), .type = CONFIG_NAME, .names = backends, .initial = "cpu",
     .help = "what computes"},
    {AT(device), .type = CONFIG_U32, .max = 1023, .initial = "0",
     .help = "which of this machine's GPUs, counted round those of CUDA_VISIBLE_DEVICES"},
    {AT(devices), .type = CONFIG_U32, .min = 1, .max = CREW_DEVICES_MAX, .initial = "1",
     .help =
         "devices that compute one ticket together, which is pulled and pushed once for all; with "
         "cpu, of train.threads threads each"},
    {TEXT(data), .help = "this machine's data set; empty: where the spec says"},
    {AT(leave_ms), .type = CONFIG_U32, .max = 600000, .initial = "5000",
     .help = "after SIGTERM or a notice: budget of the ticket at hand"},
    {AT(notice), .type = CONFIG_NAME, .names = clouds, .initial = "auto",
     .help = "cloud that is asked whether this machine goes; auto: whichever answers at the start"},
    {TEXT(notice_endpoint), .min = 1, .initial = "http://169.254.169.254",
     .help = "where the cloud's metadata service answers"},
    {AT(notice_ms), .type = CONFIG_U32, .min = 100, .max = 600000, .initial = "5000",
     .help = "how often it is asked"},
    {AT(connect_s), .type = CONFIG_U32, .max = 86400, .initial = "0",
     .help = "give up when no run was found for so long; 0: never"},
    {TEXT(failed_check),
     .help = "file that remembers a failed check of the worker's own state, so that one that fails "
             "again right after a restart exits with 70; empty: none"},
    {AT(log_level), .type = CONFIG_NAME, .names = log_levels, .initial = "info",
     .help = "most detailed lines written"},
    {TEXT(sample), .help = "write text from the checkpoint in this folder, and exit"},
    {TEXT(prompt), .help = "of the sample"},
    {AT(tokens), .type = CONFIG_U32, .max = 1000000, .initial = "400", .help = "of the sample"},
    {AT(temperature), .type = CONFIG_REAL, .real_max = 100, .initial = "0.8",
     .help = "of the sample; 0: always the likeliest token"},
    {AT(top_k), .type = CONFIG_U32, .max = 1000000, .initial = "40",
     .help = "of the sample: among so many; 0: all"},
    {AT(seed), .type = CONFIG_U64, .max = INT64_MAX, .initial = "1", .help = "of the sample"},
};

static const struct config_table table = {fields, sizeof fields / sizeof fields[0],
                                          sizeof(struct settings)};

static enum err write_sample(const struct settings *settings, struct reason *reason)
{
    struct sample_options options = {.tokens = settings->tokens,
                                     .temperature = settings->temperature,
                                     .top_k = settings->top_k,
                                     .seed = settings->seed};
    return text_write(settings->sample, settings->prompt, &options, reason);
}

/* What is used only when there is a run, or one with stages, is wrong at once. */
static enum err check_settings(struct settings *settings, struct reason *reason)
{
    if (settings->sample[0] != 0)
        return ERR_OK;
    if (settings->name[0] == 0)
        gethostname(settings->name, sizeof settings->name - 1);
    TRY(options_check_name(settings->name, reason));
    TRY(rpc_address_check(settings->coordinator, settings->insecure, reason));
    if (settings->address[0] != 0)
        TRY(rpc_address_check(settings->address, settings->insecure, reason));
    if (settings->advertise[0] != 0)
        TRY(rpc_address_check(settings->advertise, settings->insecure, reason));
    return ERR_OK;
}

static enum err run(const struct settings *settings, struct reason *reason)
{
    struct logger logger =
        log_stderr((enum log_level)settings->log_level, options_environment("JOURNAL_STREAM", ""));
    rpc_process_init(logger.level >= LOG_LEVEL_DEBUG);
    scoped(tls_identity_release) struct tls_identity identity = {0};
    if (!settings->insecure)
        TRY(tls_identity_read(settings->certs, TLS_ROLE_WORKER, (int64_t)time_wall_s(), &identity,
                              reason));
    uint32_t device =
        settings->backend == KERNELS_CUDA
            ? devices_take((struct devices_range){settings->device, settings->devices})
            : 0;
    struct worker_config config = {
        .coordinator = settings->coordinator,
        .name = settings->name,
        .address = settings->address[0] == 0 ? NULL : settings->address,
        .advertise = settings->advertise[0] == 0 ? NULL : settings->advertise,
        .memory_bytes = settings->memory > 0 ? settings->memory : memory_limit(),
        .act_ms = settings->act_ms,
        .identity = settings->insecure ? NULL : &identity,
        .network_only = settings->network_only,
        .backend = (enum kernels_backend)settings->backend,
        .device = device,
        .devices = settings->devices,
        .data_path = settings->data[0] == 0 ? NULL : settings->data,
        .leave_ms = settings->leave_ms,
        .notice_cloud = (int)settings->notice - 2,
        .notice_endpoint = settings->notice_endpoint,
        .notice_ms = settings->notice_ms,
        .connect_s = settings->connect_s,
        .logger = &logger,
    };
    if (settings->trace_out[0] != 0)
        TRY(trace_open(settings->trace_out, settings->name, &config.trace, reason));
    enum err err = worker_run(&config, reason);
    trace_free(config.trace);
    return err;
}

int main(int argc, char **argv)
{
    /* `roost sample` becomes this program, and errors name what was called. */
    const struct options options = {program_invocation_short_name,
                                    "Attaches this machine's device to a roost cluster.", &table};
    struct settings settings;
    struct scene_memory memory = {.path = settings.failed_check};
    struct reason reason = {0};
    bool check_only = false;
    file_standard_open();
    file_faults_explain();
    enum err err = options_parse(&options, argc, argv, &settings, &check_only, &reason);
    if (err == ERR_OK)
        err = check_settings(&settings, &reason);
    if (err == ERR_OK && settings.failed_check[0] != 0)
        scene_remember(&memory);
    if (err == ERR_OK && !check_only)
        err = settings.sample[0] != 0 ? write_sample(&settings, &reason) : run(&settings, &reason);
    if (err == ERR_OK)
        err = options_printed(&reason);
    if (err != ERR_OK)
        options_complain(&options, err, &reason);
    return options_exit_code(err);
}
