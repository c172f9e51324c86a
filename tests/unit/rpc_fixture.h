/* For tests of the transport: a CA with identities, waiting with a limit, counted bytes that tell
 * when they are released. */
#ifndef ROOST_TESTS_UNIT_RPC_FIXTURE_H
#define ROOST_TESTS_UNIT_RPC_FIXTURE_H

#include "common/rpc/rpc.h"
#include "common/thread.h"
#include "common/time.h"
#include "tests/unit/unit.h"

#define UNUSED __attribute__((unused))
enum { FIXTURE_WAIT_MS = 20000 }; /* nothing here takes so long unless it hangs */

/* ---- Waiting: numbers that threads raise and a test waits for ---- */

struct tally {
    struct thread_mutex lock; /* guards `counts` */
    struct thread_cond changed;
    unsigned counts[8];
};

UNUSED static void tally_init(struct tally *tally)
{
    memset(tally, 0, sizeof *tally);
    thread_mutex_init(&tally->lock);
    thread_cond_init(&tally->changed);
}

UNUSED static void tally_release(struct tally *tally)
{
    thread_cond_release(&tally->changed);
    thread_mutex_release(&tally->lock);
}

UNUSED static void tally_add(struct tally *tally, unsigned what)
{
    thread_lock(&tally->lock);
    tally->counts[what]++;
    thread_wake_all(&tally->changed);
    thread_unlock(&tally->lock);
}

UNUSED static unsigned tally_of(struct tally *tally, unsigned what)
{
    thread_lock(&tally->lock);
    unsigned count = tally->counts[what];
    thread_unlock(&tally->lock);
    return count;
}

/* Waits until counts[what] >= count. */
UNUSED static void tally_wait(struct tally *tally, unsigned what, unsigned count)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), FIXTURE_WAIT_MS);
    thread_lock(&tally->lock);
    enum err err = ERR_OK;
    while (tally->counts[what] < count && err == ERR_OK)
        err = thread_wait_locked(&tally->changed, &tally->lock, deadline_ns);
    unsigned got = tally->counts[what];
    thread_unlock(&tally->lock);
    if (got < count)
        fail_msg("waited %d ms for count %u to be %u; it is %u", FIXTURE_WAIT_MS, what, count, got);
}

/* ---- Counted bytes ---- */

struct counted_tally {
    struct tally *tally;
    unsigned what;
};

UNUSED static void counted_tallied(struct counted *counted, void *owner)
{
    struct counted_tally *released = owner;
    free(counted);
    tally_add(released->tally, released->what);
}

/* Bytes i * 7 + seed; tells `released` when they are free. */
UNUSED static struct counted *counted_filled(size_t bytes, uint8_t seed,
                                             struct counted_tally *released)
{
    struct counted *counted = counted_new(bytes);
    assert_non_null(counted);
    for (size_t i = 0; i < bytes; i++)
        counted->data[i] = (uint8_t)(i * 7 + seed);
    counted->released = counted_tallied;
    counted->owner = released;
    return counted;
}

/* ---- Identities, all in memory ---- */

struct authority {
    struct buf certificate, key;
};

UNUSED static int64_t fixture_now_s(void)
{
    return (int64_t)(time_wall_ns() / 1000000000);
}

UNUSED static struct authority authority_new(const char *cluster)
{
    struct authority authority = {0};
    struct reason reason = {0};
    int64_t now_s = fixture_now_s() - 86400; /* old enough to have issued what is expired now */
    enum err err =
        tls_ca_create(cluster, now_s, 2 * 86400, &authority.certificate, &authority.key, &reason);
    if (err != ERR_OK)
        fail_msg("%s", reason.text);
    return authority;
}

UNUSED static void authority_release(struct authority *authority)
{
    buf_release(&authority->certificate);
    buf_release(&authority->key);
}

/* An identity of `cluster` issued at `now_s` for an hour, which believes in `trusted`. */
UNUSED static struct tls_identity identity_new(const struct authority *issuer,
                                               const struct authority *trusted,
                                               struct tls_holder holder, int64_t now_s)
{
    struct tls_identity identity = {.holder = holder};
    struct tls_request request = {.holder = holder, .now_s = now_s, .valid_s = 3600};
    struct reason reason = {0};
    enum err err = tls_issue(buf_slice(&issuer->certificate), buf_slice(&issuer->key), &request,
                             &identity.certificate, &identity.key, &reason);
    if (err == ERR_OK)
        err = buf_append(&identity.ca, trusted->certificate.data, trusted->certificate.bytes + 1);
    if (err != ERR_OK)
        fail_msg("%s", reason.text);
    identity.ca.bytes--;
    snprintf(identity.path, sizeof identity.path, "%s.crt", tls_role_name(holder.role));
    identity.not_before_s = 0;
    identity.not_after_s = INT64_MAX; /* so that the other end is the one to refuse it */
    return identity;
}

UNUSED static struct tls_identity identity_of_role(const struct authority *authority,
                                                   const char *cluster, enum tls_role role)
{
    struct tls_holder holder = {.role = role};
    snprintf(holder.cluster, sizeof holder.cluster, "%s", cluster);
    snprintf(holder.name, sizeof holder.name, "test-%s", tls_role_name(role));
    return identity_new(authority, authority, holder, fixture_now_s());
}

/* ---- Server and channel, or the test fails ---- */

UNUSED static struct rpc_loop *loop_new(const struct rpc_settings *settings)
{
    struct rpc_loop *loop = NULL;
    assert_int_equal(rpc_loop_new(settings, &loop), ERR_OK);
    return loop;
}

UNUSED static struct rpc_server *server_new(struct rpc_loop *loop,
                                            const struct tls_identity *identity,
                                            const struct rpc_method *methods, size_t method_count)
{
    struct rpc_server_config config = {.loop = loop,
                                       .address = "127.0.0.1:0",
                                       .identity = identity,
                                       .methods = methods,
                                       .method_count = method_count};
    struct rpc_server *server = NULL;
    struct reason reason = {0};
    if (rpc_server_new(&config, &server, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return server;
}

UNUSED static struct rpc_channel *channel_new(struct rpc_loop *loop, unsigned port,
                                              const struct tls_identity *identity)
{
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct rpc_channel *channel = NULL;
    struct reason reason = {0};
    if (rpc_channel_new(loop, address, identity, &channel, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return channel;
}

/* ---- The program: its main(), unless it has one of its own ---- */

#ifndef RPC_FIXTURE_OWN_MAIN
int main(void)
{
    rpc_process_init(false);
    return unit_run(NULL, NULL);
}
#endif

#endif
