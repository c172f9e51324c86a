/* Chunks to and from the wire: slices that end anywhere, strided rows, two codecs. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "worker/blocks.h"

enum { ROWS = 12, COLS = 10 };

/* One parameter of 12 × 10, and chunks that take a block of it, whole rows of it, all of it. */
struct blocks_fixture {
    const struct kernels *k;
    struct model_parameter parameters[2];
    struct model_chunk chunks[4];
    struct model model;
    float values[ROWS * COLS];
};

static void blocks_set_up(struct blocks_fixture *f)
{
    char why[256];
    *f = (struct blocks_fixture){
        .parameters = {{.rows = ROWS, .cols = COLS, .weights = ROWS * COLS},
                       {.rows = MODEL_LOSS_WEIGHTS, .cols = 1, .weights = MODEL_LOSS_WEIGHTS}},
        .chunks = {{.row = 3, .rows = 5, .col = 4, .cols = 3, .weights = 15},
                   {.row = 2, .rows = 7, .col = 0, .cols = COLS, .weights = 7 * COLS},
                   {.row = 0, .rows = ROWS, .col = 9, .cols = 1, .weights = ROWS},
                   {.parameter = 1, .rows = MODEL_LOSS_WEIGHTS, .cols = 1, .weights = 4}},
    };
    f->model = (struct model){.parameters = f->parameters,
                              .chunks = f->chunks,
                              .parameters_count = 2,
                              .chunks_count = 4,
                              .loss_parameter = 1};
    if (!kernels_new(&(struct kernels_options){0}, &f->k, why, sizeof why))
        fail_msg("%s", why);
    for (int i = 0; i < ROWS * COLS; i++)
        f->values[i] = (float)i; /* exact in bf16 */
}

static void blocks_tear_down(struct blocks_fixture *f)
{
    kernels_free(f->k);
}

/* Cuts `bytes` in up to 40 slices at random places; empty ones are among them. */
static size_t cut(struct rand_state *state, const uint8_t *bytes, size_t count,
                  struct slice *ret_slices)
{
    size_t slices = 0, at = 0;
    while (at < count && slices < 39) {
        size_t here = (size_t)rand_below(state, 9);
        here = here < count - at ? here : count - at;
        ret_slices[slices++] = (struct slice){bytes + at, here};
        at += here;
    }
    ret_slices[slices++] = (struct slice){bytes + at, count - at};
    return slices;
}

static void check_chunk(struct blocks_fixture *f, uint32_t chunk, enum codec codec, uint64_t seed)
{
    struct rand_state state = {seed};
    uint8_t bytes[4 * ROWS * COLS + 8] = {0};
    float got[ROWS * COLS], wanted[ROWS * COLS];
    memset(got, 0x7f, sizeof got);
    memcpy(wanted, got, sizeof wanted);
    size_t count = blocks_bytes(&f->model, chunk, codec);
    blocks_encode(f->k, &f->model, chunk, codec, f->values, bytes + 3);
    for (uint32_t r = 0; r < f->chunks[chunk].rows; r++)
        for (uint32_t c = 0; c < f->chunks[chunk].cols; c++) {
            uint64_t i = model_row_offset(&f->model, chunk, r) + c;
            wanted[i] = f->values[i];
        }

    struct slice slices[40];
    size_t slice_count = cut(&state, bytes, count + 3 + 5, slices);
    struct cursor cursor = {.slices = slices, .slice_count = slice_count};
    cursor_skip(&cursor, 3);
    blocks_decode(f->k, &f->model, chunk, codec, &cursor, got);
    assert_memory_equal(got, wanted, sizeof got);
    assert_int_equal(cursor_bytes(&cursor), 5);
}

TEST_F(chunks_are_read_from_slices_that_end_anywhere, blocks)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        for (uint32_t chunk = 0; chunk < 3; chunk++)
            for (enum codec codec = 0; codec < CODEC_COUNT; codec++)
                check_chunk(f, chunk, codec, seed);
}

TEST_F(the_loss_is_always_fp32, blocks)
{
    const float loss[4] = {1.0F / 3, 5, 7, 0};
    uint8_t bytes[16];
    assert_int_equal(blocks_bytes(&f->model, 3, CODEC_BF16), 16);
    assert_int_equal(blocks_codec(&f->model, 3, CODEC_BF16), CODEC_FP32);
    assert_int_equal(blocks_codec(&f->model, 0, CODEC_BF16), CODEC_BF16);
    blocks_encode(f->k, &f->model, 3, CODEC_BF16, loss, bytes);
    assert_memory_equal(bytes, loss, sizeof loss);
}
