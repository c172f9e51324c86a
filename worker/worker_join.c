/* Describe, and what its reply needs here; Join. */
#include "worker/worker_join.h"

#include "common/scoped.h"
#include "worker/worker_calls.h"
#include "worker/worker_compute.h"
#include "worker/worker_link.h"
#include "worker/worker_places.h"

void worker_join_log_memory(struct worker *worker)
{
    struct executor_memory memory = executor_memory(worker->run.executors[0]);
    if (memory.total <= worker->memory_logged)
        return;
    worker->memory_logged = memory.total;
    log_info(worker->config->logger, "memory taken", log_uint("weights_bytes", memory.weights),
             log_uint("gradients_bytes", memory.gradients),
             log_uint("activations_bytes", memory.activations),
             log_uint("local_bytes", memory.local), log_uint("scratch_bytes", memory.scratch),
             log_uint("logits_bytes", memory.logits), log_uint("workspace_bytes", memory.workspace),
             log_uint("total_bytes", memory.total), log_uint("hosted_bytes", memory.hosted),
             log_uint("kept_bytes", memory.kept), log_uint("sums_bytes", memory.sums),
             log_uint("lanes", worker_run_lanes(&worker->run, worker->run.stage)));
}

static void take_gradients(void *context)
{
    encoder_lock(((struct worker *)context)->encoder);
}

static void give_gradients(void *context)
{
    encoder_unlock(((struct worker *)context)->encoder);
}

enum err worker_join_run(struct worker *worker, const struct describe_reply *description)
{
    if (worker->has_run)
        return worker_run_is_same(&worker->run, description, &worker->failure);
    struct worker_run_options options = {
        .pool = rpc_loop_pool(worker->loop),
        .memory_bytes = worker->config->memory_bytes,
        .act_ms = worker->config->act_ms,
        .backend = worker->config->backend,
        .device = worker->config->device,
        .devices = worker->config->devices,
        .lock = {worker, take_gradients, give_gradients},
        .data_path = worker->config->data_path,
        .channel = worker->channel,
        .logger = worker->config->logger,
    };
    TRY(worker_run_open(description, &options, &worker->run, &worker->failure));
    worker->has_run = true;
    if (worker->run.executors[0] != NULL)
        worker_join_log_memory(worker);
    TRY(worker_places_open(worker));
    for (uint32_t i = 0; i < worker->run.lanes; i++)
        TRY(worker_lane_open(&worker->lanes[i]));
    struct agent_config agent = {
        .model = &worker->run.model,
        .push_codec = worker->run.push_codec,
        .weights_codec = worker->run.weights_codec,
        .async = worker->run.async,
        .streamed = worker->run.spec.train.residency.weights == SPEC_STREAMED,
        .mesh = worker->run.spec.mesh,
        .leases = spec_place_leases(&worker->run.spec),
        .seed = rand_next(&worker->jitter),
    };
    for (uint32_t stage = 0; stage < worker->run.mesh.places; stage++)
        agent.lanes[stage] = worker_run_lanes(&worker->run, stage);
    return agent_new(&agent, &worker->agent);
}

static enum err chunk_servers(const struct model *model, const struct describe_reply *description,
                              uint32_t **ret_servers, struct reason *reason)
{
    uint32_t *servers = malloc(model->chunks_count * sizeof *servers);
    if (servers == NULL)
        return ERR_NOMEM;
    memset(servers, 0xff, model->chunks_count * sizeof *servers);
    for (uint32_t i = 0; i < description->range_count; i++) {
        const struct chunk_range *range = &description->ranges[i];
        bool known = range->server < description->server_count &&
                     description->servers[range->server].address[0] != 0;
        for (uint32_t c = 0; c < range->count && range->first + c < model->chunks_count; c++)
            servers[range->first + c] = known ? range->server : UINT32_MAX;
    }
    for (uint32_t c = 0; c < model->chunks_count; c++)
        if (servers[c] == UINT32_MAX) {
            free(servers);
            return reason_set(reason, ERR_NO_RUN, "chunk %u has no server yet", c);
        }
    *ret_servers = servers;
    return ERR_OK;
}

static enum err join(struct worker *worker)
{
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
    scoped(free_scoped) uint32_t *servers = NULL;
    struct describe_reply description;
    struct join_reply reply;
    TRY(worker_call_describe(worker, &arena, &response, &description));
    if (worker_call_is_over(&description)) {
        agent_run_over(worker->agent, worker_now_ms());
        return ERR_OK;
    }
    TRY(worker_join_run(worker, &description));
    TRY(chunk_servers(&worker->run.model, &description, &servers, &worker->failure));
    TRY(worker_places_may_join(worker));
    TRY(worker_call_join(worker, &reply));
    worker_links_free(worker);
    worker_call_forget(worker);
    worker->membership++;
    worker->member = reply.member;
    worker->secret = reply.secret;
    worker->heartbeat_ms = reply.heartbeat_ms;
    if (reply.generation != description.generation) /* of a run that may have other settings now */
        return reason_set(&worker->failure, ERR_OLD_GENERATION,
                          "generation %llu began while this worker joined",
                          (unsigned long long)reply.generation);
    if (worker->peers != NULL)
        peers_joined(worker->peers, reply.lease_ms);
    TRY(worker_link_member(worker));
    TRY(worker_links_open(worker, &description));
    check(worker->link_count == description.server_count);
    struct agent_map map = {description.map_number, description.server_count, servers,
                            description.generation};
    agent_joined(worker->agent, worker_now_ms(), &reply, &map);
    char device[64];
    worker_run_device(&worker->run, device, sizeof device);
    log_info(worker->config->logger, "joined", log_uint("member", reply.member),
             log_uint("run", reply.run), log_uint("generation", reply.generation),
             log_uint("servers", description.server_count), log_text("device", device));
    return ERR_OK;
}

void worker_join(struct worker *worker)
{
    enum err err = join(worker);
    if (err == ERR_OK)
        return;
    worker_call_failed(worker, "join failed", err);
    agent_join_failed(worker->agent, worker_now_ms(), err);
}

static enum err take_map(struct worker *worker, struct slice response)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 8 * WIRE_CONTROL_BYTES_MAX};
    scoped(free_scoped) uint32_t *servers = NULL;
    struct describe_reply description;
    TRY(worker_call_described(worker, &arena, response, &description));
    if (worker_call_is_over(&description)) {
        agent_run_over(worker->agent, worker_now_ms());
        return ERR_OK;
    }
    TRY(chunk_servers(&worker->run.model, &description, &servers, &worker->failure));
    if (agent_takes_map(worker->agent, description.generation, description.map_number))
        TRY(worker_links_change(worker, &description));
    struct agent_map map = {description.map_number, description.server_count, servers,
                            description.generation};
    agent_mapped(worker->agent, worker_now_ms(), &map);
    return ERR_OK;
}

void worker_join_mapped(struct worker *worker, enum err err, struct slice response)
{
    if (err == ERR_OK)
        err = take_map(worker, response);
    if (err == ERR_OK)
        return;
    worker_call_failed(worker, "map not renewed", err);
    agent_map_failed(worker->agent, worker_now_ms(), err);
}
