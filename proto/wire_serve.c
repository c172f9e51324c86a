/* The stream between each server and the coordinator: reports and commands. */
#include "proto/pb.h"

/* ---- reports ---- */

static void put_cut(struct cut_name cut, Roost__V1__CutName *ret_cut)
{
    *ret_cut = (Roost__V1__CutName)ROOST__V1__CUT_NAME__INIT;
    ret_cut->generation = cut.generation;
    ret_cut->version = cut.version;
}

/* proto3 leaves an all-zero message out. */
static struct cut_name get_cut(const Roost__V1__CutName *cut)
{
    return cut == NULL ? (struct cut_name){0, 0} : (struct cut_name){cut->generation, cut->version};
}

/* The fields that both sides call the same. */
#define COMMIT_FIELDS(X)                                                                           \
    X(generation)                                                                                  \
    X(step)                                                                                        \
    X(apply)                                                                                       \
    X(cut)                                                                                         \
    X(scale)                                                                                       \
    X(lr)                                                                                          \
    X(bias1)                                                                                       \
    X(bias2)                                                                                       \
    X(samples)                                                                                     \
    X(applied)                                                                                     \
    X(skips_in_row)

static void put_commit(const struct commit *commit, Roost__V1__Commit *ret_message)
{
    *ret_message = (Roost__V1__Commit)ROOST__V1__COMMIT__INIT;
#define PUT(field) ret_message->field = commit->field;
    COMMIT_FIELDS(PUT)
#undef PUT
}

static struct commit get_commit(const Roost__V1__Commit *message)
{
    struct commit commit = {0};
#define GET(field) commit.field = message->field;
    COMMIT_FIELDS(GET)
#undef GET
    return commit;
}

static enum err encode_reduced(const struct reduced *reduced, Roost__V1__ServerReport *to,
                               struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__Reduced message = ROOST__V1__REDUCED__INIT;
    uint32_t count = reduced->seal_count;
    Roost__V1__ChunkSeal *seals = arena_array(&arena, count, sizeof *seals);
    Roost__V1__ChunkSeal **pointers = pb_pointers(seals, count, sizeof *seals, &arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        seals[i] = (Roost__V1__ChunkSeal)ROOST__V1__CHUNK_SEAL__INIT;
        seals[i].chunk = reduced->seals[i].chunk;
        seals[i].finite = reduced->seals[i].finite;
        seals[i].sumsq = reduced->seals[i].sumsq;
    }
    message.generation = reduced->generation;
    message.step = reduced->step;
    message.n_seals = count;
    message.seals = pointers;
    message.has_loss = reduced->has_loss;
    message.loss_sum = reduced->loss_sum;
    message.sample_count = reduced->sample_count;
    message.correct_count = reduced->correct_count;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_REDUCED;
    to->reduced = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_hello(const struct server_report *report, Roost__V1__ServerReport *to,
                             struct buf *buf)
{
    Roost__V1__ServerHello message = ROOST__V1__SERVER_HELLO__INIT;
    message.name = pb_string(report->hello.name);
    message.address = pb_string(report->hello.address);
    message.generation = report->hello.generation;
    message.version = report->hello.version;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_HELLO;
    to->hello = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_ready(const struct server_report *report, Roost__V1__ServerReport *to,
                             struct buf *buf)
{
    Roost__V1__Ready message = ROOST__V1__READY__INIT;
    Roost__V1__CutName cut;
    put_cut(report->ready.cut, &cut);
    message.cut = &cut;
    message.code = report->ready.code;
    message.text = pb_string(report->ready.text);
    message.applied_low = report->ready.applied_low;
    message.n_applied = report->ready.applied_words;
    message.applied = (uint64_t *)(uintptr_t)report->ready.applied;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_READY;
    to->ready = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_committed(const struct server_report *report, Roost__V1__ServerReport *to,
                                 struct buf *buf)
{
    Roost__V1__Committed message = ROOST__V1__COMMITTED__INIT;
    message.generation = report->committed.generation;
    message.step = report->committed.step;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_COMMITTED;
    to->committed = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_manifest(const struct server_report *report, Roost__V1__ServerReport *to,
                                struct buf *buf)
{
    Roost__V1__Manifest message = ROOST__V1__MANIFEST__INIT;
    Roost__V1__CutName cut;
    put_cut(report->manifest.cut, &cut);
    message.cut = &cut;
    message.code = report->manifest.code;
    message.digest = pb_bytes(report->manifest.digest, WIRE_DIGEST_BYTES);
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_MANIFEST;
    to->manifest = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_wrong_bits(const struct server_report *report, Roost__V1__ServerReport *to,
                                  struct buf *buf)
{
    Roost__V1__WrongBits message = ROOST__V1__WRONG_BITS__INIT;
    Roost__V1__Node node;
    pb_put_node(report->wrong_bits.node, &node);
    message.member = report->wrong_bits.member;
    message.first_member = report->wrong_bits.first_member;
    message.step = report->wrong_bits.step;
    message.node = &node;
    message.chunk = report->wrong_bits.chunk;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_WRONG_BITS;
    to->wrong_bits = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_statistics(const struct server_report *report, Roost__V1__ServerReport *to,
                                  struct buf *buf)
{
    Roost__V1__ServerStatistics message = ROOST__V1__SERVER_STATISTICS__INIT;
    message.pushed_bytes = report->statistics.pushed_bytes;
    message.pulled_bytes = report->statistics.pulled_bytes;
    message.duplicates = report->statistics.duplicates;
    message.open_nodes_max = report->statistics.open_nodes_max;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_STATISTICS;
    to->statistics = &message;
    return pb_pack(&to->base, buf);
}

static enum err encode_held(const struct server_held *held, Roost__V1__ServerReport *to,
                            struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__Held message = ROOST__V1__HELD__INIT;
    Roost__V1__Commit decision;
    message.run = held->run;
    message.generation = held->generation;
    message.version = held->version;
    message.spec = held->spec;
    message.n_ranges = held->range_count;
    TRY(pb_put_ranges(held->ranges, held->range_count, &arena, &message.ranges));
    put_commit(&held->decision, &decision);
    message.decision = held->has_decision ? &decision : NULL;
    to->report_case = ROOST__V1__SERVER_REPORT__REPORT_HELD;
    to->held = &message;
    return pb_pack(&to->base, buf);
}

enum err wire_encode_server_report(const struct server_report *message, struct buf *buf)
{
    Roost__V1__ServerReport to = ROOST__V1__SERVER_REPORT__INIT;
    to.boot = message->boot;
    switch (message->kind) {
    case SERVER_HELLO:
        return encode_hello(message, &to, buf);
    case SERVER_READY:
        return encode_ready(message, &to, buf);
    case SERVER_REDUCED:
        return encode_reduced(&message->reduced, &to, buf);
    case SERVER_COMMITTED:
        return encode_committed(message, &to, buf);
    case SERVER_MANIFEST:
        return encode_manifest(message, &to, buf);
    case SERVER_WRONG_BITS:
        return encode_wrong_bits(message, &to, buf);
    case SERVER_STATISTICS:
        return encode_statistics(message, &to, buf);
    case SERVER_DRAIN: {
        Roost__V1__Drain drain = ROOST__V1__DRAIN__INIT;
        to.report_case = ROOST__V1__SERVER_REPORT__REPORT_DRAIN;
        to.drain = &drain;
        return pb_pack(&to.base, buf);
    }
    case SERVER_HELD:
        return encode_held(&message->held, &to, buf);
    }
    check_unreachable("a kind of server_report");
}

static enum err decode_reduced(const Roost__V1__Reduced *message, struct arena *arena,
                               struct reduced *ret_reduced, struct reason *reason)
{
    TRY(pb_range(message->n_seals, WIRE_CHUNKS_MAX, "seals", reason));
    struct chunk_seal *seals = arena_array(arena, message->n_seals, sizeof *seals);
    if (seals == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < message->n_seals; i++) {
        const Roost__V1__ChunkSeal *seal = message->seals[i];
        TRY(pb_range(seal->chunk, WIRE_CHUNKS_MAX - 1, "seal.chunk", reason));
        seals[i] = (struct chunk_seal){seal->chunk, seal->finite, seal->sumsq};
    }
    *ret_reduced = (struct reduced){.generation = message->generation,
                                    .step = message->step,
                                    .seal_count = (uint32_t)message->n_seals,
                                    .seals = seals,
                                    .has_loss = message->has_loss,
                                    .loss_sum = message->loss_sum,
                                    .sample_count = message->sample_count,
                                    .correct_count = message->correct_count};
    return ERR_OK;
}

static enum err decode_hello(const Roost__V1__ServerHello *message, struct server_report *decoded,
                             struct reason *reason)
{
    decoded->kind = SERVER_HELLO;
    decoded->hello.generation = message->generation;
    decoded->hello.version = message->version;
    TRY(pb_name(message->name, "name", decoded->hello.name, sizeof decoded->hello.name, reason));
    return pb_name(message->address, "address", decoded->hello.address,
                   sizeof decoded->hello.address, reason);
}

static enum err decode_ready(const Roost__V1__Ready *message, struct server_report *decoded,
                             struct reason *reason)
{
    decoded->kind = SERVER_READY;
    decoded->ready.cut = get_cut(message->cut);
    decoded->ready.applied_low = message->applied_low;
    decoded->ready.applied_words = (uint32_t)message->n_applied;
    decoded->ready.applied = message->applied;
    TRY(pb_range(message->n_applied, WIRE_APPLIED_WORDS_MAX, "ready.applied", reason));
    TRY(pb_code(message->code, "ready.code", &decoded->ready.code, reason));
    return pb_text(message->text, WIRE_TEXT_BYTES_MAX, "ready.text", &decoded->ready.text, reason);
}

static enum err decode_manifest(const Roost__V1__Manifest *message, struct server_report *decoded,
                                struct reason *reason)
{
    decoded->kind = SERVER_MANIFEST;
    decoded->manifest.cut = get_cut(message->cut);
    TRY(pb_code(message->code, "manifest.code", &decoded->manifest.code, reason));
    return pb_digest(&message->digest, "manifest.digest", decoded->manifest.digest, reason);
}

static enum err decode_wrong_bits(const Roost__V1__WrongBits *message,
                                  struct server_report *decoded, struct reason *reason)
{
    decoded->kind = SERVER_WRONG_BITS;
    decoded->wrong_bits.member = message->member;
    decoded->wrong_bits.first_member = message->first_member;
    decoded->wrong_bits.step = message->step;
    decoded->wrong_bits.chunk = message->chunk;
    return pb_node(message->node, &decoded->wrong_bits.node, reason);
}

static enum err decode_held(const Roost__V1__Held *message, struct arena *arena,
                            struct server_held *ret_held, struct reason *reason)
{
    *ret_held = (struct server_held){
        .run = message->run,
        .generation = message->generation,
        .version = message->version,
        .spec = message->spec,
        .range_count = (uint32_t)message->n_ranges,
        .has_decision = message->decision != NULL,
    };
    if (message->decision != NULL)
        ret_held->decision = get_commit(message->decision);
    return pb_ranges(message->ranges, message->n_ranges, arena, &ret_held->ranges, reason);
}

static enum err decode_report(const Roost__V1__ServerReport *from, struct arena *arena,
                              struct server_report *decoded, struct reason *reason)
{
    switch (from->report_case) {
    case ROOST__V1__SERVER_REPORT__REPORT_HELLO:
        return decode_hello(from->hello, decoded, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_READY:
        return decode_ready(from->ready, decoded, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_REDUCED:
        decoded->kind = SERVER_REDUCED;
        return decode_reduced(from->reduced, arena, &decoded->reduced, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_COMMITTED:
        decoded->kind = SERVER_COMMITTED;
        decoded->committed.generation = from->committed->generation;
        decoded->committed.step = from->committed->step;
        return ERR_OK;
    case ROOST__V1__SERVER_REPORT__REPORT_MANIFEST:
        return decode_manifest(from->manifest, decoded, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_WRONG_BITS:
        return decode_wrong_bits(from->wrong_bits, decoded, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_DRAIN:
        decoded->kind = SERVER_DRAIN;
        return ERR_OK;
    case ROOST__V1__SERVER_REPORT__REPORT_HELD:
        decoded->kind = SERVER_HELD;
        return decode_held(from->held, arena, &decoded->held, reason);
    case ROOST__V1__SERVER_REPORT__REPORT_STATISTICS:
        decoded->kind = SERVER_STATISTICS;
        decoded->statistics.pushed_bytes = from->statistics->pushed_bytes;
        decoded->statistics.pulled_bytes = from->statistics->pulled_bytes;
        decoded->statistics.duplicates = from->statistics->duplicates;
        decoded->statistics.open_nodes_max = from->statistics->open_nodes_max;
        return ERR_OK;
    default:
        return reason_set(reason, ERR_MALFORMED, "report is of no known kind");
    }
}

enum err wire_decode_server_report(struct slice bytes, struct arena *arena,
                                   struct server_report *ret_message, struct reason *reason)
{
    Roost__V1__ServerReport *from;
    TRY(pb_unpack(&roost__v1__server_report__descriptor, bytes, arena, &from, reason));
    struct server_report decoded = {.boot = from->boot};
    TRY(decode_report(from, arena, &decoded, reason));
    *ret_message = decoded;
    return ERR_OK;
}

/* ---- commands ---- */

static enum err encode_prepare(const struct server_command *command, Roost__V1__ServerCommand *to,
                               struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__Prepare message = ROOST__V1__PREPARE__INIT;
    Roost__V1__CutName cut;
    put_cut(command->prepare.cut, &cut);
    message.run = command->prepare.run;
    message.generation = command->prepare.generation;
    message.from_cut = command->prepare.from_cut;
    message.cut = &cut;
    message.spec = pb_string(command->prepare.spec);
    message.checkpoint_dir = pb_string(command->prepare.checkpoint_dir);
    message.restore = pb_string(command->prepare.restore);
    message.server = command->prepare.server;
    message.joins = command->prepare.joins;
    message.cuts = command->prepare.cuts;
    message.n_ranges = command->prepare.range_count;
    TRY(pb_put_ranges(command->prepare.ranges, command->prepare.range_count, &arena,
                      &message.ranges));
    to->command_case = ROOST__V1__SERVER_COMMAND__COMMAND_PREPARE;
    to->prepare = &message;
    return pb_pack(&to->base, buf);
}

static enum err put_moves(const struct server_command *command, struct arena *arena,
                          Roost__V1__Move ***ret_moves)
{
    uint32_t count = command->move_count;
    Roost__V1__Move *moves = arena_array(arena, count, sizeof *moves);
    Roost__V1__Move **pointers = pb_pointers(moves, count, sizeof *moves, arena);
    if (pointers == NULL)
        return ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        moves[i] = (Roost__V1__Move)ROOST__V1__MOVE__INIT;
        moves[i].first = command->moves[i].first;
        moves[i].count = command->moves[i].count;
        moves[i].to = pb_string(command->moves[i].to);
    }
    *ret_moves = pointers;
    return ERR_OK;
}

static enum err encode_commit(const struct server_command *command, Roost__V1__ServerCommand *to,
                              struct buf *buf)
{
    PB_ARENA(arena);
    Roost__V1__Commit message;
    put_commit(&command->commit, &message);
    message.file = command->file == WIRE_FILE_NONE ? 0 : command->file + 1;
    message.n_moves = command->move_count;
    TRY(put_moves(command, &arena, &message.moves));
    to->command_case = ROOST__V1__SERVER_COMMAND__COMMAND_COMMIT;
    to->commit = &message;
    return pb_pack(&to->base, buf);
}

enum err wire_encode_server_command(const struct server_command *message, struct buf *buf)
{
    Roost__V1__ServerCommand to = ROOST__V1__SERVER_COMMAND__INIT;
    Roost__V1__CutName recorded;
    Roost__V1__End end = ROOST__V1__END__INIT;
    to.term = message->term;
    to.boot = message->boot;
    switch (message->kind) {
    case SERVER_PREPARE:
        return encode_prepare(message, &to, buf);
    case SERVER_COMMIT:
        return encode_commit(message, &to, buf);
    case SERVER_RECORDED:
        put_cut(message->recorded, &recorded);
        to.command_case = ROOST__V1__SERVER_COMMAND__COMMAND_RECORDED;
        to.recorded = &recorded;
        return pb_pack(&to.base, buf);
    case SERVER_END:
        to.command_case = ROOST__V1__SERVER_COMMAND__COMMAND_END;
        to.end = &end;
        return pb_pack(&to.base, buf);
    case SERVER_LEAVE:
        to.command_case = ROOST__V1__SERVER_COMMAND__COMMAND_LEAVE;
        to.leave = &end;
        return pb_pack(&to.base, buf);
    case SERVER_ASK:
        to.command_case = ROOST__V1__SERVER_COMMAND__COMMAND_ASK;
        to.ask = &end;
        return pb_pack(&to.base, buf);
    }
    check_unreachable("a kind of server_command");
}

static enum err decode_prepare(const Roost__V1__Prepare *message, struct arena *arena,
                               struct server_command *decoded, struct reason *reason)
{
    decoded->kind = SERVER_PREPARE;
    decoded->prepare.run = message->run;
    decoded->prepare.generation = message->generation;
    decoded->prepare.from_cut = message->from_cut;
    decoded->prepare.cut = get_cut(message->cut);
    decoded->prepare.server = message->server;
    decoded->prepare.joins = message->joins;
    decoded->prepare.cuts = message->cuts;
    decoded->prepare.range_count = (uint32_t)message->n_ranges;
    TRY(pb_range(message->server, WIRE_SERVERS_MAX - 1, "server", reason));
    TRY(pb_text(message->spec, WIRE_SPEC_BYTES_MAX, "spec", &decoded->prepare.spec, reason));
    TRY(pb_text(message->checkpoint_dir, WIRE_TEXT_BYTES_MAX, "checkpoint_dir",
                &decoded->prepare.checkpoint_dir, reason));
    TRY(pb_text(message->restore, WIRE_TEXT_BYTES_MAX, "restore", &decoded->prepare.restore,
                reason));
    return pb_ranges(message->ranges, message->n_ranges, arena, &decoded->prepare.ranges, reason);
}

static enum err decode_commit(const Roost__V1__Commit *message, struct arena *arena,
                              struct server_command *decoded, struct reason *reason)
{
    decoded->kind = SERVER_COMMIT;
    decoded->commit = get_commit(message);
    decoded->commit.term = decoded->term;
    TRY(pb_range(message->file, WIRE_SERVERS_MAX, "file", reason));
    TRY(pb_range(message->n_moves, WIRE_CHUNKS_MAX, "moves", reason));
    struct server_move *moves = arena_array(arena, message->n_moves, sizeof *moves);
    if (moves == NULL)
        return ERR_NOMEM;
    for (size_t i = 0; i < message->n_moves; i++) {
        const Roost__V1__Move *move = message->moves[i];
        TRY(pb_range(move->first, WIRE_CHUNKS_MAX, "move.first", reason));
        TRY(pb_range(move->count, WIRE_CHUNKS_MAX - move->first, "move.count", reason));
        moves[i] = (struct server_move){.first = move->first, .count = move->count};
        TRY(pb_text(move->to, WIRE_TEXT_BYTES_MAX, "move.to", &moves[i].to, reason));
    }
    decoded->file = message->file == 0 ? WIRE_FILE_NONE : message->file - 1;
    decoded->move_count = (uint32_t)message->n_moves;
    decoded->moves = moves;
    return ERR_OK;
}

static enum err decode_command(const Roost__V1__ServerCommand *from, struct arena *arena,
                               struct server_command *decoded, struct reason *reason)
{
    switch (from->command_case) {
    case ROOST__V1__SERVER_COMMAND__COMMAND_PREPARE:
        return decode_prepare(from->prepare, arena, decoded, reason);
    case ROOST__V1__SERVER_COMMAND__COMMAND_COMMIT:
        return decode_commit(from->commit, arena, decoded, reason);
    case ROOST__V1__SERVER_COMMAND__COMMAND_RECORDED:
        decoded->kind = SERVER_RECORDED;
        decoded->recorded = get_cut(from->recorded);
        return ERR_OK;
    case ROOST__V1__SERVER_COMMAND__COMMAND_END:
        decoded->kind = SERVER_END;
        return ERR_OK;
    case ROOST__V1__SERVER_COMMAND__COMMAND_LEAVE:
        decoded->kind = SERVER_LEAVE;
        return ERR_OK;
    case ROOST__V1__SERVER_COMMAND__COMMAND_ASK:
        decoded->kind = SERVER_ASK;
        return ERR_OK;
    default:
        return reason_set(reason, ERR_MALFORMED, "command is of no known kind");
    }
}

enum err wire_decode_server_command(struct slice bytes, struct arena *arena,
                                    struct server_command *ret_message, struct reason *reason)
{
    Roost__V1__ServerCommand *from;
    TRY(pb_unpack(&roost__v1__server_command__descriptor, bytes, arena, &from, reason));
    struct server_command decoded = {.term = from->term, .boot = from->boot};
    TRY(decode_command(from, arena, &decoded, reason));
    *ret_message = decoded;
    return ERR_OK;
}
