/* All-reduce among processes of this machine, ours beside others:
 *
 *   bench_collective [ROUNDS [PASSES [MEBIBYTES]]]
 *
 * Among 2 and 4 processes. "by hand": halving and doubling over loopback TCP, which adds what it
 * receives block by block. "gloo": PyTorch's, over loopback TCP. "shared": what the members of a place
 * on one machine do, values by name over streams with TLS, whose messages go through shared memory.
 * "tls": the same members on two machines, over loopback. Each round runs every case once in fresh
 * processes; a ratio is the median of the rounds' ratios of the faster one of the first two's time to
 * ours. */
#include "common/time.h"
#include "tests/bench/rounds.h"
#include "tests/models.h"
#include "worker/collective/walk.h"
#include "worker/peers.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS_MAX = 4,
    BLOCK = 128 * 1024,
    WARM = 2,
    ANSWER_MS = 60000,
};

enum carrier { BY_HAND, GLOO, SHARED, TLS };

struct bench_case {
    const char *name;
    enum carrier carrier;
};
static const struct bench_case cases[] = {
    {"by hand", BY_HAND}, {"gloo", GLOO}, {"shared", SHARED}, {"tls", TLS}};
enum { CASES = sizeof cases / sizeof cases[0] };

struct bench {
    const struct bench_case *about;
    const struct tls_identity *identity; /* of all members */
    uint32_t ranks, rank;
    unsigned passes;
    size_t elements;
    float *array;
    int sockets[RANKS_MAX];
    int told, result; /* pipes from and to the parent */
    uint8_t *block;   /* BLOCK + one element */
};

/* What a member tells the parent before it begins. */
struct told {
    uint32_t rank;
    uint16_t port;
};

static struct collective collective_of(const struct bench *bench)
{
    return (struct collective){.kind = COLLECTIVE_ALL_REDUCE,
                               .way = COLLECTIVE_HALVING,
                               .ranks = bench->ranks,
                               .elements = bench->elements};
}

static void add_floats(void *context, void *out, const void *left, const void *right, size_t count)
{
    float *sums = out;
    const float *a = left, *b = right;
    (void)context;
    for (size_t i = 0; i < count; i++)
        sums[i] = a[i] + b[i];
}

/* ---- by hand ---- */

struct way {
    uint8_t *at;
    size_t left;
};

static size_t moved(ssize_t count)
{
    check(count > 0 || (count < 0 && errno == EAGAIN));
    return count > 0 ? (size_t)count : 0;
}

/* Adds whole elements of what has come, and keeps the begun one at the block's beginning. */
static size_t add_block(const struct bench *bench, struct way *in, size_t there)
{
    size_t whole = there / sizeof(float) * sizeof(float);
    add_floats(NULL, in->at, in->at, bench->block, whole / sizeof(float));
    memmove(bench->block, bench->block + whole, there - whole);
    in->at += whole;
    in->left -= whole;
    return there - whole;
}

/* Both ways at once. */
static void swap_by_hand(const struct bench *bench, int socket, struct way out, struct way in,
                         bool adds)
{
    size_t rest = 0;
    while (out.left > 0 || in.left > 0) {
        struct pollfd both = {
            .fd = socket,
            .events = (short)((out.left > 0 ? POLLOUT : 0) | (in.left > 0 ? POLLIN : 0))};
        check(poll(&both, 1, -1) == 1);
        if (both.revents & POLLOUT) {
            size_t count = moved(send(socket, out.at, out.left, MSG_DONTWAIT | MSG_NOSIGNAL));
            out.at += count;
            out.left -= count;
        }
        if ((both.revents & POLLIN) && adds) {
            size_t room = in.left - rest < BLOCK ? in.left - rest : BLOCK;
            rest = add_block(bench, &in,
                             rest + moved(recv(socket, bench->block + rest, room, MSG_DONTWAIT)));
        } else if (both.revents & POLLIN) {
            size_t count = moved(recv(socket, in.at, in.left, MSG_DONTWAIT));
            in.at += count;
            in.left -= count;
        }
    }
}

static void by_hand(struct bench *bench)
{
    uint8_t *at = (uint8_t *)bench->array;
    size_t bytes = bench->elements * sizeof(float);
    uint32_t bit = 1;
    for (; bit < bench->ranks; bit *= 2) {
        bytes /= 2;
        bool right = bench->rank & bit;
        swap_by_hand(bench, bench->sockets[bench->rank ^ bit],
                     (struct way){right ? at : at + bytes, bytes},
                     (struct way){right ? at + bytes : at, bytes}, true);
        at += right ? bytes : 0;
    }
    while ((bit /= 2) > 0) {
        bool right = bench->rank & bit;
        swap_by_hand(bench, bench->sockets[bench->rank ^ bit], (struct way){at, bytes},
                     (struct way){right ? at - bytes : at + bytes, bytes}, false);
        at -= right ? bytes : 0;
        bytes *= 2;
    }
}

/* ---- ours: the carrier that the members of a place have ---- */

struct member {
    struct peers *peers;
    struct spec spec;
    struct model model;
    uint32_t sequence;
};

static void on_unreachable(void *context, uint64_t attempt, uint64_t member)
{
    (void)context, (void)attempt;
    fprintf(stderr, "member %u does not answer\n", (unsigned)member);
}

/* Tells the parent the port, and hears everybody's. */
static void swap_ports(const struct bench *bench, uint16_t own, uint16_t ret_all[RANKS_MAX])
{
    const struct told told = {bench->rank, own};
    check(write(bench->result, &told, sizeof told) == sizeof told);
    check(read(bench->told, ret_all, RANKS_MAX * sizeof *ret_all) ==
          (ssize_t)(RANKS_MAX * sizeof *ret_all));
}

static void lease_place(const struct bench *bench, struct member *member)
{
    struct peer peers[RANKS_MAX] = {{0}};
    struct digest shown;
    uint16_t ports[RANKS_MAX];
    check(tls_certificate_digest(buf_slice(&bench->identity->certificate), &shown) == ERR_OK);
    swap_ports(bench, (uint16_t)strtoul(strrchr(peers_address(member->peers), ':') + 1, NULL, 10),
               ports);
    for (uint32_t i = 0; i < bench->ranks; i++) {
        peers[i] = (struct peer){.rank = i, .try_number = 1, .member = 1 + i};
        memcpy(peers[i].certificate, shown.bytes, sizeof shown.bytes);
        snprintf(peers[i].address, sizeof peers[i].address, "127.0.0.1:%u", (unsigned)ports[i]);
    }
    const struct ticket ticket = {.kind = TICKET_TRAIN, .generation = 1, .attempt = 1};
    const struct places places = {1, 1, bench->ranks, peers};
    const struct place place = {
        .stages = 1, .rank = bench->rank, .ranks = bench->ranks, .try_number = 1};
    struct peers_lane *lane = peers_lane(member->peers, 0);
    check(peers_lease(lane, 1 + bench->rank, &ticket, &place, &places) == ERR_OK);
    peers_reach(lane);
}

static void member_begin(const struct bench *bench, struct member *member)
{
    static const struct logger silent = {LOG_LEVEL_ERROR, -1};
    const struct rounds_case about = {.shared = bench->about->carrier == SHARED};
    struct rpc_settings settings = rounds_settings(&about);
    struct rpc_loop *loop = NULL;
    struct reason reason = {{0}};
    member->spec = (struct spec){
        .model = {.kind = SPEC_MLP, .sizes_count = 3, .sizes = {2, 8, 3}, .pieces = bench->ranks},
        .train = {.slots = 1, .slot_samples = 1, .microbatch = 1},
        .mesh = {.stages = 1, .ranks = bench->ranks, .schedule = SCHEDULE_1F1B, .runs = 1},
    };
    member->model = model_of(member->spec.model);
    peers_settings(&settings);
    rpc_process_init(false);
    check(rpc_loop_new(&settings, &loop) == ERR_OK);
    const struct peers_options options = {.loop = loop,
                                          .identity = bench->identity,
                                          .address = "127.0.0.1:0",
                                          .spec = &member->spec,
                                          .model = &member->model,
                                          .answer_ms = ANSWER_MS,
                                          .lanes = 1,
                                          .unreachable = on_unreachable,
                                          .logger = &silent};
    if (peers_new(&options, &member->peers, &reason) != ERR_OK)
        fprintf(stderr, "%s\n", reason.text);
    check(member->peers != NULL);
    lease_place(bench, member);
}

static enum err give(void *context, uint32_t round, const void *bytes, size_t count)
{
    struct member *member = context;
    return peers_give_part(peers_lane(member->peers, 0), member->sequence, round, bytes, count);
}

static enum err take(void *context, uint32_t rank, uint32_t round, void *ret_bytes, size_t count)
{
    struct member *member = context;
    const struct executor_part part = {member->sequence, round, rank};
    return peers_take_part(peers_lane(member->peers, 0), &part, ret_bytes, count);
}

static enum err lend(void *context, uint32_t rank, uint32_t round, void *scratch, size_t count,
                     const void **ret_bytes)
{
    struct member *member = context;
    const struct executor_part part = {member->sequence, round, rank};
    return peers_lend_part(peers_lane(member->peers, 0), &part, scratch, count, ret_bytes);
}

static void expect(void *context, uint32_t rank, uint32_t round, size_t count)
{
    struct member *member = context;
    const struct executor_part part = {member->sequence, round, rank};
    peers_expect_part(peers_lane(member->peers, 0), &part, count);
}

static void by_peers(const struct bench *bench, struct member *member, void *memory)
{
    const struct walk_work work = {.collective = collective_of(bench),
                                   .element_bytes = sizeof(float),
                                   .array = bench->array,
                                   .add = add_floats};
    const struct walk_carrier carrier = {give, take, member, lend, expect};
    member->sequence++;
    check(walk_collective(&work, bench->rank, &carrier, memory) == ERR_OK);
}

/* ---- a member ---- */

static void prepare(struct bench *bench)
{
    for (size_t i = 0; i < bench->elements; i++)
        bench->array[i] = (float)(i % 97 + bench->rank);
}

static void judge(const struct bench *bench)
{
    uint32_t of_ranks = bench->ranks * (bench->ranks - 1) / 2;
    for (size_t i = 0; i < bench->elements; i++)
        check(bench->array[i] == (float)(i % 97 * bench->ranks + of_ranks));
}

/* So many all-reduces; those after the first ones are timed. */
static double member_seconds(struct bench *bench)
{
    static struct member member; /* of this process, which does nothing else */
    bool ours = bench->about->carrier != BY_HAND;
    const struct collective collective = collective_of(bench);
    void *memory = aligned_alloc(64, walk_bytes(&collective, bench->rank, sizeof(float)) + 64);
    uint64_t began_ns = 0;
    check(memory != NULL);
    if (ours)
        member_begin(bench, &member);
    for (unsigned pass = 0; pass < WARM + bench->passes; pass++) {
        if (pass == WARM)
            began_ns = time_now_ns();
        if (pass == 0)
            prepare(bench);
        if (ours)
            by_peers(bench, &member, memory);
        else
            by_hand(bench);
        if (pass == 0)
            judge(bench);
    }
    return (double)(time_now_ns() - began_ns) / 1e9 / bench->passes;
}

/* ---- processes ---- */

static void connect_tcp(int ret_pair[static 2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    check(bind(listener, (const struct sockaddr *)&address, bytes) == 0);
    check(listen(listener, 1) == 0);
    check(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    ret_pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(connect(ret_pair[0], (const struct sockaddr *)&address, bytes) == 0);
    ret_pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    check(ret_pair[1] >= 0);
    for (int i = 0; i < 2; i++)
        check(setsockopt(ret_pair[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    close(listener);
}

static void member_process(struct bench *bench, int sockets[RANKS_MAX][RANKS_MAX])
{
    memcpy(bench->sockets, sockets[bench->rank], sizeof bench->sockets);
    bench->array = aligned_alloc(64, bench->elements * sizeof(float));
    bench->block = aligned_alloc(64, BLOCK + 64);
    check(bench->array != NULL && bench->block != NULL);
    double seconds = member_seconds(bench);
    check(write(bench->result, &seconds, sizeof seconds) == sizeof seconds);
    pause(); /* others may still take what it gave */
}

/* Each member's port to all of them. */
static void tell_ports(const struct bench *bench, int results, const int tells[RANKS_MAX])
{
    uint16_t ports[RANKS_MAX] = {0};
    struct told told;
    for (uint32_t i = 0; i < bench->ranks; i++) {
        check(read(results, &told, sizeof told) == sizeof told && told.rank < bench->ranks);
        ports[told.rank] = told.port;
    }
    for (uint32_t i = 0; i < bench->ranks; i++)
        check(write(tells[i], ports, sizeof ports) == sizeof ports);
}

/* The longest of the members' times. */
static double run_members(struct bench *bench)
{
    int sockets[RANKS_MAX][RANKS_MAX] = {{0}}, pair[2], results[2], tells[RANKS_MAX], status;
    pid_t members[RANKS_MAX];
    double longest = 0, seconds;
    check(pipe(results) == 0);
    bench->result = results[1];
    for (uint32_t a = 0; a < bench->ranks; a++)
        for (uint32_t b = a + 1; b < bench->ranks; b++) {
            connect_tcp(pair);
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    for (bench->rank = 0; bench->rank < bench->ranks; bench->rank++) {
        check(pipe(pair) == 0);
        tells[bench->rank] = pair[1];
        bench->told = pair[0];
        members[bench->rank] = fork();
        if (members[bench->rank] == 0)
            member_process(bench, sockets);
        close(pair[0]);
    }
    close(results[1]);
    if (bench->about->carrier != BY_HAND)
        tell_ports(bench, results[0], tells);
    for (uint32_t i = 0; i < bench->ranks; i++) {
        check(read(results[0], &seconds, sizeof seconds) == sizeof seconds);
        longest = seconds > longest ? seconds : longest;
    }
    for (uint32_t i = 0; i < bench->ranks; i++) {
        kill(members[i], SIGKILL);
        check(waitpid(members[i], &status, 0) == members[i]);
        close(tells[i]);
    }
    for (uint32_t a = 0; a < bench->ranks; a++)
        for (uint32_t b = 0; b < bench->ranks; b++)
            if (a != b)
                close(sockets[a][b]);
    close(results[0]);
    return longest;
}

/* PyTorch's, between processes of its own; it prints the seconds of one. */
static double run_gloo(const struct bench *bench)
{
    char command[160];
    double seconds = 0;
    snprintf(command, sizeof command, "/usr/bin/python3 tests/bench/gloo.py %u %u %zu",
             (unsigned)bench->ranks, bench->passes, bench->elements);
    FILE *out = popen(command, "r");
    check(out != NULL);
    bool told = fscanf(out, "%lf", &seconds) == 1;
    check(pclose(out) == 0 && told);
    return seconds;
}

static double run_case(struct bench *bench)
{
    return bench->about->carrier == GLOO ? run_gloo(bench) : run_members(bench);
}

static void run_all(struct bench *bench, unsigned rounds)
{
    static double seconds[CASES][ROUNDS_MAX], ratios[CASES][ROUNDS_MAX];
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned which = 0; which < CASES; which++) {
            bench->about = &cases[which];
            seconds[which][round] = run_case(bench);
            double rival = seconds[0][round];
            if (which > 0 && seconds[1][round] < rival)
                rival = seconds[1][round];
            ratios[which][round] = rival / seconds[which][round];
        }
    for (unsigned which = 0; which < CASES; which++) {
        double median = pair_median(seconds[which], rounds);
        printf("%u  %-14s  %8.2f  %8.2f  %6.2f\n", bench->ranks, cases[which].name, median * 1e3,
               (double)bench->elements * sizeof(float) / median / 1e9,
               pair_median(ratios[which], rounds));
    }
}

int main(int argc, char **argv)
{
    unsigned rounds = argc > 1 ? (unsigned)atoi(argv[1]) : 7;
    unsigned passes = argc > 2 ? (unsigned)atoi(argv[2]) : 20;
    unsigned mebibytes = argc > 3 ? (unsigned)atoi(argv[3]) : 16;
    if (rounds < 1 || rounds > ROUNDS_MAX || passes < 1 || mebibytes < 1 || mebibytes > 64) {
        fprintf(stderr, "usage: bench_collective [ROUNDS [PASSES [MEBIBYTES]]]\n");
        return 2;
    }
    struct identities identities;
    identities_init(&identities);
    printf("all-reduce of %u MiB, medians of %u rounds\n", mebibytes, rounds);
    printf("ranks, case, milliseconds, GB/s of the array, times as fast as the better of the first "
           "two\n");
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        struct bench bench = {.ranks = ranks,
                              .identity = &identities.client,
                              .passes = passes,
                              .elements = (size_t)mebibytes * (1 << 20) / sizeof(float)};
        run_all(&bench, rounds);
    }
    identities_release(&identities);
    return 0;
}
