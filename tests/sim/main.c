/* sim SEED [--trace] [--mutate NAME]       one seed, in this process: for a debugger
 * sim --seeds A-B [--jobs N] [--mutate NAME]   many, each job a process of its own, watched by this
 *     one: a check() that fails ends only that process, and the seed is known
 * sim --mutations                          the bugs that can be planted
 * sim --story FILE                         a run whose plan is written down, told as sentences
 *
 * Exit status: 0 nothing found, 1 a violation, 2 usage. */
#include "tests/sim/sim.h"

#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JOBS_MAX = 64 };

struct arguments {
    bool one;
    uint64_t first, last;
    unsigned jobs;
    bool trace;
    enum mutation mutation;
};

/* Between the supervising process and its jobs. */
struct shared {
    struct progress jobs[JOBS_MAX];
    volatile bool stop;
};

static int usage(void)
{
    fprintf(stderr, "usage: sim SEED [--trace] [--mutate NAME]\n"
                    "       sim --seeds A-B [--jobs N] [--mutate NAME]\n"
                    "       sim --mutations\n"
                    "       sim --story FILE\n");
    return 2;
}

static int list_mutations(void)
{
    for (int i = 1; i < MUTATION_COUNT; i++)
        printf("%-18s %s\n", mutation_name((enum mutation)i), mutation_text((enum mutation)i));
    return 0;
}

static bool parse_number(const char *text, const char *end, uint64_t *ret_number)
{
    char *stopped;
    *ret_number = strtoull(text, &stopped, 10);
    return stopped != text && stopped == end;
}

static bool parse_range(const char *text, struct arguments *arguments)
{
    const char *dash = strchr(text, '-');
    return dash != NULL && parse_number(text, dash, &arguments->first) &&
           parse_number(dash + 1, dash + strlen(dash), &arguments->last) &&
           arguments->first <= arguments->last;
}

static bool parse_jobs(const char *text, unsigned *ret_jobs)
{
    uint64_t jobs;
    if (!parse_number(text, text + strlen(text), &jobs) || jobs == 0 || jobs > JOBS_MAX)
        return false;
    *ret_jobs = (unsigned)jobs;
    return true;
}

static bool parse(int count, char **words, struct arguments *ret_arguments)
{
    bool ok = count > 1, chosen = false;
    *ret_arguments = (struct arguments){.jobs = 1};
    for (int i = 1; ok && i < count; i++) {
        const char *value = i + 1 < count ? words[i + 1] : "";
        if (strcmp(words[i], "--trace") == 0) {
            ret_arguments->trace = true;
        } else if (strcmp(words[i], "--seeds") == 0) {
            ok = chosen = parse_range(value, ret_arguments);
            i++;
        } else if (strcmp(words[i], "--jobs") == 0) {
            ok = parse_jobs(value, &ret_arguments->jobs);
            i++;
        } else if (strcmp(words[i], "--mutate") == 0) {
            ret_arguments->mutation = mutation_find(value);
            ok = ret_arguments->mutation < MUTATION_COUNT;
            i++;
        } else {
            const char *end = words[i] + strlen(words[i]);
            ok = chosen = ret_arguments->one = parse_number(words[i], end, &ret_arguments->first);
        }
    }
    return ok && chosen;
}

static const struct kernels *open_kernels(void)
{
    const struct kernels *kernels;
    char reason[256];
    const struct kernels_options options = {.gemm_core = "auto", .gemm_threads = 1};
    if (!kernels_new(&options, &kernels, reason, sizeof reason)) {
        fprintf(stderr, "sim: %s\n", reason);
        exit(1);
    }
    return kernels;
}

static int run_one(const struct arguments *arguments)
{
    struct progress progress = {0};
    const struct kernels *kernels = open_kernels();
    const struct sim_options options = {.mutation = arguments->mutation,
                                        .trace = arguments->trace,
                                        .kernels = kernels,
                                        .progress = &progress};
    sim_run(arguments->first, &options);
    printf("seed %llu: nothing found, %llu events, %llu duplicates, %llu rewinds, "
           "%llu adopted\n",
           (unsigned long long)arguments->first, (unsigned long long)progress.events,
           (unsigned long long)progress.duplicates, (unsigned long long)progress.rewinds,
           (unsigned long long)progress.adopted);
    kernels_free(kernels);
    return 0;
}

static int run_story(const char *path)
{
    struct progress progress = {0};
    struct story *story = story_read(path);
    if (story == NULL)
        return 2;
    const struct kernels *kernels = open_kernels();
    const struct sim_options options = {.kernels = kernels, .progress = &progress, .story = story};
    sim_run(1, &options);
    bool whole = story_print(story);
    kernels_free(kernels);
    story_free(story);
    return whole ? 0 : 1;
}

/* ---- many ---- */

static void run_job(const struct arguments *arguments, struct shared *shared, unsigned job)
{
    const struct kernels *kernels = open_kernels();
    const struct sim_options options = {
        .mutation = arguments->mutation, .kernels = kernels, .progress = &shared->jobs[job]};
    for (uint64_t seed = arguments->first + job; seed <= arguments->last && !shared->stop;
         seed += arguments->jobs)
        sim_run(seed, &options);
    kernels_free(kernels);
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Waits for the jobs; returns how many found something. */
static unsigned watch(struct shared *shared, const pid_t *jobs, unsigned count)
{
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        int status;
        pid_t pid = wait(&status);
        unsigned job = 0;
        while (job < count && jobs[job] != pid)
            job++;
        if (job == count || status == 0)
            continue;
        found++;
        shared->stop = true;
        if (WIFSIGNALED(status))
            printf("seed %llu event %llu: %s (signal %d)\n",
                   (unsigned long long)shared->jobs[job].seed,
                   (unsigned long long)shared->jobs[job].event,
                   WTERMSIG(status) == SIGKILL ? "killed" : "invariant 7: a check failed",
                   WTERMSIG(status));
    }
    return found;
}

static void add(struct progress *sum, const struct progress *one)
{
    sum->seeds += one->seeds;
    sum->shared += one->shared;
    sum->found += one->found;
    sum->events += one->events;
    sum->duplicates += one->duplicates;
    sum->wrong_bits += one->wrong_bits;
    sum->busy += one->busy;
    sum->rewinds += one->rewinds;
    sum->adopted += one->adopted;
    sum->speculative += one->speculative;
    sum->audits += one->audits;
    sum->skipped += one->skipped;
    sum->moved += one->moved;
    sum->too_small += one->too_small;
    sum->left += one->left;
    if (one->calm_us_max > sum->calm_us_max)
        sum->calm_us_max = one->calm_us_max;
    for (int kind = 0; kind < FAULT_KIND_COUNT; kind++)
        sum->faults[kind] += one->faults[kind];
    for (int state = 0; state < STATE_COUNT; state++)
        for (int event = 0; event < MEETING_COUNT; event++)
            sum->met[state][event] += one->met[state][event];
}

static void print_pairs(const struct progress *sum)
{
    printf("seeds in which a state met an event:\n%20s", "");
    for (int event = 0; event < MEETING_COUNT; event++)
        printf("%9s", meeting_text((enum meeting_event)event));
    for (int state = 0; state < STATE_COUNT; state++) {
        printf("\n%20s", state_text((enum state)state));
        for (int event = 0; event < MEETING_COUNT; event++)
            printf("%9llu", (unsigned long long)sum->met[state][event]);
    }
    printf("\n");
}

static void print_summary(const struct progress *sum, unsigned found, double took)
{
    printf("%llu seeds, %u violations, %.1f s, %.0f seeds/s, %llu events\n",
           (unsigned long long)sum->seeds, found, took, (double)sum->seeds / took,
           (unsigned long long)sum->events);
    printf("%10llu seeds with leases that several workers share\n",
           (unsigned long long)sum->shared);
    for (int kind = 0; kind < FAULT_KIND_COUNT; kind++)
        printf("%10llu %s\n", (unsigned long long)sum->faults[kind],
               fault_text((enum fault_kind)kind));
    printf("%10llu duplicates, %llu noticed to differ, %llu BUSY, %llu rewinds, %llu "
           "adopted, %llu speculative tickets, %llu audits, %llu steps skipped\n",
           (unsigned long long)sum->duplicates, (unsigned long long)sum->wrong_bits,
           (unsigned long long)sum->busy, (unsigned long long)sum->rewinds,
           (unsigned long long)sum->adopted, (unsigned long long)sum->speculative,
           (unsigned long long)sum->audits, (unsigned long long)sum->skipped);
    printf("%10llu chunks moved, %llu servers left, %llu workers too small for a stage\n",
           (unsigned long long)sum->moved, (unsigned long long)sum->left,
           (unsigned long long)sum->too_small);
    print_pairs(sum);
    printf("longest from the last fault to the end: %.1f s of fake time\n",
           (double)sum->calm_us_max / 1e6);
    if (found == 0 && sum->seeds > 0) /* the rule of three: Hanley and Lippman-Hand 1983 */
        printf("share of seeds that would find something: below %.2g (3/n, 95 %%)\n",
               3.0 / (double)sum->seeds);
}

static int run_many(const struct arguments *arguments)
{
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t jobs[JOBS_MAX];
    double begun = seconds();
    check(shared != MAP_FAILED);
    for (unsigned job = 0; job < arguments->jobs; job++) {
        jobs[job] = fork();
        check(jobs[job] >= 0);
        if (jobs[job] == 0) {
            run_job(arguments, shared, job);
            exit(0);
        }
    }
    unsigned found = watch(shared, jobs, arguments->jobs);
    struct progress sum = {0};
    for (unsigned job = 0; job < arguments->jobs; job++)
        add(&sum, &shared->jobs[job]);
    print_summary(&sum, found, seconds() - begun);
    munmap(shared, sizeof *shared);
    return found > 0 ? 1 : 0;
}

int main(int count, char **words)
{
    struct arguments arguments;
    /* Large arrays that are hardly touched: from the system each time, never zeroed by hand. */
    mallopt(M_MMAP_THRESHOLD, 256 * 1024);
    if (count == 2 && strcmp(words[1], "--mutations") == 0)
        return list_mutations();
    if (count == 3 && strcmp(words[1], "--story") == 0)
        return run_story(words[2]);
    if (!parse(count, words, &arguments))
        return usage();
    return arguments.one ? run_one(&arguments) : run_many(&arguments);
}
