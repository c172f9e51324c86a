/* Two forked processes and the pipes between them. */
#include "tests/bench/pair.h"

#include "common/time.h"
#include "tests/bench/processor.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

struct pipes {
    int to[2];   /* questions to the server: each byte asks for its processor time */
    int from[2]; /* its port, then its answers */
    int result[2];
};

static uint64_t server_cpu_ns(const struct pair_link *link)
{
    uint64_t cpu_ns = 0;
    check(write(link->to, "?", 1) == 1);
    check(read(link->from, &cpu_ns, sizeof cpu_ns) == sizeof cpu_ns);
    return cpu_ns;
}

struct pair_clock pair_clock_start(const struct pair_link *link)
{
    uint64_t server_ns = server_cpu_ns(link);
    return (struct pair_clock){.server_cpu_began_ns = server_ns,
                               .cpu_began_ns = processor_ns(),
                               .began_ns = time_now_ns()};
}

void pair_clock_stop(const struct pair_clock *clock, const struct pair_link *link,
                     struct pair_result *result)
{
    uint64_t ns = time_now_ns() - clock->began_ns;
    uint64_t cpu_ns = processor_ns() - clock->cpu_began_ns;
    cpu_ns += server_cpu_ns(link) - clock->server_cpu_began_ns;
    result->seconds = (double)ns / 1e9;
    result->cpu_seconds = (double)cpu_ns / 1e9;
}

size_t pair_server_bytes(const struct pair_link *link)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/statm", (int)link->server);
    FILE *file = fopen(path, "r");
    check(file != NULL);
    size_t pages = 0, resident = 0;
    check(fscanf(file, "%zu %zu", &pages, &resident) == 2);
    ignore(fclose(file)); /* read only */
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

__attribute__((noreturn)) static void server_process(const struct pair_config *config,
                                                     const struct pipes *pipes)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(pipes->result[1]); /* the client's alone: its end is seen by its death too */
    unsigned port = config->serve(config->context);
    check(write(pipes->from[1], &port, sizeof port) == sizeof port);
    char byte;
    while (read(pipes->to[0], &byte, 1) == 1) {
        uint64_t cpu_ns = processor_ns();
        check(write(pipes->from[1], &cpu_ns, sizeof cpu_ns) == sizeof cpu_ns);
    }
    _exit(0);
}

__attribute__((noreturn)) static void client_process(const struct pair_config *config,
                                                     const struct pipes *pipes, pid_t server)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct pair_link link = {.to = pipes->to[1], .from = pipes->from[0], .server = server};
    struct pair_result result = {0};
    check(read(link.from, &link.port, sizeof link.port) == sizeof link.port);
    config->measure(config->context, &link, &result);
    check(write(pipes->result[1], &result, sizeof result) == sizeof result);
    _exit(0);
}

enum err pair_run(const struct pair_config *config, struct pair_result *ret_result)
{
    struct pipes pipes;
    check(pipe(pipes.to) == 0 && pipe(pipes.from) == 0 && pipe(pipes.result) == 0);
    pid_t server = fork();
    if (server == 0)
        server_process(config, &pipes);
    pid_t client = fork();
    if (client == 0)
        client_process(config, &pipes, server);
    check(server > 0 && client > 0);
    close(pipes.result[1]);
    close(pipes.from[1]);
    struct pair_result result;
    bool whole = read(pipes.result[0], &result, sizeof result) == sizeof result;
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    waitpid(client, NULL, 0);
    close(pipes.to[0]);
    close(pipes.to[1]);
    close(pipes.from[0]);
    close(pipes.result[0]);
    if (!whole)
        return ERR_IO;
    *ret_result = result;
    return ERR_OK;
}

double pair_median(double *values, unsigned count)
{
    for (unsigned i = 1; i < count; i++)
        for (unsigned j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double value = values[j];
            values[j] = values[j - 1];
            values[j - 1] = value;
        }
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
