/* The operator's connection: what the errors of its calls mean, and calls that are given up. */
#include "deploy/roost/client.h"
#include "deploy/roost/command.h"
#include "tests/unit/rpc_fixture.h"

enum { ASKED };
enum { METHODS = 6 };

/* A coordinator without TLS, and its operator. */
struct client_fixture {
    struct rpc_method methods[METHODS];
    struct rpc_loop *loop;
    struct rpc_server *server;
    struct client client;
    struct client_answer answer;
    struct reason reason;
    struct tally tally;
    atomic_uint signals;
    bool hangs; /* a signal comes, and no answer */
    struct rpc_request *unanswered;
};

static void end(void *owner, struct rpc_request *request, struct slice bytes)
{
    struct client_fixture *f = owner;
    (void)bytes;
    if (!f->hangs) {
        tally_add(&f->tally, ASKED);
        rpc_fail(request, ERR_CANCELLED, "the coordinator ends");
        return;
    }
    f->unanswered = request;
    atomic_store(&f->signals, 1);
    tally_add(&f->tally, ASKED);
}

static void client_set_up(struct client_fixture *f)
{
    static const char *const paths[METHODS] = {
        "/roost.v1.Cluster/Status",  "/roost.v1.Cluster/Describe", "/roost.v1.Cluster/StartRun",
        "/roost.v1.Cluster/StopRun", "/roost.v1.Cluster/Drain",    "/roost.v1.Cluster/Checkpoint",
    };
    char address[32];
    for (size_t i = 0; i < METHODS; i++)
        f->methods[i] = (struct rpc_method){
            .path = paths[i], .roles = TLS_ROLES_ALL, .owner = f, .requested = end};
    tally_init(&f->tally);
    f->loop = loop_new(NULL);
    f->server = server_new(f->loop, NULL, f->methods, METHODS);
    snprintf(address, sizeof address, "127.0.0.1:%u", rpc_server_port(f->server));
    const struct client_options options = {.cluster = address, .insecure = true};
    assert_int_equal(client_open(&options, &f->client, &f->reason), ERR_OK);
}

static void client_tear_down(struct client_fixture *f)
{
    client_answer_release(&f->answer);
    client_release(&f->client);
    rpc_server_free(f->server);
    rpc_loop_free(f->loop);
    tally_release(&f->tally);
}

int command_fail(enum err err, const struct reason *reason)
{
    (void)err, (void)reason;
    fail();
    return 0;
}

static void assert_asked_again(struct client_fixture *f, enum err err)
{
    assert_int_equal(err, ERR_UNREACHABLE);
    assert_string_equal(f->reason.text, "the coordinator ends: ask again when it is back");
    f->reason.text[0] = 0;
}

/* Who asks at that moment is told to try again (exit code 75), whatever he asks. */
TEST_F(a_coordinator_that_ends_is_one_that_does_not_answer, client)
{
    struct status_reply status;
    struct describe_reply described;
    struct start_run_request start = {.spec = "", .directory = "", .restore = ""};
    struct start_run_reply started;
    struct drain_request drain = {.server = "b"};
    struct drain_reply drained;
    struct cut_name newest;
    assert_asked_again(f, client_status(&f->client, &f->answer, &status, &f->reason));
    assert_asked_again(f, client_describe(&f->client, &f->answer, &described, &f->reason));
    assert_asked_again(f, client_start_run(&f->client, &start, &f->answer, &started, &f->reason));
    assert_asked_again(f, client_stop_run(&f->client, "", &f->reason));
    assert_asked_again(f, client_drain(&f->client, &drain, &f->answer, &drained, &f->reason));
    assert_asked_again(f, client_checkpoint(&f->client, &newest, &f->reason));
    assert_int_equal(tally_of(&f->tally, ASKED), 6);
}

TEST_F(a_signal_gives_up_a_call_that_is_not_answered, client, .hangs = true)
{
    struct status_reply status;
    f->client.signals = &f->signals;
    assert_int_equal(client_status(&f->client, &f->answer, &status, &f->reason), ERR_UNREACHABLE);
    assert_string_equal(f->reason.text, "the coordinator had not answered when a signal came");
    tally_wait(&f->tally, ASKED, 1);
    f->hangs = false;
    rpc_fail(f->unanswered, ERR_NO_RUN, NULL); /* nobody waits for it */
    f->client.signals_heard = 1;
    assert_asked_again(f, client_stop_run(&f->client, "", &f->reason));
}
