/* Gradients on their way out: which rows travel, and that what arrives is what was computed. */
#include "tests/unit/executor_fixture.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "worker/push.h"

/* The newest message that was sent. */
static struct buf sent;
static const struct counted *sent_block; /* of its last part */

enum err __wrap_rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                                struct buf *take_header, const struct rpc_part *parts,
                                size_t part_count);
enum err __wrap_rpc_stream_send(struct rpc_stream *stream, enum rpc_priority priority,
                                struct buf *take_header, const struct rpc_part *parts,
                                size_t part_count)
{
    (void)stream, (void)priority;
    buf_clear(&sent);
    sent = *take_header;
    sent_block = part_count > 0 ? parts[part_count - 1].counted : NULL;
    for (size_t i = 0; i < part_count; i++)
        assert_int_equal(
            buf_append(&sent, parts[i].counted->data + parts[i].offset, parts[i].bytes), ERR_OK);
    return ERR_OK;
}

/* Sends one chunk's part, and decodes what was sent. */
static size_t push_one(const struct push_source *source, bool sparse,
                       const struct push_entry *entry, enum codec codec, struct arena *arena,
                       struct to_shard *ret_message)
{
    const struct push push = {.node = {0, 1}, .codec = codec, .entry_count = 1, .entries = entry};
    const struct push_stream to = {NULL, sparse};
    size_t bytes;
    assert_int_equal(push_send(source, &to, &push, &bytes), ERR_OK);
    struct slice slice = buf_slice(&sent);
    struct reason reason = {0};
    if (wire_decode_to_shard(&slice, 1, arena, ret_message, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_int_equal(ret_message->push.entry_count, 1);
    assert_int_equal(bytes, ret_message->payload_bytes);
    return bytes;
}

/* What arrived, as long as the chunk. */
static void spread(const struct to_shard *message, size_t row_bytes, uint8_t *ret_bytes)
{
    const struct push_entry *entry = &message->push.entries[0];
    const uint8_t *payload = sent.data + message->payload_offset;
    if (!entry->sparse)
        memcpy(ret_bytes, payload, entry->bytes);
    for (uint32_t i = 0; i < entry->row_count; i++)
        memcpy(ret_bytes + entry->rows[i] * row_bytes, payload + i * row_bytes, row_bytes);
}

/* Pushes one part of a chunk; returns how many bytes did not travel. */
static size_t check_one(const struct push_source *source, bool sparse, uint32_t chunk,
                        uint32_t part, enum codec codec)
{
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    uint32_t bytes = (uint32_t)blocks_bytes(source->model, chunk, codec);
    const struct push_entry entry = {.chunk = chunk, .part = part, .bytes = bytes};
    scoped(free_scoped) uint8_t *wanted = calloc(1, bytes), *got = calloc(1, bytes);
    struct to_shard message;
    size_t spared = bytes - push_one(source, sparse, &entry, codec, &arena, &message);
    spread(&message, bytes / source->model->chunks[chunk].rows, got);
    codec = blocks_codec(source->model, chunk, codec);
    if (source->whole != NULL)
        assert_int_equal(whole_encode(source->whole, chunk, codec, wanted), ERR_OK);
    else
        executor_encode(source->executor, chunk, part, codec, wanted);
    assert_memory_equal(got, wanted, bytes);
    buf_clear(&sent);
    return spared;
}

/* The same of all chunks and parts; async pushes one of each chunk. */
static size_t check_all(const struct push_source *source, bool sparse, enum codec codec)
{
    const struct model *model = source->model;
    size_t spared = 0;
    for (uint32_t chunk = 0; chunk < model->chunks_count; chunk++) {
        uint32_t parts = model->parameters[model->chunks[chunk].parameter].parts;
        for (uint32_t part = 0; part < (source->whole != NULL ? 1 : parts); part++)
            spared += check_one(source, sparse, chunk, part, codec);
    }
    return spared;
}

/* More than nine rows in ten of its gradient are zeros, and do not travel. */
static void check_embedding(const struct push_source *source)
{
    size_t all = source->model->parameters[0].weights * sizeof(float);
    assert_int_equal(check_all(source, false, CODEC_FP32), 0); /* the server takes none */
    size_t spared = check_all(source, true, CODEC_FP32);
    assert_true(spared > all * 9 / 10 && spared < all);
    assert_int_equal(check_all(source, true, CODEC_BF16), spared / 2);
}

/* In chunks as wide as their parameters. */
static struct spec_model whole_rows(struct spec_model settings)
{
    settings.tensor_max = 1;
    return settings;
}

TEST_F(what_arrives_are_the_gradients_bits, executor,
       .settings = fixture_words(fixture_gpt(), 1000))
{
    const struct push_source source = {.executor = f->executor, .model = &f->model};
    const struct model_parameter *embedding = &f->model.parameters[0];
    assert_int_equal(embedding->parts, 2);
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    check_embedding(&source);
}

/* Of so many words that the executor keeps the embedding's gradient by rows (few_rows.h). */
TEST_F(rows_that_are_kept_alone_travel_alone, executor,
       .settings = whole_rows(fixture_words(fixture_gpt(), 4000)))
{
    const struct push_source source = {.executor = f->executor, .model = &f->model};
    struct executor_rows lie;
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    assert_false(executor_lend(f->executor, 0, 0, &lie));
    check_embedding(&source);
}

TEST_F(what_is_long_is_sent_from_where_it_was_computed, executor,
       .settings = whole_rows(fixture_words(fixture_gpt(), 1000)))
{
    const struct push_source source = {.executor = f->executor, .model = &f->model};
    struct executor_rows lie;
    size_t lent = 0;
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++) {
        bool is_long = blocks_bytes(&f->model, chunk, CODEC_FP32) >= 16 << 10;
        check_one(&source, false, chunk, 0, CODEC_FP32);
        assert_true(executor_lend(f->executor, chunk, 0, &lie));
        assert_int_equal(sent_block == lie.block, is_long);
        lent += is_long;
        check_one(&source, false, chunk, 0, CODEC_BF16);
        assert_ptr_not_equal(sent_block, lie.block);
    }
    assert_true(lent > 0);
}

/* Chunks as wide as half of their parameters: rows of 4 KiB and more are lent one by one. */
static struct spec_model wide(struct spec_model settings)
{
    settings.sizes[settings.sizes_count] = settings.sizes[settings.sizes_count - 1];
    settings.sizes[2] = settings.sizes[3] = 2048; /* an odd linear: not cut in narrow columns */
    settings.sizes_count++;
    return settings;
}

TEST_F(long_rows_are_sent_from_where_they_were_computed, executor, .settings = wide(fixture_mlp()))
{
    const struct push_source source = {.executor = f->executor, .model = &f->model};
    struct executor_rows lie;
    size_t rows = 0;
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    for (uint32_t chunk = 0; chunk < f->model.chunks_count; chunk++) {
        size_t row_bytes = blocks_bytes(&f->model, chunk, CODEC_FP32) / f->model.chunks[chunk].rows;
        check_one(&source, false, chunk, 0, CODEC_FP32);
        assert_true(executor_lend(f->executor, chunk, 0, &lie));
        if (lie.stride > row_bytes && sent_block == lie.block)
            rows += f->model.chunks[chunk].rows;
    }
    assert_true(rows > 0);
}

TEST_F(an_embedding_that_is_not_tied_is_as_sparse_in_async, executor,
       .settings = fixture_words(fixture_llama(), 1000))
{
    scoped(whole_release) struct whole whole = {0};
    const struct push_source source = {
        .executor = f->executor, .whole = &whole, .model = &f->model};
    const struct model_parameter *embedding = &f->model.parameters[0];
    assert_int_equal(embedding->parts, 1);
    fixture_run(f, f->executor, fixture_ticket(0, 0, 1));
    assert_int_equal(whole_init(&whole, f->executor, &f->model), ERR_OK);
    assert_true(check_all(&source, true, CODEC_FP32) > embedding->weights * sizeof(float) * 9 / 10);
}

TEST_F(a_loss_of_zeros_travels_whole, executor, .settings = fixture_mlp())
{
    struct executor_loss loss;
    static const struct executor_hooks none = {0};
    const struct ticket ticket = fixture_ticket(0, 0, 1);
    assert_int_equal(executor_run(f->executor, &ticket, &f->samples, &none, &loss), ERR_OK);
    uint32_t chunk = f->model.parameters[f->model.loss_parameter].chunk_first;
    memset((void *)(uintptr_t)executor_gradient(f->executor, f->model.loss_parameter, 0), 0,
           MODEL_LOSS_WEIGHTS * sizeof(float));
    const struct push_entry entry = {.chunk = chunk, .bytes = MODEL_LOSS_WEIGHTS * sizeof(float)};
    scoped(arena_release) struct arena arena = {.bytes_max = 1 << 20};
    struct to_shard message;
    const struct push_source source = {.executor = f->executor, .model = &f->model};
    assert_int_equal(push_one(&source, true, &entry, CODEC_FP32, &arena, &message), entry.bytes);
    assert_false(message.push.entries[0].sparse);
    buf_clear(&sent);
}

static bool has_failed; /* the second device, behind its gradients */

static const char *wait_for_second(const struct kernels *k)
{
    (void)k;
    return has_failed ? "launch failure" : NULL;
}

static void lock_nothing(void *context)
{
    (void)context;
}

TEST_F(a_sum_of_a_device_that_has_failed_is_not_sent, executor, .settings = fixture_mlp())
{
    static struct kernels second;
    const struct kernels *first = f->k;
    second = *first;
    second.synchronize = wait_for_second;
    second.in = second.out = f->k = &second;
    struct crew_options options = {
        .model = &f->model,
        .slots = f->train.slots,
        .count = 2,
        .executors = {f->executor, fixture_executor(f, 8)},
        .samples = {f->samples, f->samples},
        .lock = {NULL, lock_nothing, lock_nothing},
    };
    struct crew *crew;
    f->k = first;
    assert_int_equal(crew_new(&options, &crew), ERR_OK);
    const struct push_source source = {.executor = f->executor, .crew = crew, .model = &f->model};
    const struct ticket both = fixture_ticket(0, 1, 0), alone = fixture_ticket(0, 0, 0);
    const struct executor_hooks none = {0};
    struct executor_loss loss;
    assert_int_equal(crew_run(crew, &both, &none, &loss), ERR_OK);
    check_all(&source, true, CODEC_FP32);
    has_failed = true;
    const struct push_entry entry = {.bytes = (uint32_t)blocks_bytes(&f->model, 0, CODEC_FP32)};
    const struct push push = {.codec = CODEC_FP32, .entry_count = 1, .entries = &entry};
    const struct push_stream to = {NULL, true};
    size_t bytes;
    assert_int_equal(push_send(&source, &to, &push, &bytes), ERR_IO);
    assert_null(sent.data);
    assert_string_equal(push_failure(&source), "launch failure");
    assert_int_equal(crew_run(crew, &alone, &none, &loss), ERR_OK); /* the first device's alone */
    check_all(&source, true, CODEC_FP32);
    crew_free(crew);
    executor_free(f->made[--f->made_count]); /* before its table */
}

TEST(fewer_than_one_row_in_eight_travel_alone)
{
    enum { ROWS = 32, COLS = 5 };
    float values[ROWS][COLS] = {0};
    struct push_rows all = {.first = (const uint8_t *)values,
                            .count = ROWS,
                            .bytes = sizeof values[0],
                            .stride = sizeof values[0]};
    uint32_t rows[ROWS / 8];
    assert_int_equal(push_rows(&all, rows), 0);
    values[31][4] = -0.0F; /* a bit that is not 0 */
    values[0][0] = 1;
    memset(values[7], 0xff, sizeof values[7]); /* all bytes alike, and not 0 */
    assert_int_equal(push_rows(&all, rows), 3);
    assert_int_equal(rows[0], 0);
    assert_int_equal(rows[1], 7);
    assert_int_equal(rows[2], 31);
    struct push_rows some = all;
    some.bytes -= sizeof values[0][4];
    assert_int_equal(push_rows(&some, rows), 2); /* the last column is not of them */
    some = all;
    some.count = ROWS - 8;
    assert_int_equal(push_rows(&some, rows), 2);
    some.count = 16;
    assert_int_equal(push_rows(&some, rows), UINT32_MAX);
    values[8][4] = 1;
    assert_int_equal(push_rows(&all, rows), UINT32_MAX);
    some.count = 7;
    assert_int_equal(push_rows(&some, rows), UINT32_MAX);
    some.first += sizeof values[0];
    some.count = 6;
    assert_int_equal(push_rows(&some, rows), 0);
}
