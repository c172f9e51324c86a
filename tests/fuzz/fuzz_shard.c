/* A shard among workers, a coordinator and other servers who say anything, in any order. The first
 * piece of the input is the run's settings, each of the others an event: its first byte which, the
 * others its numbers, where 0 is mostly the number that is right. What workers say passes the wire
 * first. */
#include "tests/fuzz/fuzz.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "server/shard/shard.h"

#include <math.h>
#include <string.h>

enum { SLOTS = 4, N = 24, COUNT = 3, PIECE_BYTES = 16, EVENTS_MAX = 384, ENTRIES_MAX = 6 };
enum { COLS = 4, ROWS = N / COLS };
enum { FIRST = 3, TIED = 4, LOSS = 9, OTHER = 12, RUN_CHUNKS = 20 }; /* the chunks' numbers */
enum { GENERATION = 5, BOOT = 77, TERM = 2, WINDOW = 64 };

static const struct shard_chunk chunks[COUNT] = {
    {.chunk = FIRST, .n = N, .cols = COLS, .parts = 1, .rule = MODEL_OPTIMIZER, .decay = true},
    {.chunk = TIED, .n = N, .cols = COLS, .parts = 2, .rule = MODEL_OPTIMIZER},
    {.chunk = LOSS, .n = MODEL_LOSS_WEIGHTS, .parts = 1, .rule = MODEL_NONE, .loss = true},
};
static const struct shard_chunk other = {
    .chunk = OTHER, .n = N, .parts = 1, .rule = MODEL_OPTIMIZER};

struct world {
    struct fuzz_piece piece;
    struct shard_config config;
    struct shard *shard;
    struct shard_effects effects;
    uint64_t id, ordered;
    struct transfer transfer; /* the newest that left */
};

static uint8_t byte(struct world *world)
{
    return fuzz_byte(&world->piece);
}

static uint64_t near(struct world *world, uint64_t right)
{
    return fuzz_near(&world->piece, right);
}

static uint32_t chunk_of(struct world *world)
{
    static const uint32_t numbers[] = {FIRST, TIED, LOSS, OTHER, 0, RUN_CHUNKS};
    return numbers[byte(world) % (sizeof numbers / sizeof numbers[0])];
}

/* ---- what the shard does ---- */

static void carry_out_one(struct world *world, struct shard_effect *effect)
{
    float values[N * (1 + OPTIMIZER_STATES_MAX + SHARD_DELAY_MAX)];
    if (effect->kind == SHARD_WEIGHTS)
        for (uint32_t i = 0; i < effect->weights.header.chunk_count; i++)
            counted_unref(effect->weights.copies[i]);
    if (effect->kind == SHARD_SNAPSHOT)
        shard_snapshot_drop(effect);
    if (effect->kind == SHARD_ORDER)
        for (uint32_t i = 0; i < effect->order.count; i++) {
            world->ordered += effect->order.entries[i].gradient != NULL ? 1 : 0;
            counted_unref(effect->order.entries[i].gradient);
        }
    if (effect->kind != SHARD_TRANSFER)
        return;
    world->transfer = effect->transfer.header;
    check(world->transfer.arrays * world->transfer.weights <= sizeof values / sizeof values[0]);
    shard_transfer_copy(world->shard, &world->transfer, values);
}

static void carry_out(struct world *world)
{
    for (uint32_t i = 0; i < world->effects.count; i++)
        carry_out_one(world, &world->effects.items[i]);
    world->effects.count = 0;
    shard_check(world->shard);
}

/* ---- workers ---- */

static void add_entry(struct world *world, struct push *push, struct push_entry *entries,
                      uint32_t chunk, uint32_t part)
{
    uint32_t n = chunk == LOSS ? MODEL_LOSS_WEIGHTS : N;
    uint32_t bytes = n * codec_bytes(chunk == LOSS ? CODEC_FP32 : push->codec);
    if (push->entry_count == ENTRIES_MAX)
        return;
    entries[push->entry_count++] =
        (struct push_entry){.chunk = chunk,
                            .part = part,
                            .bytes = (uint32_t)(near(world, bytes) % 4096),
                            .version = near(world, shard_version(world->shard))};
}

/* The first entry brings some rows alone, of which some sets are none. */
static void make_sparse(const struct push *push, struct push_entry *entry, uint8_t which)
{
    static const uint32_t rows[] = {0, ROWS - 1, ROWS, 2, 2, 3, 0, 1, 2, 3, 4, 5, 6};
    static const struct {
        uint32_t first, count;
    } sets[] = {{0, 0}, {0, 1}, {0, 2}, {1, 2}, {3, 2}, {4, 2}, {6, ROWS}, {6, ROWS + 1}};
    uint32_t size = codec_bytes(entry->chunk == LOSS ? CODEC_FP32 : push->codec);
    uint32_t n = entry->chunk == LOSS ? MODEL_LOSS_WEIGHTS : N;
    entry->sparse = true;
    entry->rows = rows + sets[which % 8].first;
    entry->row_count = sets[which % 8].count;
    if (entry->bytes == n * size)
        entry->bytes = entry->row_count * COLS * size;
}

static void fill_push(struct world *world, struct push *push, struct push_entry *entries)
{
    uint8_t which = byte(world);
    *push = (struct push){.id = ++world->id,
                          .generation = near(world, GENERATION),
                          .step = near(world, shard_version(world->shard)),
                          .entries = entries,
                          .scale = 1};
    push->node = (struct node){byte(world) % 4, (uint32_t)near(world, byte(world) % SLOTS)};
    push->codec = (enum codec)(near(world, world->config.push_codec) % CODEC_COUNT);
    push->attempt = push->id;
    push->boot = near(world, BOOT);
    if ((which & 1) == 0)
        add_entry(world, push, entries, FIRST, 0);
    if ((which & 2) == 0)
        add_entry(world, push, entries, TIED, 0);
    if ((which & 2) == 0 && !world->config.async.on)
        add_entry(world, push, entries, TIED, 1);
    if ((which & 4) == 0)
        add_entry(world, push, entries, LOSS, 0);
    if ((which & 8) != 0)
        add_entry(world, push, entries, chunk_of(world), byte(world) % 5);
    if ((which & 16) != 0 && push->entry_count > 0)
        make_sparse(push, &entries[0], which >> 5);
}

/* As the wire delivers it; false: it does not. */
static bool pass(struct to_shard *message, struct arena *arena, struct buf *buf)
{
    struct slice slice;
    if (wire_encode_to_shard(message, buf) != ERR_OK)
        return false;
    for (size_t i = 0; i < message->payload_bytes; i += sizeof(float)) {
        float value = i % 20 == 0 ? NAN : 1;
        if (buf_append(buf, &value, sizeof value) != ERR_OK)
            return false;
    }
    slice = buf_slice(buf);
    return wire_decode_to_shard(&slice, 1, arena, message, NULL) == ERR_OK;
}

static void push(struct world *world)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    scoped(buf_release) struct buf buf = {0};
    struct push_entry entries[ENTRIES_MAX];
    struct to_shard message = {.kind = TO_SHARD_PUSH};
    fill_push(world, &message.push, entries);
    for (uint32_t i = 0; i < message.push.entry_count; i++)
        message.payload_bytes += entries[i].bytes;
    message.payload_bytes = message.payload_bytes / sizeof(float) * sizeof(float);
    if (!pass(&message, &arena, &buf))
        return;
    message.push.member = 1 + byte(world) % 3;
    message.push.audited = world->config.audited && byte(world) % 2 == 0;
    struct slice bytes = buf_slice(&buf);
    struct slice payload = {bytes.data + message.payload_offset, message.payload_bytes};
    struct cursor cursor = {.slices = &payload, .slice_count = 1};
    struct shard_ack ack =
        shard_push(world->shard, message.push.member, &message.push, cursor, &world->effects);
    check(ack.first_refused <= message.push.entry_count);
}

static void pull(struct world *world)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    scoped(buf_release) struct buf buf = {0};
    uint32_t wanted[4] = {FIRST, TIED, chunk_of(world), chunk_of(world)};
    struct to_shard message = {.kind = TO_SHARD_PULL};
    uint64_t member = 1 + byte(world) % 3;
    message.pull = (struct pull){.id = ++world->id,
                                 .generation = near(world, GENERATION),
                                 .version = near(world, shard_version(world->shard)),
                                 .chunk_count = 1 + byte(world) % 4,
                                 .chunks = wanted,
                                 .newest = near(world, world->config.async.on) % 2 != 0,
                                 .attempt = byte(world)};
    if (pass(&message, &arena, &buf))
        shard_pull(world->shard, (struct pull_sender){.stream = member, .member = member},
                   &message.pull, &world->effects);
}

static void forget(struct world *world)
{
    uint64_t member = 1 + byte(world) % 3;
    if (byte(world) % 2 == 0)
        shard_cancel(world->shard, member);
    else
        (void)shard_end_member(world->shard, member, &world->effects); /* the rest stays */
}

/* ---- coordinator and other servers ---- */

static void commit(struct world *world)
{
    const struct commit commit = {.generation = near(world, GENERATION),
                                  .term = near(world, TERM),
                                  .step = near(world, shard_version(world->shard)),
                                  .apply = byte(world) % 8 != 7,
                                  .cut = byte(world) % 4 == 3,
                                  .scale = 0.25f,
                                  .lr = 0.5f,
                                  .bias1 = 1,
                                  .bias2 = 1};
    if (commit.step > WIRE_STEP_MAX)
        return; /* the wire refuses it */
    const struct shard_leave leave = {chunk_of(world), 1};
    uint8_t moved = world->config.async.on ? 0 : byte(world);
    const struct shard_moves moves = {.file = byte(world) % 8 == 7 ? SHARD_FILE_NONE : 0,
                                      .leave_count = moved % 8 == 6 ? 1 : 0,
                                      .leaves = &leave,
                                      .take_count = moved % 8 == 7 ? 1 : 0,
                                      .takes = &other};
    ignore(shard_commit(world->shard, near(world, BOOT), &commit, &moves,
                        &world->effects)); /* it may refuse */
}

static void work(struct world *world)
{
    bool more = true;
    for (uint32_t i = 0; more && i < 1u + byte(world) % 8; i++) {
        ignore(shard_work(world->shard, &world->effects, &more)); /* again */
        carry_out(world);
    }
}

static void arrive(struct world *world)
{
    float values[N * 4] = {1};
    const struct slice payload = {(const uint8_t *)values, sizeof values};
    struct transfer header = {.generation = near(world, GENERATION),
                              .version = near(world, shard_version(world->shard)),
                              .chunk = chunk_of(world),
                              .weights = N,
                              .arrays = 1 + byte(world) % 4};
    const struct slice part = {payload.data, (size_t)header.weights * header.arrays * 4};
    ignore(shard_arrive(world->shard, &header, (struct cursor){.slices = &part, .slice_count = 1},
                        &world->effects)); /* it may refuse */
}

static void answer(struct world *world)
{
    struct transfer header = world->transfer;
    header.version = near(world, header.version);
    header.chunk = (uint32_t)near(world, header.chunk);
    shard_transferred(world->shard, &header, byte(world) % 2 == 0 ? ERR_OK : ERR_UNREACHABLE);
}

static void ask(struct world *world)
{
    uint64_t slots[WIRE_SLOT_WORDS_MAX], step = near(world, shard_version(world->shard));
    if (byte(world) % 2 == 0)
        (void)shard_missing(world->shard, &step, slots); /* whatever it is */
    else
        shard_report(world->shard, &world->effects);
    if (byte(world) % 8 == 7)
        (void)shard_snapshot_begin(world->shard); /* or not now */
}

static void log_written(struct world *world)
{
    if (world->config.async.logged)
        shard_logged(world->shard, world->ordered - byte(world) % (world->ordered + 1));
}

/* ---- a run ---- */

static bool begin(struct world *world, const struct kernels *kernels)
{
    uint8_t kind = byte(world) % 4, more = byte(world);
    world->config = (struct shard_config){
        .kernels = kernels,
        .generation = GENERATION,
        .boot = BOOT,
        .term = TERM,
        .slots = SLOTS,
        .audited = kind == 0 && (more & 1) != 0,
        .delay = kind == 2 ? 1 : 0,
        .cut_versions = kind == 2 ? 1 : 0,
        .push_codec = (more & 2) != 0 ? CODEC_BF16 : CODEC_FP32,
        .weights_codec = (more & 4) != 0 ? CODEC_BF16 : CODEC_FP32,
        .ahead_max = 1 + (more >> 3) % SLOTS,
        .parked_member_bytes_max = 64,
        .snapshot_copies = 1 + (more >> 5) % 2,
        .optimizer = {.kind = SPEC_MOMENTUM, .momentum = 0.5},
        .async = {.on = kind == 1,
                  .logged = (more & 64) != 0,
                  .staleness_max = 4,
                  .window = WINDOW,
                  .slot_samples = 1,
                  .push_codec = (more & 2) != 0 ? CODEC_BF16 : CODEC_FP32,
                  .seal = {.schedule = {.kind = SPEC_CONSTANT, .lr = 1, .step_samples = SLOTS}}},
        .run_chunk_count = RUN_CHUNKS,
        .chunk_count = COUNT,
        .chunks = chunks,
    };
    world->config.async.logged = world->config.async.logged && world->config.async.on;
    return shard_new(&world->config, &world->shard) == ERR_OK &&
           shard_start(world->shard) == ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static void (*const events[])(struct world *) = {push,   push,   push,   push,   pull,
                                                     pull,   commit, commit, work,   work,
                                                     arrive, answer, ask,    forget, log_written};
    const struct kernels_options options = {.backend = KERNELS_CPU};
    const struct kernels *kernels;
    char reason[256];
    struct world world = {.piece = {data, bytes}};
    if (!kernels_new(&options, &kernels, reason, sizeof reason))
        return 0;
    bool begun = begin(&world, kernels);
    for (size_t at = PIECE_BYTES; begun && at < bytes && at < EVENTS_MAX * PIECE_BYTES;
         at += PIECE_BYTES) {
        world.piece = fuzz_piece(data + at, bytes - at, PIECE_BYTES);
        events[byte(&world) % (sizeof events / sizeof events[0])](&world);
        carry_out(&world);
    }
    shard_free(world.shard);
    kernels_free(kernels);
    return 0;
}
