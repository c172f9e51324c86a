/* A worker's loop before it has a run, over real loopback sockets; the coordinator is this file.
 * All the rest of the loop is run by the simulator (tests/sim/sim_worker.c). */
#include "worker/worker.h"

#include "tests/unit/rpc_fixture.h"
#include "worker/notice_watch.h"

enum { DESCRIBED };

struct coordinator_fixture {
    struct tally tally;
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct rpc_method method;
    const enum err *answers; /* to one Describe after another */
};

/* The worker is started without a cloud. */
enum err notice_watch_new(const struct notice_watch_config *config, struct notice_watch **ret_watch,
                          struct reason *reason)
{
    (void)config, (void)ret_watch, (void)reason;
    return ERR_UNSUPPORTED;
}

void notice_watch_free(struct notice_watch *watch)
{
    (void)watch;
}

static void describe(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct coordinator_fixture *world = owner;
    rpc_fail(request, world->answers[tally_of(&world->tally, DESCRIBED)], "as the test wants it");
    tally_add(&world->tally, DESCRIBED);
}

/* What the worker ends with, whose Describes are answered so. */
static enum err run_worker(struct coordinator_fixture *world, const enum err *answers)
{
    struct logger logger = {.fd = -1};
    struct reason reason = {0};
    char address[32];
    tally_init(&world->tally);
    world->answers = answers;
    world->method = (struct rpc_method){.path = "/roost.v1.Cluster/Describe",
                                        .kind = RPC_UNARY,
                                        .roles = TLS_ROLES_ALL,
                                        .owner = world,
                                        .requested = describe};
    struct rpc_settings settings = rpc_settings_default();
    settings.threads = 1;
    world->loop = loop_new(&settings);
    world->server = server_new(world->loop, NULL, &world->method, 1);
    snprintf(address, sizeof address, "127.0.0.1:%u", rpc_server_port(world->server));
    const struct worker_config config = {
        .coordinator = address, .name = "w", .notice_cloud = -2, .logger = &logger};
    enum err err = worker_run(&config, &reason);
    rpc_server_free(world->server);
    rpc_loop_free(world->loop);
    tally_release(&world->tally);
    return err;
}

/* A coordinator that stops cancels what it has not answered. */
TEST(who_attaches_asks_again_after_a_cancelled_call)
{
    static const enum err answers[] = {ERR_CANCELLED, ERR_NO_RUN, ERR_DENIED};
    struct coordinator_fixture world = {0};
    assert_int_equal(run_worker(&world, answers), ERR_DENIED);
    assert_int_equal(world.tally.counts[DESCRIBED], 3);
}
