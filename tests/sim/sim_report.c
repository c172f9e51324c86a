/* What a server reports. */
#include "tests/sim/sim.h"

#include <string.h>

void sim_report(struct sim *sim, struct sim_server *server, struct server_report *what)
{
    what->boot = server->boot;
    if (server->link == 0)
        return; /* said again when the link is back */
    network_send(sim, network_stream(sim, server->link), ACCEPTOR,
                 sim_scratch_message(sim, wire_encode_server_report(what, &sim->scratch)));
}

void sim_report_ready(struct sim *sim, struct sim_server *server)
{
    struct server_report ready = {
        .kind = SERVER_READY,
        .ready = {.cut = {server->threads[0].ledger.generation, server->committed}, .text = ""}};
    if (sim->run.async) {
        ready.ready.applied_low = server->taken.words != NULL ? server->taken.low : UINT64_MAX;
        ready.ready.applied_words =
            server->taken.words != NULL ? applied_words(server->taken.window) : 0;
        ready.ready.applied = server->taken_said;
    }
    sim_report(sim, server, &ready);
}

void sim_report_manifest(struct sim *sim, struct sim_server *server, struct cut_name cut,
                         enum err code)
{
    struct server_report *manifest = &server->manifest;
    *manifest =
        (struct server_report){.kind = SERVER_MANIFEST, .manifest = {.cut = cut, .code = code}};
    memset(manifest->manifest.digest, (int)(1 + server->index), sizeof manifest->manifest.digest);
    sim_report(sim, server, manifest);
}

void sim_report_committed(struct sim *sim, struct sim_server *server, uint64_t step)
{
    sim_report(
        sim, server,
        &(struct server_report){.kind = SERVER_COMMITTED,
                                .committed = {shard_generation(server->threads[0].shard), step}});
}

/* At once, or in two parts as from two threads. */
void sim_report_reduced(struct sim *sim, struct sim_server *server, const struct reduced *reduced)
{
    struct server_report part = {.kind = SERVER_REDUCED, .reduced = *reduced};
    uint32_t first = (uint32_t)sim_below(sim, reduced->seal_count + 1);
    if (first > 0 && first < reduced->seal_count) {
        part.reduced.seal_count = first;
        part.reduced.has_loss = false; /* the loss is the last chunk */
        sim_report(sim, server, &part);
        part.reduced.seals = reduced->seals + first;
        part.reduced.seal_count = reduced->seal_count - first;
        part.reduced.has_loss = reduced->has_loss;
    }
    sim_report(sim, server, &part);
}

/* Two workers never differ, but a push may have been spoilt on purpose. */
void sim_report_wrong_bits(struct sim *sim, struct sim_server *server,
                           const struct shard_effect *effect)
{
    struct server_report wrong = {.kind = SERVER_WRONG_BITS};
    if (!server->spoilt)
        sim_violated(sim, 13, "s%u: a push of step %llu node %u:%u chunk %u differs from the first",
                     server->index, (unsigned long long)effect->wrong_bits.step,
                     effect->wrong_bits.node.level, effect->wrong_bits.node.index,
                     effect->wrong_bits.chunk);
    wrong.wrong_bits.member = effect->wrong_bits.member;
    wrong.wrong_bits.first_member = effect->wrong_bits.first_member;
    wrong.wrong_bits.step = effect->wrong_bits.step;
    wrong.wrong_bits.node = effect->wrong_bits.node;
    wrong.wrong_bits.chunk = effect->wrong_bits.chunk;
    sim->options.progress->wrong_bits++;
    sim_report(sim, server, &wrong);
}
