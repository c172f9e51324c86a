#include "worker/worker_places.h"

#include "common/time.h"
#include "worker/worker_compute.h"

enum { PEER_ANSWER_MS = 5000 /* keepalive finds a vanished machine within 9 s */ };

static void log_address(const struct worker *worker)
{
    const char *address = peers_address(worker->peers);
    struct log_field security =
        log_text("security", worker->config->identity != NULL ? "mutual TLS"
                                                              : "nothing is checked (--insecure)");
    if (rpc_is_everywhere(address))
        log_info(worker->config->logger, "other workers may ask", log_text("address", address),
                 security,
                 log_text("next", "the coordinator names the host that this worker calls from"));
    else
        log_info(worker->config->logger, "other workers may ask", log_text("address", address),
                 security);
}

static void on_unreachable(void *worker, uint64_t attempt, uint64_t member)
{
    worker_post(worker, &(struct worker_event){.kind = EVENT_UNREACHABLE,
                                               .unreachable = {attempt, member}});
}

enum err worker_places_open(struct worker *worker)
{
    const struct worker_config *config = worker->config;
    if (!spec_mesh_is_shared(&worker->run.spec.mesh))
        return ERR_OK;
    if (config->address == NULL)
        return reason_set(&worker->failure, ERR_INVALID,
                          "workers of this run share tickets, and no other worker can reach this "
                          "one: set --address");
    const struct peers_options options = {.loop = worker->loop,
                                          .identity = config->identity,
                                          .address = config->address,
                                          .advertise = config->advertise,
                                          .spec = &worker->run.spec,
                                          .model = &worker->run.model,
                                          .answer_ms = PEER_ANSWER_MS,
                                          .lanes = worker->run.lanes,
                                          .context = worker,
                                          .unreachable = on_unreachable,
                                          .waits = worker_compute_waits,
                                          .logger = config->logger};
    TRY(peers_new(&options, &worker->peers, &worker->failure));
    log_address(worker);
    return ERR_OK;
}

enum err worker_places_may_join(struct worker *worker)
{
    const struct tls_identity *identity = worker->config->identity;
    if (worker->peers == NULL || identity == NULL)
        return ERR_OK;
    return tls_identity_serves(identity, (int64_t)time_wall_s(), &worker->failure);
}

/* Whoever said at its join that others can reach it is granted places, nobody else. */
static enum err take_lease(struct worker *worker, const struct agent_effect *effect)
{
    if (worker->peers == NULL)
        return reason_set(&worker->failure, ERR_INVALID,
                          "a place was granted to a worker that nobody can ask");
    enum err err = peers_lease(peers_lane(worker->peers, effect->lane), worker->member,
                               &effect->ticket, &effect->place, &effect->places);
    return err == ERR_OK
               ? ERR_OK
               : reason_set(&worker->failure, err, "cannot keep a lease: %s", err_text(err));
}

void worker_places_carry_out(struct worker *worker, const struct agent_effect *effect)
{
    if (effect->kind == AGENT_LEASE) {
        enum err err = take_lease(worker, effect);
        if (err != ERR_OK)
            agent_lease_failed(worker->agent, err);
    } else if (worker->peers == NULL) {
        return;
    } else if (effect->kind == AGENT_GENERATION) {
        peers_generation(worker->peers, effect->generation);
    } else if (effect->kind == AGENT_KEEP) {
        peers_keep(worker->peers, effect->keep.attempts, effect->keep.count);
    } else {
        peers_places(worker->peers, &effect->places);
    }
}
