/* roost cert: the cluster's CA and certificates. */
#include "common/rpc/tls.h"
#include "common/time.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"

enum { DAY_S = 86400, DAYS_MAX = 3650 };

struct cert_options {
    const char *dir;
    struct tls_certificates wanted;
    const char *hosts[TLS_HOSTS_MAX];
    const char *revoked; /* a certificate's file */
};

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    struct cert_options *options = state->input;
    int64_t seconds;
    switch (key) {
    case 'd':
        options->dir = argument;
        return 0;
    case 'c':
        options->wanted.cluster = argument;
        return 0;
    case 'r':
        options->wanted.role = tls_role_of_name(argument);
        if (options->wanted.role == TLS_ROLE_NONE)
            argp_error(state, "role %s is none of server, worker, operator", argument);
        return 0;
    case 'n':
        options->wanted.name = argument;
        return 0;
    case 'h':
        if (options->wanted.host_count == TLS_HOSTS_MAX)
            argp_error(state, "more than %d hosts", TLS_HOSTS_MAX);
        options->hosts[options->wanted.host_count++] = argument;
        return 0;
    case 'R':
        options->revoked = argument;
        return 0;
    case 'D':
        seconds = (int64_t)(arguments_positive(argument, "days", DAYS_MAX, state) * DAY_S);
        options->wanted.valid_s = seconds > 0 ? seconds : 1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int command_cert(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"dir", 'd', "DIR", 0, "where they lie (certs)", 0},
        {"cluster", 'c', "NAME", 0, "name of a new CA's cluster (roost)", 0},
        {"role", 'r', "ROLE", 0,
         "server, worker or operator; default: one of each, and of each machine in DIR", 0},
        {"name", 'n', "NAME", 0, "the holder's name; default: the role", 0},
        {"host", 'h', "HOST", 0,
         "a name or address workers reach a server by; repeatable, earlier ones stay", 0},
        {"days", 'D', "N", 0, "validity (30)", 0},
        {"revoke", 'R', "FILE", 0, "add that certificate to DIR/revoked, which servers read again",
         0},
        {0},
    };
    static const struct argp own = {.options = options, .parser = parse_option};
    struct cert_options chosen = {.dir = "certs"};
    const struct arguments_about about = {
        .own = &own,
        .own_input = &chosen,
        .summary =
            "Makes the cluster's CA in DIR, if there is none, and issues certificates, each in a "
            "folder for the machine that needs it: DIR/server, DIR/worker, DIR/operator; with "
            "--name DIR/ROLE-NAME. Without --role and --name those of machines that lie in DIR are "
            "issued anew as well, but for revoked ones. ca.key stays here."};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    chosen.wanted.hosts = chosen.hosts;
    chosen.wanted.now_s = (int64_t)time_wall_s();
    enum err err = chosen.revoked != NULL
                       ? tls_revoke(chosen.dir, chosen.revoked, chosen.wanted.now_s, &reason)
                       : tls_make_cluster_certificates(chosen.dir, &chosen.wanted, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s%s\n", chosen.dir, chosen.revoked != NULL ? "/revoked" : "");
    return EXIT_SUCCESS;
}
