/* All-reduce among processes of this machine, ours against one that is written for the purpose:
 *
 *   bench_collective [ROUNDS [PASSES [MEBIBYTES]]]
 *
 * Among 2 and 4 processes: our schedules over shared memory, and over loopback TCP, beside halving and
 * doubling by hand over TCP, which adds what it receives block by block and copies what it can into
 * place. Each round runs every case once in fresh processes; a ratio is the median of the rounds'
 * ratios of the hand-written one's time to ours. */
#include "common/arena.h"
#include "common/scoped.h"
#include "common/time.h"
#include "tests/bench/pair.h"
#include "worker/collective_links.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    RANKS_MAX = 4,
    ROUNDS_MAX = 101,
    BLOCK = 128 * 1024,
    RING = 1 << 20,
    WARM = 2,
    HEADER_MAX = 256,
};

enum carrier { BY_HAND, TCP, SHARED };

struct bench_case {
    const char *name;
    enum carrier carrier;
    enum collective_way way;
};
static const struct bench_case cases[] = {
    {"by hand", BY_HAND, COLLECTIVE_HALVING},       {"tcp direct", TCP, COLLECTIVE_DIRECT},
    {"tcp halving", TCP, COLLECTIVE_HALVING},       {"shared direct", SHARED, COLLECTIVE_DIRECT},
    {"shared halving", SHARED, COLLECTIVE_HALVING},
};
enum { CASES = sizeof cases / sizeof cases[0] };

struct bench {
    const struct bench_case *about;
    uint32_t ranks, rank;
    unsigned passes;
    size_t elements;
    float *array;
    int sockets[RANKS_MAX];
    uint8_t *block; /* BLOCK + one element */
};

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

/* ---- ours over TCP: a header's length, the header, the payload ---- */

struct tcp_lane {
    struct running_effect sends[2];
    uint32_t send_count;
    struct buf head; /* of the first */
    size_t written;  /* of head and payload */
    uint8_t header[HEADER_MAX];
    size_t header_bytes; /* that have come, with the length */
    uint64_t coming;
};

struct tcp {
    struct bench *bench;
    struct running *running;
    struct tcp_lane lanes[RANKS_MAX];
    struct running_effect held;
};

static bool tcp_send(struct tcp *tcp, uint32_t to)
{
    struct tcp_lane *lane = &tcp->lanes[to];
    const struct running_effect *effect = &lane->sends[0];
    if (lane->written == 0) {
        uint8_t length = 0;
        lane->head.bytes = 0;
        check(buf_append(&lane->head, &length, 1) == ERR_OK);
        check(wire_encode_part(&effect->part, &lane->head) == ERR_OK);
        lane->head.data[0] = (uint8_t)(lane->head.bytes - 1);
    }
    bool in_head = lane->written < lane->head.bytes;
    size_t at = in_head ? lane->written : lane->written - lane->head.bytes;
    const uint8_t *from = in_head ? lane->head.data : effect->bytes;
    size_t left = (in_head ? lane->head.bytes : (size_t)effect->part.bytes) - at;
    size_t count = left == 0 ? 0
                             : moved(send(tcp->bench->sockets[to], from + at, left,
                                          MSG_DONTWAIT | MSG_NOSIGNAL | (in_head ? MSG_MORE : 0)));
    lane->written += count;
    if (lane->written == lane->head.bytes + effect->part.bytes) {
        lane->written = 0;
        lane->sends[0] = lane->sends[1];
        lane->send_count--;
        running_sent(tcp->running, to);
    }
    return count > 0;
}

static bool tcp_header(struct tcp *tcp, uint32_t from)
{
    struct tcp_lane *lane = &tcp->lanes[from];
    size_t wanted = lane->header_bytes == 0 ? 1 : 1 + (size_t)lane->header[0];
    size_t count = moved(recv(tcp->bench->sockets[from], lane->header + lane->header_bytes,
                              wanted - lane->header_bytes, MSG_DONTWAIT));
    lane->header_bytes += count;
    if (lane->header_bytes > 1 && lane->header_bytes == 1 + (size_t)lane->header[0]) {
        scoped(arena_release) struct arena arena = {.bytes_max = 4096};
        struct part part;
        check(wire_decode_part((struct slice){lane->header + 1, lane->header[0]}, &arena, &part,
                               NULL) == ERR_OK);
        check(running_part(tcp->running, from, &part, NULL) == ERR_OK);
        lane->coming = part.bytes;
        lane->header_bytes = 0;
    }
    return count > 0;
}

static bool tcp_receive(struct tcp *tcp, uint32_t from)
{
    struct tcp_lane *lane = &tcp->lanes[from];
    if (lane->coming == 0)
        return tcp_header(tcp, from);
    size_t room = lane->coming < BLOCK ? (size_t)lane->coming : BLOCK;
    size_t count = moved(recv(tcp->bench->sockets[from], tcp->bench->block, room, MSG_DONTWAIT));
    running_payload(tcp->running, from, tcp->bench->block, count);
    lane->coming -= count;
    return count > 0;
}

static bool tcp_wants(const struct tcp *tcp, uint32_t from)
{
    return tcp->lanes[from].coming > 0 || running_waits_for(tcp->running, from);
}

static void tcp_move(struct tcp *tcp)
{
    struct pollfd polls[RANKS_MAX];
    bool any = false;
    for (uint32_t i = 0; i < tcp->bench->ranks; i++)
        if (i != tcp->bench->rank) {
            any |= tcp->lanes[i].send_count > 0 && tcp_send(tcp, i);
            any |= tcp_wants(tcp, i) && tcp_receive(tcp, i);
        }
    for (uint32_t i = 0; i < tcp->bench->ranks; i++)
        polls[i] = (struct pollfd){
            .fd = i == tcp->bench->rank ? -1 : tcp->bench->sockets[i],
            .events = (short)((tcp->lanes[i].send_count > 0 ? POLLOUT : 0) |
                              (i != tcp->bench->rank && tcp_wants(tcp, i) ? POLLIN : 0))};
    if (!any)
        check(poll(polls, tcp->bench->ranks, 10) >= 0);
}

static void by_tcp(struct tcp *tcp, const struct running_work *work)
{
    struct running_effect *held = &tcp->held;
    check(running_begin(tcp->running, work, NULL) == ERR_OK);
    for (;;) {
        while (held->kind == RUNNING_SEND || running_next(tcp->running, time_now_ns(), held)) {
            if (held->kind != RUNNING_SEND) {
                check(held->kind == RUNNING_DONE);
                held->kind = 0;
                return;
            }
            struct tcp_lane *lane = &tcp->lanes[held->rank];
            if (lane->send_count == 2)
                break;
            lane->sends[lane->send_count++] = *held;
            held->kind = 0;
        }
        tcp_move(tcp);
    }
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

/* So many all-reduces; those after the first ones are timed, of the member that returns last. */
static double member_seconds(struct bench *bench)
{
    static struct tcp tcp; /* of this process, which does nothing else */
    struct shared_link *links[RANKS_MAX] = {NULL};
    struct collective_links *carrier = NULL;
    const struct running_options running = {
        1, 1, bench->ranks, bench->rank, bench->elements, sizeof(float)};
    const struct shared_link_options shared = {RING, bench->elements * sizeof(float), 1000};
    struct running_work work = {.collective = {.kind = COLLECTIVE_ALL_REDUCE,
                                               .way = bench->about->way,
                                               .ranks = bench->ranks,
                                               .elements = bench->elements},
                                .element_bytes = sizeof(float),
                                .array = bench->array,
                                .add = add_floats,
                                .deadline_ns = TIME_NEVER};
    size_t bytes;
    uint32_t blamed;
    uint64_t began_ns = 0;
    check(running_bytes(&running, &bytes, NULL) == ERR_OK);
    tcp = (struct tcp){.bench = bench, .running = NULL};
    for (uint32_t i = 0; i < bench->ranks && bench->about->carrier == SHARED; i++)
        if (i > bench->rank)
            check(shared_link_offer(bench->sockets[i], &shared, &links[i], NULL) == ERR_OK);
        else if (i < bench->rank)
            check(shared_link_take(bench->sockets[i], &shared, TIME_NEVER, &links[i], NULL) ==
                  ERR_OK);
    if (bench->about->carrier == SHARED) {
        const struct collective_links_options options = {running, links};
        check(collective_links_new(&options, &carrier, NULL) == ERR_OK);
    } else {
        tcp.running = running_init(&running, aligned_alloc(64, bytes));
    }
    for (unsigned pass = 0; pass < WARM + bench->passes; pass++) {
        if (pass == WARM)
            began_ns = time_now_ns();
        if (pass == 0)
            prepare(bench);
        if (bench->about->carrier == BY_HAND)
            by_hand(bench);
        else if (bench->about->carrier == TCP)
            by_tcp(&tcp, &work);
        else
            check(collective_links_run(carrier, &work, &blamed, NULL) == ERR_OK);
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

static void member_process(struct bench *bench, int sockets[RANKS_MAX][RANKS_MAX], int result)
{
    memcpy(bench->sockets, sockets[bench->rank], sizeof bench->sockets);
    bench->array = aligned_alloc(64, bench->elements * sizeof(float));
    bench->block = aligned_alloc(64, BLOCK + 64);
    check(bench->array != NULL && bench->block != NULL);
    double seconds = member_seconds(bench);
    check(write(result, &seconds, sizeof seconds) == sizeof seconds);
    _exit(0);
}

/* The longest of the members' times. */
static double run_case(struct bench *bench)
{
    int sockets[RANKS_MAX][RANKS_MAX] = {{0}}, pair[2], results[2], status;
    double longest = 0, seconds;
    check(pipe(results) == 0);
    for (uint32_t a = 0; a < bench->ranks; a++)
        for (uint32_t b = a + 1; b < bench->ranks; b++) {
            if (bench->about->carrier == SHARED)
                check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
            else
                connect_tcp(pair);
            sockets[a][b] = pair[0];
            sockets[b][a] = pair[1];
        }
    for (bench->rank = 0; bench->rank < bench->ranks; bench->rank++)
        if (fork() == 0)
            member_process(bench, sockets, results[1]);
    close(results[1]);
    for (uint32_t i = 0; i < bench->ranks; i++) {
        check(read(results[0], &seconds, sizeof seconds) == sizeof seconds);
        longest = seconds > longest ? seconds : longest;
    }
    for (uint32_t i = 0; i < bench->ranks; i++)
        check(wait(&status) > 0 && status == 0);
    for (uint32_t a = 0; a < bench->ranks; a++)
        for (uint32_t b = 0; b < bench->ranks; b++)
            if (a != b)
                close(sockets[a][b]);
    close(results[0]);
    return longest;
}

static void run_all(struct bench *bench, unsigned rounds)
{
    static double seconds[CASES][ROUNDS_MAX], ratios[CASES][ROUNDS_MAX];
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned which = 0; which < CASES; which++) {
            bench->about = &cases[which];
            seconds[which][round] = run_case(bench);
            ratios[which][round] = seconds[0][round] / seconds[which][round];
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
    printf("all-reduce of %u MiB, medians of %u rounds\n", mebibytes, rounds);
    printf("ranks, case, milliseconds, GB/s of the array, times as fast as by hand\n");
    for (uint32_t ranks = 2; ranks <= RANKS_MAX; ranks *= 2) {
        struct bench bench = {.ranks = ranks,
                              .passes = passes,
                              .elements = (size_t)mebibytes * (1 << 20) / sizeof(float)};
        run_all(&bench, rounds);
    }
    return 0;
}
