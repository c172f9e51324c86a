/* Members of a place in processes of their own, over shared memory. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "common/time.h"
#include "worker/collective_links.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS_MAX = 4, ELEMENTS = 50000, WORKS = 20 };

static void add_floats(void *context, void *out, const void *left, const void *right, size_t count)
{
    float *sums = out;
    const float *a = left, *b = right;
    (void)context;
    for (size_t i = 0; i < count; i++)
        sums[i] = a[i] + b[i];
}

static float value_of(uint32_t rank, uint32_t work, uint64_t index)
{
    return rand_uniform(rand_key(work, RAND_DATA, rank), index % 977) * 1e3f - 3e2f;
}

static float sum_of(uint32_t ranks, uint32_t work, uint64_t i)
{
    float left = value_of(0, work, i) + value_of(1, work, i);
    return ranks == 2 ? left : left + (value_of(2, work, i) + value_of(3, work, i));
}

struct pairs {
    uint32_t ranks;
    int sockets[RANKS_MAX][RANKS_MAX]; /* each rank's end of a pair */
    uint32_t dies, dies_at; /* which rank kills itself before that work; none: UINT32_MAX */
};

static void pairs_init(struct pairs *pairs, uint32_t ranks)
{
    *pairs = (struct pairs){.ranks = ranks, .dies = UINT32_MAX};
    for (uint32_t a = 0; a < ranks; a++)
        for (uint32_t b = a + 1; b < ranks; b++) {
            int pair[2];
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
            pairs->sockets[a][b] = pair[0];
            pairs->sockets[b][a] = pair[1];
        }
}

/* What belongs to other ranks; a socket ends when the last process that has it does. */
static void close_others(const struct pairs *pairs, uint32_t own)
{
    for (uint32_t a = 0; a < pairs->ranks; a++)
        for (uint32_t b = 0; b < pairs->ranks; b++)
            if (a != own && a != b)
                close(pairs->sockets[a][b]);
}

struct member {
    struct shared_link *links[RANKS_MAX];
    struct collective_links *carrier;
    float array[ELEMENTS];
};

static void member_init(struct member *member, const struct pairs *pairs, uint32_t rank)
{
    static const struct shared_link_options options = {
        .ring_bytes = 32768, .payload_bytes_max = ELEMENTS * sizeof(float), .spins = 100};
    struct reason reason;
    uint64_t deadline = time_after_ms(time_now_ns(), 10000);
    for (uint32_t other = 0; other < pairs->ranks; other++) {
        int socket = pairs->sockets[rank][other];
        if (other > rank)
            check(shared_link_offer(socket, &options, &member->links[other], &reason) == ERR_OK);
        else if (other < rank)
            check(shared_link_take(socket, &options, deadline, &member->links[other], &reason) ==
                  ERR_OK);
    }
    const struct collective_links_options own = {
        .running = {1, 1, pairs->ranks, rank, ELEMENTS, sizeof(float)}, .links = member->links};
    check(collective_links_new(&own, &member->carrier, &reason) == ERR_OK);
}

static void member_release(struct member *member)
{
    collective_links_free(member->carrier);
    for (uint32_t i = 0; i < RANKS_MAX; i++)
        shared_link_free(member->links[i]);
}

static enum err one_work(struct member *member, const struct pairs *pairs, uint32_t rank,
                         uint32_t number, uint32_t *ret_blamed)
{
    struct reason reason;
    const struct running_work work = {
        .collective = {.kind = COLLECTIVE_ALL_REDUCE,
                       .way = number % 2 == 0 ? COLLECTIVE_DIRECT : COLLECTIVE_HALVING,
                       .ranks = pairs->ranks,
                       .elements = ELEMENTS - 1000 * number},
        .element_bytes = sizeof(float),
        .array = member->array,
        .add = add_floats,
        .deadline_ns = time_after_ms(time_now_ns(), 10000)};
    for (uint64_t i = 0; i < work.collective.elements; i++)
        member->array[i] = value_of(rank, number, i);
    TRY(collective_links_run(member->carrier, &work, ret_blamed, &reason));
    for (uint64_t i = 0; i < work.collective.elements; i++) {
        float sum = sum_of(pairs->ranks, number, i);
        check(memcmp(&sum, &member->array[i], sizeof sum) == 0);
    }
    return ERR_OK;
}

/* The member's whole life. */
static enum err live(const struct pairs *pairs, uint32_t rank, uint32_t *ret_blamed)
{
    static struct member member; /* of this process */
    enum err err = ERR_OK;
    memset(&member, 0, sizeof member);
    member_init(&member, pairs, rank);
    for (uint32_t number = 0; number < WORKS && err == ERR_OK; number++) {
        if (pairs->dies == rank && pairs->dies_at == number)
            raise(SIGKILL);
        err = one_work(&member, pairs, rank, number, ret_blamed);
    }
    member_release(&member);
    return err;
}

static void all_live(struct pairs *pairs, enum err expected)
{
    pid_t children[RANKS_MAX];
    uint32_t blamed;
    for (uint32_t rank = 1; rank < pairs->ranks; rank++) {
        children[rank] = fork();
        assert_true(children[rank] >= 0);
        if (children[rank] == 0) {
            close_others(pairs, rank);
            _exit((int)live(pairs, rank, &blamed));
        }
    }
    close_others(pairs, 0);
    assert_int_equal(live(pairs, 0, &blamed), expected);
    for (uint32_t rank = 1; rank < pairs->ranks; rank++) {
        int status;
        assert_int_equal(waitpid(children[rank], &status, 0), children[rank]);
        if (rank == pairs->dies)
            assert_true(WIFSIGNALED(status));
        else
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == (int)expected);
    }
}

TEST(two_processes_sum_as_the_tree_does)
{
    struct pairs pairs;
    pairs_init(&pairs, 2);
    all_live(&pairs, ERR_OK);
}

TEST(four_processes_sum_as_the_tree_does)
{
    struct pairs pairs;
    pairs_init(&pairs, 4);
    all_live(&pairs, ERR_OK);
}

TEST(a_member_that_is_killed_ends_the_collective_of_all)
{
    struct pairs pairs;
    pairs_init(&pairs, 4);
    pairs.dies = 2;
    pairs.dies_at = 5;
    all_live(&pairs, ERR_UNREACHABLE);
}
