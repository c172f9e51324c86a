/* Exchange at the server: what workers' streams say to the shard core, and its answers. */
#include "tests/sim/sim.h"

#include "common/arena.h"
#include "common/scoped.h"

/* Takes the references of the copies. */
void sim_exchange_answer(struct sim *sim, uint64_t number, const struct from_shard *message,
                         struct counted *const *take_copies, uint32_t count)
{
    struct message *bytes =
        sim_scratch_message(sim, wire_encode_from_shard(message, &sim->scratch));
    check(count <= MESSAGE_COPIES_MAX);
    for (uint32_t i = 0; i < count; i++)
        bytes->copies[bytes->copy_count++] = take_copies[i];
    network_send(sim, network_stream(sim, number), OPENER, bytes);
}

static void greet(struct sim *sim, const struct sim_server *server, struct stream *stream,
                  uint64_t member)
{
    const struct from_shard welcome = {
        .kind = FROM_SHARD_WELCOME,
        .welcome = {server->boot, server->shard != NULL ? shard_generation(server->shard) : 0}};
    stream->greeted = true;
    stream->member = member;
    sim_exchange_answer(sim, stream->number, &welcome, NULL, 0);
}

/* P2: a server without a shard is behind every generation. */
static void refuse(struct sim *sim, const struct stream *stream, const struct to_shard *message)
{
    struct from_shard refusal = {.kind = FROM_SHARD_ACK};
    if (message->kind == TO_SHARD_PUSH) {
        refusal.ack = (struct push_ack){message->push.id, ERR_BEHIND, 0};
    } else {
        refusal.kind = FROM_SHARD_REFUSAL;
        refusal.refusal = (struct pull_refusal){message->pull.id, ERR_BEHIND};
    }
    sim_exchange_answer(sim, stream->number, &refusal, NULL, 0);
}

/* A duplicate that was computed wrongly: it does no harm, but it is noticed. Once in a run, so that
 * nobody is found guilty of it. */
static bool spoil(struct sim *sim, const struct sim_server *server, struct push *push)
{
    struct push_entry *entry = (struct push_entry *)(uintptr_t)&push->entries[0];
    if (sim->calm || sim->spoilt || push->entry_count == 0 ||
        !ledger_counts(sim, server, push, entry) || sim_below(sim, 4) != 0)
        return false;
    sim->spoilt = true;
    entry->digest ^= 1;
    return true;
}

static void push(struct sim *sim, struct sim_server *server, struct stream *stream,
                 const struct message *message, const struct slice *slices, uint32_t slice_count,
                 const struct to_shard *to)
{
    struct push what = to->push;
    struct truth truth = message->truth;
    struct cursor payload = {slices, slice_count, 0, 0};
    const struct shard_statistics before = shard_statistics(server->shard);
    cursor_skip(&payload, to->payload_offset);
    what.member = stream->member;
    server->spoilt = spoil(sim, server, &what);
    mutate_push(sim, server, &what, &truth);
    server->effects.count = 0;
    shard_push(server->shard, stream->number, &what, payload, &server->effects);
    check(server->effects.count > 0 && server->effects.items[0].kind == SHARD_ACK);
    const struct push_ack ack = server->effects.items[0].ack;
    sim_trace(sim, "s%u push of step %llu node %u:%u by w%u, id %llu: %s", server->index,
              (unsigned long long)what.step, what.node.level, what.node.index, stream->worker,
              (unsigned long long)what.id, err_name(ack.code));
    sim->options.progress->duplicates +=
        shard_statistics(server->shard).duplicates - before.duplicates;
    sim->options.progress->busy += ack.code == ERR_BUSY;
    /* A sum in the order of arrival is wrong though every name is right. */
    ledger_pushed(sim, server, sim->options.mutation == MUTATE_ARRIVAL_ORDER ? &to->push : &what,
                  &truth, &ack, &before);
    mutate_pushed(sim, server, &before);
    sim_server_carry_out(sim, server, false);
}

static void pull(struct sim *sim, struct sim_server *server, struct stream *stream,
                 const struct truth *truth, const struct to_shard *to)
{
    struct pull what = to->pull;
    mutate_pull(sim, server, &what);
    server->effects.count = 0;
    shard_pull(server->shard, stream->number, &what, &server->effects);
    const struct shard_effect *effect = &server->effects.items[0];
    bool parked = effect->kind == SHARD_REFUSAL && effect->refusal.code == ERR_TOO_EARLY;
    sim_trace(sim, "s%u pull of version %llu by w%u, id %llu: %s", server->index,
              (unsigned long long)what.version, stream->worker, (unsigned long long)what.id,
              effect->kind == SHARD_WEIGHTS ? "OK" : err_name(effect->refusal.code));
    mutate_served(sim, server, to->pull.version);
    if (effect->kind == SHARD_WEIGHTS || parked)
        ledger_pulled(sim, server, truth);
    server->parked += parked;
    stream->parked += parked;
    sim_server_carry_out(sim, server, false);
    if (parked)
        faults_spring(sim, TRAP_PARK, server->index);
}

void sim_exchange_message(struct sim *sim, struct stream *stream, const struct message *message)
{
    struct sim_server *server = &sim->servers[stream->server];
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct to_shard to;
    /* What is received lies in pieces, cut anywhere. */
    size_t cut = sim_below(sim, message->bytes + 1);
    const struct slice slices[] = {{message->data, cut},
                                   {message->data + cut, message->bytes - cut}};
    check(wire_decode_to_shard(slices, 2, &arena, &to, NULL) == ERR_OK);
    if (!server->up)
        network_close(sim, stream, ACCEPTOR, false);
    else if (to.kind == TO_SHARD_HELLO)
        greet(sim, server, stream, to.hello.member);
    else if (server->shard == NULL)
        refuse(sim, stream, &to);
    else if (to.kind == TO_SHARD_PUSH)
        push(sim, server, stream, message, slices, 2, &to);
    else
        pull(sim, server, stream, &message->truth, &to);
}

void sim_exchange_lost(struct sim *sim, struct stream *stream)
{
    struct sim_server *server = &sim->servers[stream->server];
    if (!server->up || server->shard == NULL)
        return;
    shard_cancel(server->shard, stream->number);
    server->parked -= stream->parked;
    stream->parked = 0;
    sim_server_carry_out(sim, server, false);
}
