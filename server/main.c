/* roostd: the daemon (server.h). */
#include "common/file.h"
#include "common/settings/options.h"
#include "server/server.h"

#include <stddef.h>

static const char *const log_levels[] = {"error", "warning", "info", "debug", NULL};

#define AT(field) .path = #field, .offset = offsetof(struct server_settings, field)
#define TEXT(field)                                                                                \
    AT(field), .type = CONFIG_TEXT, .max = sizeof(((struct server_settings *)0)->field) - 1
#define NUMBER(field) AT(field), .type = CONFIG_U32

static const struct config_field fields[] = {
    {TEXT(address), .min = 3, .initial = "127.0.0.1:7400", .help = "host:port to listen on"},
    {TEXT(advertise),
     .help = "host:port where others reach it, named in its certificate; empty: the address"},
    {TEXT(dir), .min = 1, .initial = "/var/lib/roost", .help = "folder of the daemon's own state"},
    {TEXT(run_dir),
     .help =
         "folder of a run that names none, later ones in run-2, run-3, ... in it; empty: DIR/run"},
    {TEXT(continue_only),
     .help = "of interrupted runs only the one of this directory goes on by itself; empty: any"},
    {TEXT(coordinator), .help = "host:port of the coordinator; empty: this daemon is it"},
    {TEXT(name), .help = "its name in the cluster; empty: the host's"},
    {TEXT(certs), .initial = "certs", .help = "folder of ca.crt, server.crt and server.key"},
    {TEXT(revoked),
     .help = "file that lists revoked certificates; empty: revoked beside server.crt"},
    {AT(insecure), .type = CONFIG_BOOL, .initial = "false", .help = "no TLS; loopback only"},
    {AT(no_chunks), .type = CONFIG_BOOL, .initial = "false",
     .help = "the coordinator's: other daemons hold all chunks, and outlive it"},
    {NUMBER(shards), .max = 1024, .initial = "0", .help = "shard threads; 0: one per core"},
    {NUMBER(lease_ms), .min = 1000, .max = 600000, .initial = "10000",
     .help = "a worker that is silent for longer is lost"},
    {NUMBER(heartbeat_ms), .max = 60000, .initial = "0",
     .help =
         "how often workers and the coordinator say that they live, at most half of lease_ms; 0: "
         "five times in a lease"},
    {NUMBER(stop_ms), .max = 600000, .initial = "15000",
     .help = "how long a stop waits for the step in flight and its checkpoint, or for chunks to "
             "move away"},
    {NUMBER(speculation_percent), .max = 10000, .initial = "200",
     .help = "a ticket is given to an idle worker as well after this share of its usual time"},
    {NUMBER(speculation_ms_min), .max = 600000, .initial = "100", .help = "and not before this"},
    {NUMBER(certificate_members_max), .min = 1, .max = 4096, .initial = "1024",
     .help = "workers that may be there with one certificate"},
    {AT(log_level), .type = CONFIG_NAME, .names = log_levels, .initial = "info",
     .help = "most detailed lines written"},
};

static const struct config_table table = {fields, sizeof fields / sizeof fields[0],
                                          sizeof(struct server_settings)};

int main(int argc, char **argv)
{
    static const struct options options = {
        "roostd", "Owns shards of a roost cluster's weights, and coordinates it.", &table};
    struct server_settings settings;
    struct reason reason = {0};
    bool check_only = false;
    file_standard_open();
    file_faults_explain();
    enum err err = options_parse(&options, argc, argv, &settings, &check_only, &reason);
    if (err == ERR_OK)
        err = server_check(&settings, &reason);
    if (err == ERR_OK && !check_only)
        err = server_run(&settings, &reason);
    if (err == ERR_OK)
        err = options_printed(&reason);
    if (err != ERR_OK)
        options_complain(&options, err, &reason);
    return options_exit_code(err);
}
