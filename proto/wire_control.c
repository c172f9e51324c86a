/* Control messages between workers, operators and the coordinator. */
#include "proto/pb.h"

#include <string.h>

/* ---- membership ---- */

enum err wire_encode_join_request(const struct join_request *message, struct buf *buf)
{
    Roost__V1__JoinRequest to = ROOST__V1__JOIN_REQUEST__INIT;
    to.wire_version = message->wire_version;
    to.name = pb_string(message->name);
    to.device = pb_string(message->device);
    to.fingerprint = pb_bytes(message->fingerprint, WIRE_DIGEST_BYTES);
    to.data_digest = pb_bytes(message->data_digest, WIRE_DIGEST_BYTES);
    to.previous_member = message->previous_member;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_join_request(struct slice bytes, struct arena *arena,
                                  struct join_request *ret_message, struct reason *reason)
{
    Roost__V1__JoinRequest *from;
    TRY(pb_unpack(&roost__v1__join_request__descriptor, bytes, arena, &from, reason));
    struct join_request decoded = {.wire_version = from->wire_version,
                                   .previous_member = from->previous_member};
    TRY(pb_name(from->name, "name", decoded.name, sizeof decoded.name, reason));
    TRY(pb_name(from->device, "device", decoded.device, sizeof decoded.device, reason));
    TRY(pb_digest(&from->fingerprint, "fingerprint", decoded.fingerprint, reason));
    TRY(pb_digest(&from->data_digest, "data_digest", decoded.data_digest, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_join_reply(const struct join_reply *message, struct buf *buf)
{
    Roost__V1__JoinReply to = ROOST__V1__JOIN_REPLY__INIT;
    to.member = message->member;
    to.run = message->run;
    to.generation = message->generation;
    to.heartbeat_ms = message->heartbeat_ms;
    to.lease_ms = message->lease_ms;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_join_reply(struct slice bytes, struct arena *arena,
                                struct join_reply *ret_message, struct reason *reason)
{
    Roost__V1__JoinReply *from;
    TRY(pb_unpack(&roost__v1__join_reply__descriptor, bytes, arena, &from, reason));
    if (from->heartbeat_ms == 0 || from->lease_ms == 0)
        return reason_set(reason, ERR_MALFORMED, "heartbeat_ms and lease_ms must not be 0");
    *ret_message = (struct join_reply){.member = from->member,
                                       .run = from->run,
                                       .generation = from->generation,
                                       .heartbeat_ms = from->heartbeat_ms,
                                       .lease_ms = from->lease_ms};
    return ERR_OK;
}

enum err wire_encode_member_report(const struct member_report *message, struct buf *buf)
{
    Roost__V1__MemberReport to = ROOST__V1__MEMBER_REPORT__INIT;
    to.member = message->member;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_member_report(struct slice bytes, struct arena *arena,
                                   struct member_report *ret_message, struct reason *reason)
{
    Roost__V1__MemberReport *from;
    TRY(pb_unpack(&roost__v1__member_report__descriptor, bytes, arena, &from, reason));
    *ret_message = (struct member_report){.member = from->member};
    return ERR_OK;
}

enum err wire_encode_member_notice(const struct member_notice *message, struct buf *buf)
{
    Roost__V1__MemberNotice to = ROOST__V1__MEMBER_NOTICE__INIT;
    to.kind = (Roost__V1__NoticeKind)message->kind;
    to.text = pb_string(message->text);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_member_notice(struct slice bytes, struct arena *arena,
                                   struct member_notice *ret_message, struct reason *reason)
{
    Roost__V1__MemberNotice *from;
    TRY(pb_unpack(&roost__v1__member_notice__descriptor, bytes, arena, &from, reason));
    TRY(pb_range((uint64_t)from->kind, NOTICE_KIND_COUNT - 1, "kind", reason));
    struct member_notice decoded = {.kind = (enum notice_kind)from->kind};
    TRY(pb_text(from->text, WIRE_TEXT_BYTES_MAX, "text", &decoded.text, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_leave_request(const struct leave_request *message, struct buf *buf)
{
    Roost__V1__LeaveRequest to = ROOST__V1__LEAVE_REQUEST__INIT;
    to.member = message->member;
    to.reason = pb_string(message->reason);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_leave_request(struct slice bytes, struct arena *arena,
                                   struct leave_request *ret_message, struct reason *reason)
{
    Roost__V1__LeaveRequest *from;
    TRY(pb_unpack(&roost__v1__leave_request__descriptor, bytes, arena, &from, reason));
    struct leave_request decoded = {.member = from->member};
    TRY(pb_text(from->reason, WIRE_TEXT_BYTES_MAX, "reason", &decoded.reason, reason));
    *ret_message = decoded;
    return ERR_OK;
}

/* ---- tickets ---- */

enum err wire_encode_acquire_request(const struct acquire_request *message, struct buf *buf)
{
    Roost__V1__AcquireRequest to = ROOST__V1__ACQUIRE_REQUEST__INIT;
    to.member = message->member;
    to.generation = message->generation;
    to.sequence = message->sequence;
    to.wait_ms = message->wait_ms;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_acquire_request(struct slice bytes, struct arena *arena,
                                     struct acquire_request *ret_message, struct reason *reason)
{
    Roost__V1__AcquireRequest *from;
    TRY(pb_unpack(&roost__v1__acquire_request__descriptor, bytes, arena, &from, reason));
    *ret_message = (struct acquire_request){.member = from->member,
                                            .generation = from->generation,
                                            .sequence = from->sequence,
                                            .wait_ms = from->wait_ms};
    return ERR_OK;
}

enum err wire_encode_acquire_reply(const struct acquire_reply *message, struct buf *buf)
{
    Roost__V1__AcquireReply to = ROOST__V1__ACQUIRE_REPLY__INIT;
    struct pb_ticket ticket;
    to.result = (Roost__V1__AcquireResult)message->result;
    to.map_number = message->map_number;
    if (message->result == ACQUIRE_TICKET) {
        pb_put_ticket(&message->ticket, &ticket);
        to.ticket = &ticket.ticket;
    }
    return pb_pack(&to.base, buf);
}

enum err wire_decode_acquire_reply(struct slice bytes, struct arena *arena,
                                   struct acquire_reply *ret_message, struct reason *reason)
{
    Roost__V1__AcquireReply *from;
    TRY(pb_unpack(&roost__v1__acquire_reply__descriptor, bytes, arena, &from, reason));
    struct acquire_reply decoded = {.result = (enum acquire_result)from->result,
                                    .map_number = from->map_number};
    if (decoded.result == ACQUIRE_TICKET)
        TRY(pb_ticket(from->ticket, &decoded.ticket, reason));
    else if (decoded.result != ACQUIRE_WAIT && decoded.result != ACQUIRE_END)
        return reason_set(reason, ERR_MALFORMED, "result %d is unknown", (int)from->result);
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_complete_request(const struct complete_request *message, struct buf *buf)
{
    Roost__V1__CompleteRequest to = ROOST__V1__COMPLETE_REQUEST__INIT;
    struct pb_ticket ticket;
    pb_put_ticket(&message->ticket, &ticket);
    to.member = message->member;
    to.ticket = &ticket.ticket;
    to.outcome = message->outcome;
    to.loss_sum = message->loss_sum;
    to.sample_count = message->sample_count;
    to.correct_count = message->correct_count;
    to.n_boots = message->boot_count;
    to.boots = (uint64_t *)(uintptr_t)message->boots;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_complete_request(struct slice bytes, struct arena *arena,
                                      struct complete_request *ret_message, struct reason *reason)
{
    Roost__V1__CompleteRequest *from;
    TRY(pb_unpack(&roost__v1__complete_request__descriptor, bytes, arena, &from, reason));
    struct complete_request decoded = {.member = from->member,
                                       .loss_sum = from->loss_sum,
                                       .sample_count = from->sample_count,
                                       .correct_count = from->correct_count,
                                       .boot_count = (uint32_t)from->n_boots,
                                       .boots = from->boots};
    TRY(pb_range(from->n_boots, WIRE_SERVERS_MAX, "boots", reason));
    TRY(pb_ticket(from->ticket, &decoded.ticket, reason));
    TRY(pb_code(from->outcome, "outcome", &decoded.outcome, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_samples_request(const struct samples_request *message, struct buf *buf)
{
    Roost__V1__SamplesRequest to = ROOST__V1__SAMPLES_REQUEST__INIT;
    struct pb_ticket ticket;
    pb_put_ticket(&message->ticket, &ticket);
    to.run = message->run;
    to.ticket = &ticket.ticket;
    to.slot = message->slot;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_samples_request(struct slice bytes, struct arena *arena,
                                     struct samples_request *ret_message, struct reason *reason)
{
    Roost__V1__SamplesRequest *from;
    TRY(pb_unpack(&roost__v1__samples_request__descriptor, bytes, arena, &from, reason));
    struct samples_request decoded = {.run = from->run, .slot = from->slot};
    TRY(pb_range(from->slot, TREE_SLOTS_MAX - 1, "slot", reason));
    TRY(pb_ticket(from->ticket, &decoded.ticket, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_samples_reply(const struct samples_reply *message, struct buf *buf)
{
    Roost__V1__SamplesReply to = ROOST__V1__SAMPLES_REPLY__INIT;
    to.sample_count = message->sample_count;
    to.inputs = pb_bytes(message->inputs.data, message->inputs.bytes);
    to.targets = pb_bytes(message->targets.data, message->targets.bytes);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_samples_reply(struct slice bytes, struct arena *arena,
                                   struct samples_reply *ret_message, struct reason *reason)
{
    Roost__V1__SamplesReply *from;
    TRY(pb_unpack(&roost__v1__samples_reply__descriptor, bytes, arena, &from, reason));
    *ret_message = (struct samples_reply){
        .sample_count = from->sample_count,
        .inputs = {from->inputs.data, from->inputs.len},
        .targets = {from->targets.data, from->targets.len},
    };
    return ERR_OK;
}

/* ---- describe ---- */

static enum err put_servers(const struct server_description *servers, uint32_t count,
                            struct arena *arena, Roost__V1__ServerDescription ***ret_servers)
{
    Roost__V1__ServerDescription *messages = arena_array(arena, count, sizeof *messages);
    Roost__V1__ServerDescription **pointers = pb_pointers(messages, count, sizeof *messages, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        messages[i] = (Roost__V1__ServerDescription)ROOST__V1__SERVER_DESCRIPTION__INIT;
        messages[i].name = pb_string(servers[i].name);
        messages[i].address = pb_string(servers[i].address);
        messages[i].boot = servers[i].boot;
        messages[i].connected = servers[i].connected;
        messages[i].chunks = servers[i].chunks;
        messages[i].state = pb_string(servers[i].state);
    }
    *ret_servers = pointers;
    return ERR_OK;
}

static enum err get_servers(Roost__V1__ServerDescription *const *servers, size_t count,
                            struct arena *arena, uint32_t *ret_count,
                            const struct server_description **ret_servers, struct reason *reason)
{
    TRY(pb_range(count, WIRE_SERVERS_MAX, "servers", reason));
    struct server_description *decoded = arena_array(arena, count, sizeof *decoded);
    if (decoded == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        TRY(pb_text(servers[i]->name, WIRE_TEXT_BYTES_MAX, "server.name", &decoded[i].name,
                    reason));
        TRY(pb_text(servers[i]->address, WIRE_TEXT_BYTES_MAX, "server.address", &decoded[i].address,
                    reason));
        TRY(pb_text(servers[i]->state, WIRE_TEXT_BYTES_MAX, "server.state", &decoded[i].state,
                    reason));
        decoded[i].chunks = servers[i]->chunks;
        decoded[i].boot = servers[i]->boot;
        decoded[i].connected = servers[i]->connected;
    }
    *ret_count = (uint32_t)count;
    *ret_servers = decoded;
    return ERR_OK;
}

static enum err put_chunks(const struct describe_reply *message, struct arena *arena,
                           Roost__V1__ChunkDescription ***ret_chunks)
{
    uint32_t count = message->chunk_count;
    Roost__V1__ChunkDescription *messages = arena_array(arena, count, sizeof *messages);
    Roost__V1__ChunkDescription **pointers = pb_pointers(messages, count, sizeof *messages, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk_description *chunk = &message->chunks[i];
        messages[i] = (Roost__V1__ChunkDescription)ROOST__V1__CHUNK_DESCRIPTION__INIT;
        messages[i].parameter = pb_string(chunk->parameter);
        messages[i].row = chunk->row;
        messages[i].rows = chunk->rows;
        messages[i].col = chunk->col;
        messages[i].cols = chunk->cols;
        messages[i].parts = chunk->parts;
    }
    *ret_chunks = pointers;
    return ERR_OK;
}

static enum err get_chunks(const Roost__V1__RunDescription *run, struct arena *arena,
                           struct describe_reply *decoded, struct reason *reason)
{
    TRY(pb_range(run->n_chunks, WIRE_CHUNKS_MAX, "chunks", reason));
    struct chunk_description *chunks = arena_array(arena, run->n_chunks, sizeof *chunks);
    if (chunks == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < run->n_chunks; i++) {
        const Roost__V1__ChunkDescription *from = run->chunks[i];
        TRY(pb_text(from->parameter, WIRE_TEXT_BYTES_MAX, "chunk.parameter", &chunks[i].parameter,
                    reason));
        chunks[i].row = from->row;
        chunks[i].rows = from->rows;
        chunks[i].col = from->col;
        chunks[i].cols = from->cols;
        chunks[i].parts = from->parts;
    }
    decoded->chunk_count = (uint32_t)run->n_chunks;
    decoded->chunks = chunks;
    return ERR_OK;
}

enum err wire_encode_describe_request(const struct describe_request *message, struct buf *buf)
{
    Roost__V1__DescribeRequest to = ROOST__V1__DESCRIBE_REQUEST__INIT;
    to.with_chunks = message->with_chunks;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_describe_request(struct slice bytes, struct arena *arena,
                                      struct describe_request *ret_message, struct reason *reason)
{
    Roost__V1__DescribeRequest *from;
    TRY(pb_unpack(&roost__v1__describe_request__descriptor, bytes, arena, &from, reason));
    *ret_message = (struct describe_request){.with_chunks = from->with_chunks};
    return ERR_OK;
}

enum err wire_encode_describe_reply(const struct describe_reply *message, struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__DescribeReply to = ROOST__V1__DESCRIBE_REPLY__INIT;
    Roost__V1__RunDescription run = ROOST__V1__RUN_DESCRIPTION__INIT;
    to.wire_version = message->wire_version;
    to.map_number = message->map_number;
    to.n_servers = message->server_count;
    TRY(put_servers(message->servers, message->server_count, &arena, &to.servers));
    to.n_ranges = message->range_count;
    TRY(pb_put_ranges(message->ranges, message->range_count, &arena, &to.ranges));
    if (message->has_run) {
        run.run = message->run;
        run.generation = message->generation;
        run.state = (Roost__V1__RunState)message->state;
        run.spec = pb_string(message->spec);
        run.data_digest = pb_bytes(message->data_digest, WIRE_DIGEST_BYTES);
        run.samples = message->samples;
        run.validation_samples = message->validation_samples;
        run.n_chunks = message->chunk_count;
        TRY(put_chunks(message, &arena, &run.chunks));
        to.run = &run;
    }
    return pb_pack(&to.base, buf);
}

static enum err get_run(const Roost__V1__RunDescription *run, struct arena *arena,
                        struct describe_reply *decoded, struct reason *reason)
{
    decoded->has_run = true;
    decoded->run = run->run;
    decoded->generation = run->generation;
    TRY(pb_range((uint64_t)run->state, RUN_STATE_COUNT - 1, "run.state", reason));
    decoded->state = (enum run_state)run->state;
    TRY(pb_text(run->spec, WIRE_SPEC_BYTES_MAX, "run.spec", &decoded->spec, reason));
    TRY(pb_digest(&run->data_digest, "run.data_digest", decoded->data_digest, reason));
    decoded->samples = run->samples;
    decoded->validation_samples = run->validation_samples;
    return get_chunks(run, arena, decoded, reason);
}

/* Every range names one of the servers. */
static enum err check_ranges(const struct describe_reply *decoded, struct reason *reason)
{
    for (uint32_t i = 0; i < decoded->range_count; i++)
        if (decoded->ranges[i].server >= decoded->server_count)
            return reason_set(reason, ERR_MALFORMED, "range %u names server %u of %u", i,
                              decoded->ranges[i].server, decoded->server_count);
    return ERR_OK;
}

enum err wire_decode_describe_reply(struct slice bytes, struct arena *arena,
                                    struct describe_reply *ret_message, struct reason *reason)
{
    Roost__V1__DescribeReply *from;
    TRY(pb_unpack(&roost__v1__describe_reply__descriptor, bytes, arena, &from, reason));
    struct describe_reply decoded = {.wire_version = from->wire_version,
                                     .map_number = from->map_number,
                                     .range_count = (uint32_t)from->n_ranges};
    TRY(get_servers(from->servers, from->n_servers, arena, &decoded.server_count, &decoded.servers,
                    reason));
    TRY(pb_ranges(from->ranges, from->n_ranges, arena, &decoded.ranges, reason));
    TRY(check_ranges(&decoded, reason));
    if (from->run != NULL)
        TRY(get_run(from->run, arena, &decoded, reason));
    *ret_message = decoded;
    return ERR_OK;
}

/* ---- operators ---- */

enum err wire_encode_start_run_request(const struct start_run_request *message, struct buf *buf)
{
    Roost__V1__StartRunRequest to = ROOST__V1__START_RUN_REQUEST__INIT;
    to.spec = pb_string(message->spec);
    to.servers_min = message->servers_min;
    to.resume = message->resume;
    to.directory = pb_string(message->directory);
    to.data_digest = pb_bytes(message->data_digest, WIRE_DIGEST_BYTES);
    to.samples = message->samples;
    to.validation_samples = message->validation_samples;
    to.restore = pb_string(message->restore);
    to.unigram_entropy = message->unigram_entropy;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_start_run_request(struct slice bytes, struct arena *arena,
                                       struct start_run_request *ret_message, struct reason *reason)
{
    Roost__V1__StartRunRequest *from;
    TRY(pb_unpack(&roost__v1__start_run_request__descriptor, bytes, arena, &from, reason));
    struct start_run_request decoded = {.servers_min = from->servers_min,
                                        .resume = from->resume,
                                        .samples = from->samples,
                                        .validation_samples = from->validation_samples,
                                        .unigram_entropy = from->unigram_entropy};
    TRY(pb_range(from->servers_min, WIRE_SERVERS_MAX, "servers_min", reason));
    TRY(pb_text(from->spec, WIRE_SPEC_BYTES_MAX, "spec", &decoded.spec, reason));
    TRY(pb_text(from->directory, WIRE_TEXT_BYTES_MAX, "directory", &decoded.directory, reason));
    TRY(pb_text(from->restore, WIRE_TEXT_BYTES_MAX, "restore", &decoded.restore, reason));
    TRY(pb_digest(&from->data_digest, "data_digest", decoded.data_digest, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_start_run_reply(const struct start_run_reply *message, struct buf *buf)
{
    Roost__V1__StartRunReply to = ROOST__V1__START_RUN_REPLY__INIT;
    to.run = message->run;
    to.notes = pb_string(message->notes);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_start_run_reply(struct slice bytes, struct arena *arena,
                                     struct start_run_reply *ret_message, struct reason *reason)
{
    Roost__V1__StartRunReply *from;
    TRY(pb_unpack(&roost__v1__start_run_reply__descriptor, bytes, arena, &from, reason));
    struct start_run_reply decoded = {.run = from->run};
    TRY(pb_text(from->notes, WIRE_SPEC_BYTES_MAX, "notes", &decoded.notes, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_stop_run_request(const struct stop_run_request *message, struct buf *buf)
{
    Roost__V1__StopRunRequest to = ROOST__V1__STOP_RUN_REQUEST__INIT;
    to.reason = pb_string(message->reason);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_stop_run_request(struct slice bytes, struct arena *arena,
                                      struct stop_run_request *ret_message, struct reason *reason)
{
    Roost__V1__StopRunRequest *from;
    TRY(pb_unpack(&roost__v1__stop_run_request__descriptor, bytes, arena, &from, reason));
    struct stop_run_request decoded;
    TRY(pb_text(from->reason, WIRE_TEXT_BYTES_MAX, "reason", &decoded.reason, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_drain_request(const struct drain_request *message, struct buf *buf)
{
    Roost__V1__DrainRequest to = ROOST__V1__DRAIN_REQUEST__INIT;
    to.server = pb_string(message->server);
    to.lost = message->lost;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_drain_request(struct slice bytes, struct arena *arena,
                                   struct drain_request *ret_message, struct reason *reason)
{
    Roost__V1__DrainRequest *from;
    TRY(pb_unpack(&roost__v1__drain_request__descriptor, bytes, arena, &from, reason));
    struct drain_request decoded = {.lost = from->lost};
    TRY(pb_text(from->server, WIRE_TEXT_BYTES_MAX, "server", &decoded.server, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_drain_reply(const struct drain_reply *message, struct buf *buf)
{
    Roost__V1__DrainReply to = ROOST__V1__DRAIN_REPLY__INIT;
    to.drained = message->drained;
    to.chunks_left = message->chunks_left;
    to.waits_for = pb_string(message->waits_for);
    return pb_pack(&to.base, buf);
}

enum err wire_decode_drain_reply(struct slice bytes, struct arena *arena,
                                 struct drain_reply *ret_message, struct reason *reason)
{
    Roost__V1__DrainReply *from;
    TRY(pb_unpack(&roost__v1__drain_reply__descriptor, bytes, arena, &from, reason));
    struct drain_reply decoded = {.drained = from->drained, .chunks_left = from->chunks_left};
    TRY(pb_text(from->waits_for, WIRE_TEXT_BYTES_MAX, "waits_for", &decoded.waits_for, reason));
    *ret_message = decoded;
    return ERR_OK;
}

enum err wire_encode_cut_name(const struct cut_name *message, struct buf *buf)
{
    Roost__V1__CheckpointReply to = ROOST__V1__CHECKPOINT_REPLY__INIT;
    to.generation = message->generation;
    to.version = message->version;
    return pb_pack(&to.base, buf);
}

enum err wire_decode_cut_name(struct slice bytes, struct arena *arena, struct cut_name *ret_message,
                              struct reason *reason)
{
    Roost__V1__CheckpointReply *from;
    TRY(pb_unpack(&roost__v1__checkpoint_reply__descriptor, bytes, arena, &from, reason));
    *ret_message = (struct cut_name){from->generation, from->version};
    return ERR_OK;
}

static enum err put_members(const struct status_reply *message, struct arena *arena,
                            Roost__V1__MemberStatus ***ret_members)
{
    uint32_t count = message->member_count;
    Roost__V1__MemberStatus *messages = arena_array(arena, count, sizeof *messages);
    Roost__V1__MemberStatus **pointers = pb_pointers(messages, count, sizeof *messages, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const struct member_status *member = &message->members[i];
        messages[i] = (Roost__V1__MemberStatus)ROOST__V1__MEMBER_STATUS__INIT;
        messages[i].member = member->member;
        messages[i].name = pb_string(member->name);
        messages[i].device = pb_string(member->device);
        messages[i].state = pb_string(member->state);
        messages[i].reason = pb_string(member->reason);
        messages[i].tickets = member->tickets;
        messages[i].silent_seconds = member->silent_seconds;
    }
    *ret_members = pointers;
    return ERR_OK;
}

static enum err get_members(const Roost__V1__StatusReply *from, struct arena *arena,
                            struct status_reply *decoded, struct reason *reason)
{
    TRY(pb_range(from->n_members, TREE_SLOTS_MAX, "members", reason));
    struct member_status *members = arena_array(arena, from->n_members, sizeof *members);
    if (members == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < from->n_members; i++) {
        const Roost__V1__MemberStatus *member = from->members[i];
        const size_t text = WIRE_TEXT_BYTES_MAX;
        TRY(pb_text(member->name, text, "member.name", &members[i].name, reason));
        TRY(pb_text(member->device, text, "member.device", &members[i].device, reason));
        TRY(pb_text(member->state, text, "member.state", &members[i].state, reason));
        TRY(pb_text(member->reason, text, "member.reason", &members[i].reason, reason));
        members[i].member = member->member;
        members[i].tickets = member->tickets;
        members[i].silent_seconds = member->silent_seconds;
    }
    decoded->member_count = (uint32_t)from->n_members;
    decoded->members = members;
    return ERR_OK;
}

/* The fields that both sides call the same. */
#define STATUS_FIELDS(X)                                                                           \
    X(run)                                                                                         \
    X(generation)                                                                                  \
    X(step)                                                                                        \
    X(steps)                                                                                       \
    X(loss)                                                                                        \
    X(accuracy)                                                                                    \
    X(validation_loss)                                                                             \
    X(validation_accuracy)                                                                         \
    X(has_validation)                                                                              \
    X(samples)                                                                                     \
    X(seconds)                                                                                     \
    X(samples_here)                                                                                \
    X(workers_joined)                                                                              \
    X(workers_lost)                                                                                \
    X(tickets_redone)                                                                              \
    X(duplicates)                                                                                  \
    X(skipped_steps)                                                                               \
    X(pushed_bytes)                                                                                \
    X(pulled_bytes)                                                                                \
    X(lr)                                                                                          \
    X(norm)                                                                                        \
    X(member_ms)                                                                                   \
    X(useful_ms)                                                                                   \
    X(wasted_ms)                                                                                   \
    X(map_number)

#define MOVE_FIELDS(X)                                                                             \
    X(chunks)                                                                                      \
    X(bytes)                                                                                       \
    X(commits)                                                                                     \
    X(gap_ms_max)                                                                                  \
    X(step_ms)                                                                                     \
    X(servers_added)                                                                               \
    X(servers_drained)

enum err wire_encode_status_reply(const struct status_reply *message, struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__StatusReply to = ROOST__V1__STATUS_REPLY__INIT;
    Roost__V1__MoveStatus moves = ROOST__V1__MOVE_STATUS__INIT;
#define PUT(field) moves.field = message->moves.field;
    MOVE_FIELDS(PUT)
#undef PUT
    to.moves = &moves;
#define PUT(field) to.field = message->field;
    STATUS_FIELDS(PUT)
#undef PUT
    to.state = (Roost__V1__RunState)message->state;
    to.reason = pb_string(message->reason);
    to.cut_generation = message->cut.generation;
    to.cut_version = message->cut.version;
    to.cut_state = pb_string(message->cut_state);
    to.n_members = message->member_count;
    TRY(put_members(message, &arena, &to.members));
    to.n_servers = message->server_count;
    TRY(put_servers(message->servers, message->server_count, &arena, &to.servers));
    return pb_pack(&to.base, buf);
}

enum err wire_decode_status_reply(struct slice bytes, struct arena *arena,
                                  struct status_reply *ret_message, struct reason *reason)
{
    Roost__V1__StatusReply *from;
    TRY(pb_unpack(&roost__v1__status_reply__descriptor, bytes, arena, &from, reason));
    struct status_reply decoded = {.cut = {from->cut_generation, from->cut_version}};
#define GET(field) decoded.field = from->field;
    STATUS_FIELDS(GET)
#undef GET
#define GET(field) decoded.moves.field = from->moves == NULL ? 0 : from->moves->field;
    MOVE_FIELDS(GET)
#undef GET
    TRY(pb_range((uint64_t)from->state, RUN_STATE_COUNT - 1, "state", reason));
    decoded.state = (enum run_state)from->state;
    TRY(pb_text(from->reason, WIRE_TEXT_BYTES_MAX, "reason", &decoded.reason, reason));
    TRY(pb_text(from->cut_state, WIRE_TEXT_BYTES_MAX, "cut_state", &decoded.cut_state, reason));
    TRY(get_members(from, arena, &decoded, reason));
    TRY(get_servers(from->servers, from->n_servers, arena, &decoded.server_count, &decoded.servers,
                    reason));
    *ret_message = decoded;
    return ERR_OK;
}
