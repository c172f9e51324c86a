/* Schedules of several places: how long they take, what they keep, and that they are right. */
#include "tests/unit/schedule_fixture.h"

#include "common/rand.h"

/* ---- integers ---- */

/* facts: simulated by another program, or from the papers that schedule.h names. */
TEST(golden_integers)
{
    static const struct {
        struct schedule_shape shape;
        bool equal;
        double time;
        uint32_t stored[8];
    } rows[] = {
        {{SCHEDULE_NAIVE, 4, 1, 4, 1, 1}, false, 12, {1, 1, 1, 1}},
        {{SCHEDULE_NAIVE, 4, 1, 4, 8, 1}, false, 96, {1, 1, 1, 1}},
        {{SCHEDULE_GPIPE, 4, 1, 4, 8, 1}, false, 33, {8, 8, 8, 8}},
        {{SCHEDULE_GPIPE, 8, 1, 8, 32, 4}, false, 117, {32, 32, 32, 32, 32, 32, 32, 32}},
        {{SCHEDULE_1F1B, 4, 1, 4, 8, 1}, false, 33, {4, 3, 2, 1}},
        {{SCHEDULE_1F1B, 4, 1, 16, 8, 2}, false, 33, {4, 3, 2, 1}},
        {{SCHEDULE_1F1B, 8, 1, 8, 32, 1}, false, 117, {8, 7, 6, 5, 4, 3, 2, 1}},
        {{SCHEDULE_INTERLEAVED, 4, 2, 8, 8, 1}, false, 28.5, {11, 9, 7, 5}},
        {{SCHEDULE_INTERLEAVED, 8, 2, 16, 32, 1}, false, 106.5, {23, 21, 19, 17, 15, 13, 11, 9}},
        {{SCHEDULE_ZB_H1, 4, 1, 4, 8, 1}, false, 27, {4, 4, 4, 4}},
        {{SCHEDULE_ZB_H1, 8, 1, 8, 32, 2}, false, 103, {8, 8, 8, 8, 8, 8, 8, 8}},
        {{SCHEDULE_CHIMERA, 4, 1, 4, 4, 2}, true, 10, {3, 4, 4, 3}},
        {{SCHEDULE_CHIMERA, 4, 1, 4, 4, 2}, false, 16, {3, 4, 4, 3}},
        {{SCHEDULE_CHIMERA, 6, 1, 6, 6, 2}, true, 16, {4, 5, 6, 6, 5, 4}},
        {{SCHEDULE_CHIMERA, 6, 1, 6, 6, 2}, false, 26, {4, 5, 6, 6, 5, 4}},
        {{SCHEDULE_CHIMERA, 8, 1, 8, 8, 2}, true, 22, {5, 6, 7, 8, 8, 7, 6, 5}},
        {{SCHEDULE_CHIMERA, 8, 1, 8, 8, 2}, false, 36, {5, 6, 7, 8, 8, 7, 6, 5}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule_fixture f = {.shape = rows[i].shape, .equal = rows[i].equal};
        schedule_set_up(&f);
        double time = (double)f.result.time / TICKS;
        if (time != rows[i].time)
            fail_msg("%s: %g, not %g", schedule_name(f.shape.schedule), time, rows[i].time);
        for (uint32_t p = 0; p < f.shape.places; p++)
            if (f.result.places[p].stored != rows[i].stored[p])
                fail_msg("%s: place %u keeps %u", schedule_name(f.shape.schedule), p,
                         f.result.places[p].stored);
        schedule_tear_down(&f);
    }
}

/* What passes between places for the model of facts: gpt, 6 layers, width 64, context 32. */
TEST(every_boundary_is_crossed_once_each_way)
{
    static const struct {
        struct schedule_shape shape;
        uint64_t boundaries;
    } rows[] = {
        {{SCHEDULE_1F1B, 4, 1, 8, 8, 1}, 3},
        {{SCHEDULE_GPIPE, 2, 1, 8, 8, 1}, 1},
        {{SCHEDULE_INTERLEAVED, 4, 2, 8, 8, 1}, 7},
        {{SCHEDULE_CHIMERA, 4, 1, 8, 8, 2}, 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct schedule_fixture f = {.shape = rows[i].shape, .boundary_bytes = 8192};
        schedule_set_up(&f);
        assert_int_equal(simulate_peer_bytes(&f.result), 2 * 8 * rows[i].boundaries * 8192);
        schedule_tear_down(&f);
    }
}

/* A member has a quarter of each; all of it passes, and is kept for who asks. */
TEST(a_value_in_ranges_passes_whole)
{
    struct schedule_fixture f = {
        .shape = {SCHEDULE_1F1B, 4, 1, 8, 8, 1}, .boundary_bytes = 2048, .ranges = 4};
    uint64_t kept = 0;
    schedule_set_up(&f);
    for (uint32_t p = 0; p < f.shape.places; p++)
        kept += f.result.places[p].outbox_bytes;
    assert_int_equal(simulate_peer_bytes(&f.result), 2 * 8 * 3 * 8192);
    assert_int_equal(kept, 2 * 8 * 3 * 8192);
    schedule_tear_down(&f);
}

/* ---- formulas ---- */

static uint32_t below(struct rand_state *random, uint32_t limit)
{
    return (uint32_t)rand_below(random, limit);
}

/* A shape that schedule_judge() accepts. */
static struct schedule_shape any_shape(struct rand_state *random)
{
    struct schedule_shape shape = {.schedule = (enum schedule_kind)below(random, SCHEDULE_COUNT),
                                   .places = 1 + below(random, 6),
                                   .runs = 1};
    uint32_t of_slot = 1 + below(random, 5);
    shape.slots = UINT32_C(1) << below(random, 3);
    if (shape.schedule == SCHEDULE_INTERLEAVED) {
        shape.runs = 1 + below(random, 3);
        of_slot *= shape.places;
    } else if (shape.schedule == SCHEDULE_CHIMERA) {
        shape.places = 2 * (1 + below(random, 4));
        shape.slots = shape.slots < 2 ? 2 : shape.slots;
    }
    shape.microbatches = shape.slots * of_slot;
    shape.units = shape.places * shape.runs * (1 + below(random, 2));
    return shape;
}

/* In ticks; 0: there is no formula. */
static uint64_t formula(const struct schedule_shape *shape)
{
    uint64_t places = shape->places, microbatches = shape->microbatches;
    switch (shape->schedule) {
    case SCHEDULE_NAIVE:
        return 3 * microbatches * places * TICKS;
    case SCHEDULE_GPIPE:
    case SCHEDULE_1F1B:
        return 3 * (microbatches + places - 1) * TICKS;
    case SCHEDULE_INTERLEAVED:
        return 3 * microbatches * TICKS + 3 * (places - 1) * TICKS / shape->runs;
    case SCHEDULE_ZB_H1:
        return microbatches >= places ? (3 * microbatches + places - 1) * TICKS : 0;
    case SCHEDULE_CHIMERA:
        return microbatches == places ? (3 * microbatches + 2 * (places - 2)) * TICKS : 0;
    case SCHEDULE_COUNT:
        break;
    }
    return 0;
}

/* The work of a place is the same in every schedule: idle share and time say the same. */
static void times(const struct schedule_fixture *f)
{
    uint64_t wanted = formula(&f->shape), work = (uint64_t)3 * f->shape.microbatches * TICKS;
    if (wanted == 0)
        return;
    if (f->result.time != wanted)
        fail_msg("%s, %u places, %u runs, %u microbatches: %g, not %g",
                 schedule_name(f->shape.schedule), f->shape.places, f->shape.runs,
                 f->shape.microbatches, (double)f->result.time / TICKS, (double)wanted / TICKS);
    assert_idle_share(f, 1 - (double)work / (double)wanted);
}

/* Of every schedule what it promises to keep at most. */
static void keeps(const struct schedule_fixture *f)
{
    uint32_t places = f->shape.places, microbatches = f->shape.microbatches;
    for (uint32_t p = 0; p < places; p++) {
        const uint32_t most[SCHEDULE_COUNT] = {
            [SCHEDULE_NAIVE] = 1,
            [SCHEDULE_GPIPE] = microbatches,
            [SCHEDULE_1F1B] = places - p,
            [SCHEDULE_INTERLEAVED] = 2 * (places - p - 1) + (f->shape.runs - 1) * places + 1,
            [SCHEDULE_ZB_H1] = places,
            [SCHEDULE_CHIMERA] = places,
        };
        assert_true(f->result.places[p].stored <= most[f->shape.schedule]);
    }
}

enum { SHAPES = 400, SHAPES_BROKEN = 60 };

TEST(any_schedule_is_valid_and_takes_what_its_formula_says)
{
    for (uint64_t seed = 1; seed <= SHAPES; seed++) {
        struct rand_state random = {seed};
        struct schedule_fixture f = {.shape = any_shape(&random)};
        f.passes.recompute = below(&random, 3) == 0;
        f.passes.offload = !f.passes.recompute && below(&random, 3) == 0;
        struct passes_options passes = f.passes;
        f.passes = (struct passes_options){0};
        schedule_set_up(&f);
        times(&f);
        keeps(&f);
        schedule_tear_down(&f);
        f = (struct schedule_fixture){.shape = f.shape, .passes = passes};
        schedule_set_up(&f); /* valid with recomputation and offload too */
        schedule_tear_down(&f);
    }
}

TEST(what_is_printed_parses_to_the_same_program_of_several_places)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rand_state random = {seed};
        struct schedule_fixture f = {.shape = any_shape(&random)};
        scoped(program_release) struct program parsed = {0};
        scoped(buf_release) struct buf text = {0}, again = {0};
        schedule_set_up(&f);
        assert_int_equal(program_print(&f.program, &text), ERR_OK);
        assert_int_equal(program_parse(buf_slice(&text), &parsed, NULL), ERR_OK);
        assert_int_equal(parsed.slots, f.shape.slots);
        assert_int_equal(parsed.places_count, f.shape.places);
        assert_int_equal(program_print(&parsed, &again), ERR_OK);
        assert_int_equal(again.bytes, text.bytes);
        assert_memory_equal(again.data, text.data, text.bytes);
        schedule_tear_down(&f);
    }
}

/* ---- broken programs ---- */

static void refused(const struct program *program, const char *what, uint32_t place, uint32_t i)
{
    struct reason reason = {.text = ""};
    struct program_row_text row = program_row_text(program, program->places[place].rows[i]);
    if (program_validate(program, &reason) != ERR_INVALID)
        fail_msg("%s in place %u, row %u (%s): accepted", what, place, i + 1, row.text);
    assert_non_null(strstr(reason.text, program->places_count > 1 ? "place " : "row "));
}

/* Row i of the place `count` times: 0 drops it, 2 doubles it. */
static void with_row(const struct program *program, uint32_t place, uint32_t i, uint32_t count)
{
    scoped(program_release) struct program broken = {0};
    assert_int_equal(program_copy(program, &broken), ERR_OK);
    struct program_place *to = &broken.places[place];
    const struct program_place *from = &program->places[place];
    struct program_row *rows = malloc((from->rows_count + 1) * sizeof *rows);
    uint32_t at = 0;
    for (uint32_t j = 0; j < from->rows_count; j++)
        for (uint32_t k = 0; k < (j == i ? count : 1); k++)
            rows[at++] = from->rows[j];
    free(to->rows);
    to->rows = rows;
    to->rows_count = at;
    refused(&broken, count == 0 ? "dropped" : "doubled", place, i > 0 ? i - 1 : 0);
}

static struct act_arrays arrays_of(const struct program *program, struct program_row row)
{
    struct act_arrays arrays = act_arrays(row.act, program_unit(program, row.unit));
    if (arrays.reads & ARRAY(INPUT))
        arrays.reads |= ARRAY(ARRIVED);
    if (arrays.reads & ARRAY(DOUTPUT))
        arrays.reads |= ARRAY(RETURNED);
    return arrays;
}

static bool same_thing(const struct program *program, struct program_row a, struct program_row b)
{
    bool cells = act_facts(a.act)->scope == ACT_OF_MICROBATCH &&
                 act_facts(b.act)->scope == ACT_OF_MICROBATCH;
    return a.unit == b.unit && program_slot(program, a) == program_slot(program, b) &&
           (!cells || a.microbatch == b.microbatch);
}

/* The second row needs what the first one changes. */
static bool depends(const struct program *program, struct program_row first,
                    struct program_row second)
{
    struct act_arrays a = arrays_of(program, first), b = arrays_of(program, second);
    uint32_t changes = a.writes | a.begins | a.adds | a.ends;
    return same_thing(program, first, second) &&
           (changes & (b.reads | b.writes | b.begins | b.adds | b.ends)) != 0;
}

static void swapped(const struct program *program, uint32_t place, uint32_t i)
{
    const struct program_row *rows = program->places[place].rows;
    if (!depends(program, rows[i], rows[i + 1]))
        return;
    scoped(program_release) struct program broken = {0};
    assert_int_equal(program_copy(program, &broken), ERR_OK);
    broken.places[place].rows[i] = rows[i + 1];
    broken.places[place].rows[i + 1] = rows[i];
    refused(&broken, "swapped", place, i);
}

/* The row goes from its place to the end of another one. */
static void moved(const struct program *program, uint32_t place, uint32_t i)
{
    scoped(program_release) struct program broken = {0};
    uint32_t other = (place + 1) % program->places_count;
    if (other == place)
        return;
    assert_int_equal(program_copy(program, &broken), ERR_OK);
    struct program_place *from = &broken.places[place], *to = &broken.places[other];
    to->rows = realloc(to->rows, (to->rows_count + 1) * sizeof *to->rows);
    to->rows[to->rows_count++] = from->rows[i];
    memmove(&from->rows[i], &from->rows[i + 1], (--from->rows_count - i) * sizeof *from->rows);
    refused(&broken, "moved", place, i > 0 ? i - 1 : 0);
}

TEST(a_row_dropped_doubled_swapped_or_moved_is_found)
{
    for (uint64_t seed = 1; seed <= SHAPES_BROKEN; seed++) {
        struct rand_state random = {1000 + seed};
        struct schedule_fixture f = {.shape = any_shape(&random)};
        f.passes.recompute = below(&random, 2) == 0;
        f.passes.offload = !f.passes.recompute && below(&random, 2) == 0;
        schedule_set_up(&f);
        for (uint32_t p = 0; p < f.shape.places; p++) {
            uint32_t rows = f.program.places[p].rows_count;
            for (uint32_t n = 0; n < 12; n++) {
                uint32_t i = below(&random, rows);
                with_row(&f.program, p, i, 0);
                with_row(&f.program, p, i, 2);
                moved(&f.program, p, i);
                if (i + 1 < rows)
                    swapped(&f.program, p, i);
            }
        }
        schedule_tear_down(&f);
    }
}

/* ---- settings that have no program ---- */

TEST(a_shape_without_a_program_is_refused_with_one_that_has_one)
{
    static const struct {
        struct schedule_shape shape;
        const char *wanted;
    } rows[] = {
        {{SCHEDULE_1F1B, 9, 1, 8, 8, 1},
         "9 stages need as many units, and the model has 8; 8 stages would do"},
        {{SCHEDULE_INTERLEAVED, 4, 3, 8, 8, 1},
         "4 stages of 3 runs need 12 units, and the model "
         "has 8; at most 2 runs would do"},
        {{SCHEDULE_INTERLEAVED, 5, 2, 8, 10, 1}, "at most 1 run would do"},
        {{SCHEDULE_INTERLEAVED, 9, 2, 8, 9, 1}, "9 stages need as many units"},
        {{SCHEDULE_1F1B, 4, 2, 8, 8, 1}, "1f1b has one run of units in a place, not 2"},
        {{SCHEDULE_INTERLEAVED, 4, 2, 8, 6, 1}, "not 6; 8 would do"},
        {{SCHEDULE_INTERLEAVED, 3, 1, 8, 8, 2}, "not 8; 12 would do"}, /* of two slots: even */
        {{SCHEDULE_1F1B, 300, 1, 200, 8, 1}, "the model has 200; 64 stages would do"},
        {{SCHEDULE_CHIMERA, 1, 1, 1, 2, 2}, "an even number of stages, and the model has one unit"},
        {{SCHEDULE_CHIMERA, 3, 1, 8, 8, 2}, "an even number of stages, not 3; 4 would do"},
        {{SCHEDULE_CHIMERA, 4, 1, 8, 8, 1}, "a node of 1 slot has no halves; nodes of 2 slots "},
        {{SCHEDULE_CHIMERA, 4, 1, 8, 12, 6}, "a node of 6 slots has no halves; nodes of 8 slots "},
        {{SCHEDULE_GPIPE, 4, 1, 4096, 4096, 1}, "train.microbatch 128 times as large would do"},
        {{SCHEDULE_GPIPE, 4, 1, 8, 65536, 16}, "nodes of 4 slots (train.node_slots) would do"},
        {{SCHEDULE_GPIPE, 4, 1, 8, 4 * 16385, 4}, "train.microbatch 2 times as large would do"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct reason reason = {.text = ""};
        assert_int_equal(schedule_judge(&rows[i].shape, &reason), ERR_INVALID);
        if (strstr(reason.text, rows[i].wanted) == NULL)
            fail_msg("\"%s\" is said", reason.text);
    }
}

/* 2^16 · 2^16 is 0 in 32 bits, and 2^16 · (2^16 + 1) few enough. */
TEST(more_microbatches_than_32_bits_hold_are_too_many)
{
    assert_int_equal(pipeline_microbatches(4, 8), 32);
    assert_int_equal(pipeline_microbatches(65536, 65535), 4294901760);
    for (uint32_t of_slot = 65536; of_slot < 65540; of_slot++) {
        struct spec spec = {.mesh = {.stages = 2, .runs = 1, .schedule = SCHEDULE_1F1B},
                            .train = {.slot_samples = of_slot, .microbatch = 1}};
        struct schedule_shape shape = pipeline_shape(&spec, 8, 65536);
        struct reason reason = {.text = ""};
        assert_int_equal(schedule_judge(&shape, &reason), ERR_INVALID);
        assert_non_null(strstr(reason.text, "train.microbatch 4 times as large would do"));
    }
}

/* Of 63 units a program holds 2,080 microbatches. */
TEST(the_largest_node_that_has_a_program_is_found)
{
    static const struct {
        uint32_t of_slot, slots, most;
    } rows[] = {{512, 16, 4}, {512, 4, 4},   {512, 3, 3},  {400, 6, 4},
                {400, 5, 5},  {2080, 16, 1}, {130, 16, 16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct schedule_shape slot = {SCHEDULE_1F1B, 2, 1, 63, rows[i].of_slot, 1};
        assert_int_equal(schedule_slots_max(&slot, rows[i].slots), rows[i].most);
    }
}

/* ---- without a flush ---- */

/* PipeDream: d · M >= P - 1. */
TEST(which_delays_leave_gaps_and_what_would_do)
{
    static const struct {
        struct schedule_shape shape;
        uint32_t delay;
        const char *wanted; /* NULL: no place waits */
    } rows[] = {
        {{SCHEDULE_1F1B, 1, 1, 4, 1, 1}, 1, NULL},
        {{SCHEDULE_1F1B, 4, 1, 4, 1, 1}, 0, NULL}, /* it is sync */
        {{SCHEDULE_1F1B, 4, 1, 4, 1, 1},
         2,
         "4 stages with 1 microbatch a ticket wait between steps: a delay of 3 would do"},
        {{SCHEDULE_1F1B, 4, 1, 4, 1, 1}, 3, NULL},
        {{SCHEDULE_1F1B, 4, 1, 4, 2, 1},
         1,
         "4 stages with 2 microbatches a ticket wait between steps: a delay of 2 would do"},
        {{SCHEDULE_INTERLEAVED, 4, 2, 8, 4, 1},
         1,
         "4 stages of several runs with 4 microbatches a ticket wait between steps: a delay of 2 "
         "would do"},
        {{SCHEDULE_1F1B, 8, 1, 8, 1, 1}, 7, NULL},
        {{SCHEDULE_1F1B, 9, 1, 9, 1, 1},
         32,
         "9 stages with 1 microbatch a ticket wait between steps, since a worker shares at most 8 "
         "tickets, whatever the delay: 2 microbatches a ticket and a delay of 7 would do"},
        {{SCHEDULE_1F1B, 9, 1, 9, 2, 1}, 32, NULL},
        {{SCHEDULE_1F1B, 2, 1, 4, 2, 1, 0, "my.csv", "0F0,0B0,2F0,2B0;1F0,1B0,3F0,3B0"},
         1,
         "2 stages of several runs with 2 microbatches a ticket wait between steps: a delay of 2 "
         "would do"},
        {{SCHEDULE_1F1B, 2, 1, 4, 2, 1, 0, "my.csv", "0F0,0B0;1F0,1B0"}, 1, NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct spec spec = {.consistency = {.kind = SPEC_DELAY, .delay = rows[i].delay}};
        struct reason why = {.text = ""};
        assert_int_equal(pipeline_waits(&rows[i].shape, &spec, &why), rows[i].wanted != NULL);
        assert_string_equal(why.text, rows[i].wanted != NULL ? rows[i].wanted : "");
    }
}
