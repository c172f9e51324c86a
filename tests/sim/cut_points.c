/* cut_points [--fault NAME] [--orders N] [--jobs N]
 *
 * Every crash point of the cut protocol: two servers write their files of one cut after another,
 * the coordinator writes cut.json and then the fact into the store, servers prune when they hear of
 * it; in many orders. After each change of the disk (each mkdir, create, write, fsync, rename,
 * unlink) and of the store everybody dies, by kill or by power loss, and a cluster starts on what
 * is left:
 *   1 the cut that the store names opens, and every chunk has its values;
 *   2 the newest cut that a reader of the folder finds is that one or a newer one, and whole;
 *   3 the run goes on from there: another cut is written, recorded and pruned after, and then only
 *     the `keep` newest recorded cuts are left, whole, and nothing else.
 * The code is production's (common/files/checkpoint.h, common/file.c); the order of calls is that
 * of server/disk/cut_writer.c and server/control/control_effects.c; the store is one number that
 * changes at once.
 *
 * --fault no-fsync, no-folder-sync: a disk that does not do what it should; record-early: the fact
 * is stored before cut.json is there; prune-newer: a cut that is not stored yet counts for what is
 * kept. Each must be found. Exit status: 0 nothing found, 1 a bad
 * restart, 2 usage. */
#include "common/files/checkpoint.h"
#include "common/rand.h"
#include "tests/sim/crash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SERVERS = 2,
    CHUNKS = 3,
    CUTS = 4,
    WEIGHTS = 5,
    STATES = 1,
    POWER_LOSSES = 2,
    JOBS_MAX = 64
};

enum fault { SOUND, NO_FSYNC, NO_FOLDER_SYNC, RECORD_EARLY, PRUNE_NEWER, FAULT_COUNT };
static const char *const fault_names[] = {"none", "no-fsync", "no-folder-sync", "record-early",
                                          "prune-newer"};

/* What the store says, and since which change. */
struct fact {
    size_t change;
    struct checkpoint_name cut; /* generation 0: none */
};

struct server {
    uint32_t index;
    struct checkpoint_writer *file; /* NULL: between two cuts */
    uint32_t cuts, chunks;          /* written */
    uint32_t prunes;                /* of as many recorded cuts */
    struct digest manifests[CUTS];
};

struct cluster {
    char dir[256]; /* checkpoints/ */
    uint64_t generation;
    uint32_t keep;
    enum fault fault;
    uint32_t cuts; /* how many there shall be */
    struct server servers[SERVERS];
    uint32_t written, stored; /* cut.json files; facts */
    size_t fact_count;
    struct fact facts[CUTS + 1];
    struct rand_state random;
};

static struct reason reason;

static void need(enum err err)
{
    if (err == ERR_OK)
        return;
    printf("the protocol itself fails: %s: %s\n", err_name(err), reason.text);
    exit(1);
}

/* ---- the protocol ---- */

static struct checkpoint_name name_of(const struct cluster *cluster, uint32_t cut)
{
    return (struct checkpoint_name){cluster->generation, cut};
}

static float value(struct checkpoint_name cut, uint32_t chunk, uint32_t i)
{
    return (float)(1000 * cut.generation + 100 * cut.version + 10 * chunk + i);
}

static void server_add(const struct cluster *cluster, struct server *server)
{
    struct checkpoint_name cut = name_of(cluster, server->cuts);
    uint32_t chunk = server->chunks * SERVERS + server->index;
    float values[WEIGHTS * (1 + STATES)];
    for (uint32_t i = 0; i < WEIGHTS * (1 + STATES); i++)
        values[i] = value(cut, chunk, i);
    need(checkpoint_writer_add(server->file, chunk, WEIGHTS, values, values + WEIGHTS, &reason));
    server->chunks++;
}

static struct checkpoint_name prune_from(const struct cluster *cluster, const struct server *server)
{
    struct checkpoint_name recorded = name_of(cluster, server->prunes);
    if (cluster->fault == PRUNE_NEWER)
        need(checkpoint_newest(cluster->dir, &recorded, &reason));
    return recorded;
}

/* server/disk/cut_writer.c */
static void server_step(struct cluster *cluster, struct server *server)
{
    if (server->prunes < cluster->stored && rand_below(&cluster->random, 3) == 0) {
        need(checkpoint_prune(cluster->dir, prune_from(cluster, server), cluster->keep, &reason));
        server->prunes++;
    } else if (server->cuts == cluster->cuts) {
        return;
    } else if (server->file == NULL) {
        need(checkpoint_writer_new(&file_ops_real, cluster->dir, name_of(cluster, server->cuts),
                                   server->index, (struct checkpoint_arrays){.states = STATES},
                                   &server->file, &reason));
        server->chunks = 0;
    } else if (server->chunks < CHUNKS) {
        server_add(cluster, server);
    } else {
        need(checkpoint_writer_finish(server->file, &server->manifests[server->cuts], &reason));
        checkpoint_writer_free(server->file);
        server->file = NULL;
        server->cuts++;
    }
}

static void store_fact(struct cluster *cluster)
{
    cluster->facts[cluster->fact_count++] =
        (struct fact){crash_changes(), name_of(cluster, cluster->stored++)};
    crash_note();
}

static void write_record(struct cluster *cluster)
{
    struct checkpoint_record record = {.name = name_of(cluster, cluster->written),
                                       .run = 1,
                                       .spec = "",
                                       .server_count = SERVERS,
                                       .counters = {.samples = cluster->written}};
    for (uint32_t s = 0; s < SERVERS; s++)
        record.manifests[s] = cluster->servers[s].manifests[cluster->written];
    need(checkpoint_record(&file_ops_real, cluster->dir, &record, &reason));
    cluster->written++;
}

/* server/control/control_effects.c: the file for readers, then the fact. */
static void coordinator_step(struct cluster *cluster)
{
    bool early = cluster->fault == RECORD_EARLY;
    uint32_t first = early ? cluster->stored : cluster->written;
    uint32_t second = early ? cluster->written : cluster->stored;
    for (uint32_t s = 0; s < SERVERS; s++)
        if (cluster->servers[s].cuts <= second)
            return;
    if ((first > second) != early)
        store_fact(cluster);
    else
        write_record(cluster);
}

static bool is_over(const struct cluster *cluster)
{
    bool over = cluster->stored == cluster->cuts && cluster->written == cluster->cuts;
    for (uint32_t s = 0; s < SERVERS; s++)
        over = over && cluster->servers[s].prunes == cluster->cuts;
    return over;
}

static void cluster_run(struct cluster *cluster)
{
    for (uint32_t s = 0; s < SERVERS; s++)
        cluster->servers[s].index = s;
    while (!is_over(cluster)) {
        uint64_t who = rand_below(&cluster->random, SERVERS + 1);
        if (who < SERVERS)
            server_step(cluster, &cluster->servers[who]);
        else
            coordinator_step(cluster);
    }
}

/* ---- the restart ---- */

static bool is_whole(const char *dir, struct checkpoint_name cut)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    if (checkpoint_open(dir, cut, &checkpoint, &reason) != ERR_OK ||
        checkpoint_about(checkpoint)->counters.samples != cut.version)
        return false;
    for (uint32_t chunk = 0; chunk < SERVERS * CHUNKS; chunk++) {
        struct checkpoint_chunk found;
        if (checkpoint_read(checkpoint, chunk, &found, &reason) != ERR_OK || found.n != WEIGHTS)
            return false;
        for (uint32_t i = 0; i < WEIGHTS * (1 + STATES); i++)
            if (found.values[i] != value(cut, chunk, i))
                return false;
    }
    return true;
}

static bool is_older(struct checkpoint_name a, struct checkpoint_name b)
{
    return a.generation < b.generation || (a.generation == b.generation && a.version < b.version);
}

/* Another cut, under the next generation; then only what should be there is. */
static bool goes_on(const char *dir, uint32_t keep, uint64_t seed)
{
    struct cluster cluster = {.generation = 2, .keep = keep, .cuts = 2, .random = {seed}};
    snprintf(cluster.dir, sizeof cluster.dir, "%s", dir);
    cluster_run(&cluster);
    scoped(file_names_release) struct file_names names = {0};
    need(file_list(dir, &names, &reason));
    for (size_t i = 0; i < names.count; i++) {
        struct checkpoint_name cut;
        if (sscanf(names.names[i], "g%lu-v%lu", &cut.generation, &cut.version) != 2 ||
            !is_whole(dir, cut))
            return false;
    }
    return names.count <= keep && is_whole(dir, (struct checkpoint_name){2, 1});
}

/* What is wrong; NULL: nothing. */
static const char *restart(const struct cluster *before, const char *dir, size_t changes,
                           uint64_t seed)
{
    struct checkpoint_name stored = {0, 0}, newest;
    for (size_t i = 0; i < before->fact_count; i++)
        if (before->facts[i].change < changes)
            stored = before->facts[i].cut;
    need(file_make_dirs(dir, 0755, &reason));
    if (stored.generation > 0 && !is_whole(dir, stored))
        return "the cut that the store names is not whole";
    bool found = checkpoint_newest(dir, &newest, &reason) == ERR_OK;
    if (found && (is_older(newest, stored) || !is_whole(dir, newest)))
        return "the newest recorded cut is not whole, or too old";
    return goes_on(dir, before->keep, seed) ? NULL : "the run does not go on as it should";
}

/* ---- all points of one order ---- */

static void told(uint64_t order, size_t changes, enum crash_kind kind, const char *what)
{
    printf("order %llu: crash by %s after change %zu (%s): %s: %s\n", (unsigned long long)order,
           kind == CRASH_KILL ? "kill" : "power loss", changes,
           changes > 0 ? crash_name(changes - 1) : "none", what, reason.text);
}

/* Restarts tried; 0: one was bad. */
static uint64_t try_order(uint64_t order, enum fault fault, const char *folder)
{
    static const enum crash_fault disks[] = {CRASH_SOUND, CRASH_NO_FSYNC, CRASH_NO_FOLDER_SYNC,
                                             CRASH_SOUND, CRASH_SOUND};
    struct cluster cluster = {.generation = 1,
                              .keep = 1 + (uint32_t)(order % 2),
                              .fault = fault,
                              .cuts = CUTS,
                              .random = {order}};
    char live[128], image[128], dir[256];
    uint64_t tried = 0;
    snprintf(live, sizeof live, "%s/live-%llu", folder, (unsigned long long)order);
    snprintf(image, sizeof image, "%s/image-%llu", folder, (unsigned long long)order);
    snprintf(cluster.dir, sizeof cluster.dir, "%s/checkpoints", live);
    snprintf(dir, sizeof dir, "%s/checkpoints", image);
    need(file_make_dirs(live, 0755, &reason));
    crash_begin(live, disks[fault]);
    cluster_run(&cluster);
    for (size_t changes = 0, count = crash_changes(); changes <= count; changes++) {
        for (uint64_t loss = 0; loss <= POWER_LOSSES; loss++, tried++) {
            enum crash_kind kind = loss == 0 ? CRASH_KILL : CRASH_POWER;
            uint64_t seed = order * 1000003 + changes * 31 + loss;
            reason.text[0] = 0;
            need(file_make_dirs(image, 0755, &reason));
            crash_image(changes, kind, seed, image);
            const char *what = restart(&cluster, dir, changes, seed);
            if (what != NULL) {
                told(order, changes, kind, what);
                return 0;
            }
            need(file_remove_tree(image, &reason));
        }
    }
    crash_end();
    need(file_remove_tree(live, &reason));
    return tried;
}

static int run_job(uint64_t job, uint64_t jobs, uint64_t orders, enum fault fault,
                   const char *folder)
{
    uint64_t tried = 0;
    for (uint64_t order = job; order < orders; order += jobs) {
        uint64_t more = try_order(order, fault, folder);
        if (more == 0)
            return 1;
        tried += more;
    }
    printf("%llu restarts, 0 bad\n", (unsigned long long)tried);
    return 0;
}

static int run_jobs(uint64_t jobs, uint64_t orders, enum fault fault)
{
    bool bad = false, memory = access("/dev/shm", W_OK) == 0;
    char folder[64];
    int status;
    snprintf(folder, sizeof folder, "%s/cut_points.XXXXXX", memory ? "/dev/shm" : "/tmp");
    check(mkdtemp(folder) != NULL);
    for (uint64_t job = 0; job < jobs; job++) {
        pid_t pid = fork();
        check(pid >= 0);
        if (pid == 0)
            exit(run_job(job, jobs, orders, fault, folder));
    }
    while (wait(&status) > 0)
        bad = bad || status != 0;
    need(file_remove_tree(folder, &reason));
    return bad ? 1 : 0;
}

int main(int count, char **words)
{
    uint64_t orders = 4, jobs = 1;
    int fault = SOUND;
    bool ok = count % 2 == 1;
    for (int i = 1; ok && i < count; i += 2) {
        if (strcmp(words[i], "--orders") == 0)
            orders = strtoull(words[i + 1], NULL, 10);
        else if (strcmp(words[i], "--jobs") == 0)
            jobs = strtoull(words[i + 1], NULL, 10);
        else if (strcmp(words[i], "--fault") == 0)
            for (fault = 0; fault < FAULT_COUNT && strcmp(fault_names[fault], words[i + 1]) != 0;)
                fault++;
        else
            ok = false;
    }
    if (!ok || orders == 0 || jobs == 0 || jobs > JOBS_MAX || fault == FAULT_COUNT) {
        fprintf(stderr, "usage: cut_points [--fault NAME] [--orders N] [--jobs N]\n");
        return 2;
    }
    return run_jobs(jobs, orders, (enum fault)fault);
}
