/* The run that an operator asks for: new, continued, or refused. */
#include "tests/unit/folder.h"

#include "common/files/checkpoint.h"
#include "common/files/order.h"
#include "server/control/control_mesh.h"
#include "server/control/control_run.h"
#include "server/disk/journal.h"

#include <unistd.h>

#define SPEC(steps, lr)                                                                            \
    "model: {kind: mlp, layers: [2, 8, 3]}\n"                                                      \
    "data: {kind: spiral, validation: 0.1}\n"                                                      \
    "train: {steps: " steps ", slots: 4, slot_samples: 2, microbatch: 2, validation_samples: 5}\n" \
    "optimizer: {kind: adamw, lr: " lr "}\n"                                                       \
    "checkpoint: {every_steps: 5, keep: 2}\n"

static const char spec[] = SPEC("10", "0.1"), spec_longer[] = SPEC("20", "0.05");
static const char spec_logged[] = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                                  "data: {kind: spiral, validation: 0.1}\n"
                                  "train: {steps: 10, slots: 4, slot_samples: 2}\n"
                                  "consistency: {kind: async}\n"
                                  "checkpoint: {durability: logged}\n";
static const char spec_other[] = "model: {kind: mlp, layers: [2, 9, 3]}\n"
                                 "data: {kind: spiral}\n";

struct plan_fixture {
    void *folder;
    const char *directory;
    struct store *store;
    uint64_t term;
    struct start_run_request request;
    struct whole_cut whole;
    struct control_plan plan;
    struct reason reason;
};

static void plan_set_up(struct plan_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    f->directory = folder_path(&f->folder, ".");
    assert_int_equal(store_open_sqlite(folder_path(&f->folder, "roost.db"), &f->store, NULL),
                     ERR_OK);
    assert_int_equal(store_take_term(f->store, &f->term, NULL), ERR_OK);
    f->request = (struct start_run_request){.spec = spec,
                                            .servers_min = 2,
                                            .directory = f->directory,
                                            .samples = 270,
                                            .validation_samples = 30,
                                            .restore = ""};
    f->request.data_digest[0] = 9;
}

static enum err ask(struct plan_fixture *f)
{
    const struct control_wish wish = {.request = &f->request,
                                      .directory = f->directory,
                                      .spelled = f->request.directory,
                                      .whole = &f->whole};
    control_plan_release(&f->plan);
    return control_run_plan(f->store, &wish, &f->plan, &f->reason);
}

/* … until it is known which checkpoint is whole. */
static enum err plan(struct plan_fixture *f)
{
    enum err err;
    do
        err = ask(f);
    while (err == ERR_SEARCHING);
    if (err == ERR_OK && f->plan.has_past)
        err = control_past_read_older(&f->whole, &f->plan.older, &f->reason);
    whole_cut_forget(&f->whole);
    return err;
}

/* The run of the fixture's request, stored. */
static void store_run(struct plan_fixture *f)
{
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.is_new);
    assert_int_equal(store_add_run(f->store, f->term, &f->plan.run->stored, NULL, NULL), ERR_OK);
    f->request.resume = true;
}

static void plan_tear_down(struct plan_fixture *f)
{
    control_plan_release(&f->plan);
    whole_cut_release(&f->whole);
    store_free(f->store);
    folder_remove(&f->folder);
}

TEST_F(the_core_learns_the_spec_and_the_grid, plan)
{
    assert_int_equal(plan(f), ERR_OK);
    const struct coordinator_run *settings = &f->plan.run->settings;
    assert_int_equal(settings->steps, 10);
    assert_int_equal(settings->slots, 4);
    assert_int_equal(settings->node_slots, 0);
    assert_int_equal(settings->servers_min, 2);
    assert_int_equal(settings->validation_samples, 5); /* of 30, as the spec allows */
    assert_int_equal(settings->cut_every, 5);
    assert_int_equal(settings->seal.schedule.step_samples, 8);
    assert_int_equal(settings->data_digest[0], 9);
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < settings->parameter_count; i++)
        chunks += settings->parameters[i].chunk_count;
    assert_int_equal(chunks, f->plan.run->model.chunks_count);
    assert_non_null(strstr(settings->checkpoint_dir, "/checkpoints"));
}

TEST_F(members_of_a_place_share_what_is_large_enough, plan)
{
    static const char *const specs[] = {
        "model: {kind: mlp, layers: [2, 64, 64, 3]}\ndata: {kind: spiral}\n"
        "train: {pieces: 2}\nmesh: {tensor: 2}\n",
        "model: {kind: mlp, layers: [2, 256, 256, 256, 256, 3]}\ndata: {kind: spiral}\n"
        "train: {pieces: 2}\nmesh: {tensor: 2}\n",
        "model: {kind: mlp, layers: [2, 256, 256, 256, 256, 3]}\ndata: {kind: spiral}\n"
        "train: {pieces: 2}\n"};
    static const bool shared[] = {false, true, false};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        control_plan_release(&f->plan);
        f->request.spec = specs[i];
        assert_int_equal(plan(f), ERR_OK);
        assert_int_equal(control_mesh_shares(&f->plan.run->mesh, &f->plan.run->model), shared[i]);
    }
}

/* 63 units with 512 microbatches a slot: eight rows each, of which a program has at most 2^20. */
TEST_F(nodes_that_the_coordinator_chooses_have_a_program, plan)
{
    static const char deep[] =
        "model: {kind: gpt, layers: 61, heads: 1, width: 8, context: 8, vocabulary: 256}\n"
        "data: {kind: text, path: LICENSE}\n"
        "train: {slots: 16, slot_samples: 512, microbatch: 1%s}\nmesh: {stage: 2}\n";
    static const struct {
        const char *more;
        uint32_t most;
    } rows[] = {{"", 4}, {", node_slots: 2", 0}};
    char text[sizeof deep + 32];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        control_plan_release(&f->plan);
        snprintf(text, sizeof text, deep, rows[i].more);
        f->request.spec = text;
        assert_int_equal(plan(f), ERR_OK);
        assert_int_equal(f->plan.run->settings.chosen_slots_max, rows[i].most);
    }
    f->request.spec = "";
}

/* 34 units with 4096 microbatches a slot. */
TEST_F(a_slot_in_one_stage_that_has_no_program_is_no_run, plan)
{
    static const char deep[] =
        "model: {kind: gpt, layers: 32, heads: 1, width: 8, context: 8, vocabulary: 256}\n"
        "data: {kind: text, path: LICENSE}\n"
        "train: {slot_samples: 4096, microbatch: %u}\n%s\n";
    static const struct {
        const char *more;
        uint32_t microbatch;
        bool refused;
    } rows[] = {{"activations: {offload: true}", 1, true},
                {"residency: {weights: streamed}", 1, true},
                {"activations: {offload: true}", 2, false},
                {"", 1, false}};
    char text[sizeof deep + 64];
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        control_plan_release(&f->plan);
        snprintf(text, sizeof text, deep, rows[i].microbatch, rows[i].more);
        f->request.spec = text;
        assert_int_equal(plan(f), rows[i].refused ? ERR_INVALID : ERR_OK);
        if (rows[i].refused)
            assert_non_null(strstr(f->reason.text, "train.microbatch 2 times as large would do"));
    }
    f->request.spec = "";
}

static enum err check_weights(struct plan_fixture *f, bool elsewhere)
{
    assert_int_equal(plan(f), ERR_OK);
    return control_run_check_weights(f->plan.run, elsewhere, &f->reason);
}

TEST_F(weights_that_do_not_fit_the_model_begin_no_run, plan)
{
    static const char header[] = "{\"net.0.weight\":{\"dtype\":\"F32\",\"shape\":[1],"
                                 "\"data_offsets\":[0,4]}}";
    const uint64_t length = strlen(header);
    FILE *file = fopen(folder_path(&f->folder, "other.safetensors"), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
    assert_int_equal(fwrite(header, length + 1, 1, file), 1); /* the values: any four bytes */
    assert_int_equal(fwrite("abc", 3, 1, file), 1);
    fclose(file);
    f->request.restore = folder_path(&f->folder, "other.safetensors");
    assert_int_equal(check_weights(f, false), ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "other.safetensors: no tensor "));
    assert_int_equal(check_weights(f, true), ERR_INVALID);
    f->request.restore = folder_path(&f->folder, "nowhere.safetensors");
    assert_int_equal(check_weights(f, false), ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "nowhere.safetensors"));
    assert_int_equal(check_weights(f, true), ERR_OK); /* the servers may have it */
    f->request.restore = "";
    assert_int_equal(check_weights(f, false), ERR_OK);
}

TEST_F(a_mesh_whose_values_no_message_holds_is_no_run, plan)
{
    f->request.spec = "model: {kind: mlp, layers: [2, 600000, 3]}\ndata: {kind: spiral}\n"
                      "train: {slot_samples: 32, microbatch: 32}\nmesh: {stage: 2}\n";
    assert_int_equal(plan(f), ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "train.microbatch: 16 would do"));
}

TEST_F(p4_with_a_lossy_codec_the_node_size_is_the_runs, plan)
{
    f->request.spec = "model: {kind: mlp, layers: [2, 8, 3]}\n"
                      "data: {kind: spiral}\n"
                      "train: {precision: bf16}\n";
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.run->settings.node_slots, 1);
}

TEST_F(a_bad_spec_is_refused_with_its_place, plan)
{
    f->request.spec = "model: {kind: mlp, layers: [2, 8, 3]}\nnonsense: 3\n";
    assert_int_equal(plan(f), ERR_INVALID);
    assert_non_null(strstr(f->reason.text, ":2:"));
}

/* A recorded cut in the directory, of a run that the store has never heard of. */
static void record_version_of(struct plan_fixture *f, const char *of_spec, uint64_t version)
{
    char path[80];
    struct checkpoint_writer *writer;
    struct checkpoint_record record = {.name = {3, version},
                                       .run = 1,
                                       .counters = {.samples = 8 * version, .applied = version},
                                       .spec = of_spec,
                                       .server_count = 1};
    const float values[3] = {1, 2, 3};
    record.data_digest.bytes[0] = 9;
    record.fingerprint.bytes[0] = 4;
    snprintf(path, sizeof path, "%s/checkpoints", f->directory);
    assert_int_equal(checkpoint_writer_new(&file_ops_real, path, record.name, 0,
                                           (struct checkpoint_arrays){.states = 2}, &writer, NULL),
                     ERR_OK);
    assert_int_equal(checkpoint_writer_add(writer, 0, 1, values, values + 1, NULL), ERR_OK);
    assert_int_equal(checkpoint_writer_finish(writer, &record.manifests[0], NULL), ERR_OK);
    checkpoint_writer_free(writer);
    assert_int_equal(checkpoint_record(&file_ops_real, path, &record, NULL), ERR_OK);
}

static void record_version(struct plan_fixture *f, uint64_t version)
{
    record_version_of(f, spec, version);
}

TEST_F(a_resume_of_nothing_is_refused, plan)
{
    char said[512];
    f->request.resume = true;
    snprintf(said, sizeof said, "%.400s holds no run to resume", f->directory);
    assert_int_equal(plan(f), ERR_INVALID);
    assert_string_equal(f->reason.text, said);
}

/* An older version stored the directory as somebody had spelled it. */
TEST_F(a_resume_finds_a_run_that_is_stored_by_another_name_of_its_directory, plan)
{
    store_run(f);
    uint64_t run = f->plan.run->stored.run;
    f->directory = folder_path(&f->folder, "by-its-one-name");
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.is_new);
    assert_int_equal(f->plan.run->stored.run, run);
}

TEST_F(a_resume_says_what_differs_and_what_it_does_to_the_digest, plan)
{
    store_run(f);
    f->request.spec = spec_longer;
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.is_new);
    assert_int_equal(f->plan.run->settings.steps, 20);
    const char *notes = (const char *)f->plan.notes.data;
    assert_non_null(strstr(notes, "train.steps: 10 -> 20"));
    assert_non_null(strstr(notes, "optimizer.lr"));
    assert_non_null(strstr(notes, "will differ"));
}

/* 10 steps of 8 samples; a run.yaml has the 80 written out, a user's file does not. */
TEST_F(a_resume_for_more_steps_says_where_they_have_the_lowest_rate, plan)
{
    static const char words[] =
        "train.steps: 10 -> 20\noptimizer.decay_samples stays 80: the steps "
        "behind it have optimizer.lr_min";
    static const char printed[] = SPEC("20", "0.1, decay_samples: 80"),
                      constant[] = SPEC("20", "0.1, schedule: constant"),
                      moved[] = SPEC("20", "0.1"), shorter[] = SPEC("9", "0.1, decay_samples: 80");
    static const char *const others[] = {constant, moved, shorter};
    store_run(f);
    f->request.spec = printed;
    assert_int_equal(plan(f), ERR_OK);
    assert_string_equal((const char *)f->plan.notes.data, words);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        f->request.spec = others[i];
        assert_int_equal(plan(f), ERR_OK);
        assert_null(strstr((const char *)f->plan.notes.data, "stays"));
    }
}

/* Another learning rate changes the bits, more steps do not. */
TEST_F(a_resume_that_changes_the_bits_takes_the_fingerprint_of_its_first_worker, plan)
{
    const uint8_t fingerprint[WIRE_DIGEST_BYTES] = {5};
    struct store_run stored = {0};
    store_run(f);
    uint64_t run = f->plan.run->stored.run;
    assert_int_equal(store_put_fingerprint(f->store, f->term, run, fingerprint, NULL), ERR_OK);
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.past.has_fingerprint && f->plan.run->stored.has_fingerprint);
    f->request.spec = spec_longer;
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.past.has_fingerprint || f->plan.run->stored.has_fingerprint);
    assert_int_equal(store_change_run(f->store, f->term, &f->plan.run->stored, NULL), ERR_OK);
    assert_int_equal(store_find_run(f->store, f->plan.run->stored.directory, &stored, NULL),
                     ERR_OK);
    assert_false(stored.has_fingerprint);
    store_run_release(&stored);
}

/* Their numerics were probed with a last piece of one sample: 5 of microbatches of 2. */
TEST_F(a_resume_with_other_pieces_of_a_validation_takes_its_first_worker_s_fingerprint, plan)
{
    static const struct {
        const char *count;
        bool stays;
    } cases[] = {{"7", true}, {"6", false}, {"0", false /* all 30 */}};
    const uint8_t fingerprint[WIRE_DIGEST_BYTES] = {5};
    store_run(f);
    uint64_t run = f->plan.run->stored.run;
    assert_int_equal(store_put_fingerprint(f->store, f->term, run, fingerprint, NULL), ERR_OK);
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[1024];
        const char *before = strstr(spec, "validation_samples: 5");
        snprintf(text, sizeof text, "%.*svalidation_samples: %s%s", (int)(before - spec), spec,
                 cases[i].count, before + strlen("validation_samples: 5"));
        f->request.spec = text;
        assert_int_equal(plan(f), ERR_OK);
        assert_int_equal(f->plan.past.has_fingerprint, cases[i].stays);
    }
}

#define TIMED(products)                                                                            \
    "model: {kind: mlp, layers: [2, 8, 3]}\n"                                                      \
    "data: {kind: spiral, validation: 0.1}\n"                                                      \
    "train: {steps: 10, slots: 4, slot_samples: 2, microbatch: 2, products: \"" products "\"}\n"

static void expect_planned_products(struct plan_fixture *f, const char *expected)
{
    assert_int_equal(plan(f), ERR_OK);
    assert_string_equal(f->plan.run->spec.train.products, expected);
}

TEST_F(a_resume_keeps_the_products_that_were_timed, plan)
{
#define KEPT "cuBLASLt 1 bf16, 2 SMs of sm_90:;NT 8x8x8/16.16.16 1.0 01;"
    f->request.spec = TIMED("heuristic");
    store_run(f);
    f->request.spec = TIMED("timed"); /* nobody has timed any */
    expect_planned_products(f, "timed");
    assert_int_equal(store_put_spec(f->store, f->term, 1, TIMED(KEPT), NULL), ERR_OK);
    expect_planned_products(f, KEPT);
    f->request.spec = "";
    expect_planned_products(f, KEPT);
    f->request.spec = TIMED("timed") "optimizer: {lr: 0.05}\n"; /* other bits in any case */
    expect_planned_products(f, "timed");
    f->request.spec = TIMED("heuristic");
    expect_planned_products(f, "heuristic");
    assert_non_null(strstr((const char *)f->plan.notes.data, "train.products"));
}

TEST_F(a_resume_of_a_run_at_its_end_says_how_to_train_on, plan)
{
    record_version(f, 10);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_string_equal(f->plan.notes.data,
                        "the run is at its last step, 10, already; raise train.steps to train on");
}

TEST_F(a_resume_without_a_spec_takes_the_stored_one, plan)
{
    store_run(f);
    f->request.spec = "";
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.run->settings.steps, 10);
}

#define MESH(rows) SPEC("10", "0.1") "mesh: {program: my.csv" rows "}\n"

/* Each unit of the two is a stage. */
TEST_F(a_program_that_a_user_wrote_travels_in_the_spec, plan)
{
    f->request.spec = MESH(", rows: \"0F0,0B0;1F0,1B0\"");
    store_run(f);
    assert_int_equal(f->plan.run->settings.place_count, 2);
    assert_int_equal(f->plan.run->settings.places[1].ranges[0].chunks.count > 0, true);
    f->request.spec = MESH(""); /* its file is gone */
    assert_int_equal(plan(f), ERR_OK);
    assert_string_equal(f->plan.run->spec.mesh.rows, "0F0,0B0;1F0,1B0");
    assert_int_equal(f->plan.run->settings.place_count, 2);
}

TEST_F(a_program_that_is_none_is_refused_before_anything_is_stored, plan)
{
    static const struct {
        const char *spec, *wanted;
    } rows[] = {
        {MESH(""), "mesh.program: my.csv is not there, nor does the run have its acts from before"},
        {MESH(", rows: \"0F0,0B0;1B0,1F0\""),
         "my.csv place 1, row 1 (B of unit 1, microbatch 0): its forward has not run, or its "
         "backward has"},
        {MESH(", rows: \"0F0,0B0,0Q;1F0,1B0\""), "my.csv line 1, column 10: no such act"},
        {MESH(", rows: \"0F0,0B0;1F0,1B0;2F0,2B0\""),
         "3 stages need as many units, and the model has 2; 2 stages would do"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        f->request.spec = rows[i].spec;
        assert_int_equal(plan(f), ERR_INVALID);
        assert_string_equal(f->reason.text, rows[i].wanted);
    }
}

TEST_F(another_model_or_data_set_cannot_be_resumed, plan)
{
    store_run(f);
    f->request.spec = spec_other;
    assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
    f->request.spec = spec;
    f->request.data_digest[0] = 8;
    assert_int_equal(plan(f), ERR_DATA_SET);
}

#define GRID(model, train)                                                                         \
    "model: {kind: mlp, layers: [2, 8, 3]" model "}\n"                                             \
    "data: {kind: spiral, validation: 0.1}\n"                                                      \
    "train: {steps: 10, slots: 4, slot_samples: 2, microbatch: 2, validation_samples: 5" train     \
    "}\n"

/* The words of the run's spec that say how its parameters are cut. */
static void has_grid(const struct plan_fixture *f, const char *words)
{
    assert_non_null(strstr(f->plan.run->stored.spec, words));
}

TEST_F(a_resume_keeps_the_grid_of_the_stored_run_where_it_names_none, plan)
{
    f->request.spec = GRID("", ", pieces: 2");
    store_run(f);
    has_grid(f, "tensor_max: 2\n");
    f->request.spec = GRID("", "");
    assert_int_equal(plan(f), ERR_OK);
    has_grid(f, "tensor_max: 2\n");
    f->request.spec = GRID("", ", pieces: 4");
    assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
    assert_string_equal(f->reason.text, "the stored run cannot be continued with train.pieces: 4; "
                                        "its model.tensor_max is 2");
    f->request.spec = GRID(", tensor_max: 4", ", pieces: 4");
    assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
    assert_non_null(strstr(f->reason.text, "model.tensor_max: 2 -> 4"));
}

TEST_F(a_directory_with_checkpoints_is_not_overwritten, plan)
{
    record_version(f, 5);
    assert_int_equal(plan(f), ERR_EXISTS);
}

TEST_F(a_damaged_newest_checkpoint_is_passed_over_when_the_store_is_gone, plan)
{
    char path[120];
    record_version(f, 5);
    record_version(f, 6);
    snprintf(path, sizeof path, "%s/checkpoints/g3-v6/server-0.roost", f->directory);
    assert_int_equal(truncate(path, 70), 0);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 5);
    assert_non_null(
        strstr((const char *)f->plan.notes.data, "damaged checkpoints are passed over"));
    assert_non_null(strstr((const char *)f->plan.notes.data, path));
    snprintf(path, sizeof path, "%s/checkpoints/g3-v5/server-0.roost", f->directory);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(plan(f), ERR_CORRUPT); /* none is whole */
}

/* Its journal would not continue an older one, and the run would fail. */
TEST_F(p12_a_damaged_checkpoint_that_a_journal_follows_is_not_passed_over, plan)
{
    char path[120];
    record_version_of(f, spec_logged, 5);
    record_version_of(f, spec_logged, 6);
    snprintf(path, sizeof path, "%s/checkpoints/g3-v6/server-0.roost", f->directory);
    assert_int_equal(truncate(path, 70), 0);
    f->request.spec = "";
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, path));
    assert_non_null(strstr(f->reason.text, "roost checkpoint restore"));
    snprintf(path, sizeof path, "%s/checkpoints", f->directory);
    assert_int_equal(checkpoint_choose(path, (struct checkpoint_name){3, 5}, NULL), ERR_OK);
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 5);
}

/* Nobody knows whether it is whole. */
TEST_F(a_newest_checkpoint_that_cannot_be_read_is_not_passed_over, plan)
{
    char path[120];
    record_version(f, 5);
    record_version(f, 6);
    snprintf(path, sizeof path, "%s/checkpoints/g3-v6/server-0.roost", f->directory);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink(path, path), 0);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_IO);
    assert_non_null(strstr(f->reason.text, path));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(plan(f), ERR_OK); /* it is gone */
}

/* A large one takes minutes: each question reads a part, and so does the loop between two
 * events. */
TEST_F(a_checkpoint_is_read_a_part_at_a_time_when_the_store_is_gone, plan)
{
    char path[120];
    record_version(f, 5);
    record_version(f, 6);
    snprintf(path, sizeof path, "%s/checkpoints/g3-v6/server-0.roost", f->directory);
    assert_int_equal(truncate(path, 70), 0);
    f->request.resume = true;
    assert_int_equal(ask(f), ERR_SEARCHING);
    assert_string_equal(f->reason.text, "checkpoint g3-v5 is read, to see whether it is whole");
    assert_true(whole_cut_reads(&f->whole));
    whole_cut_go_on(&f->whole, 1);
    assert_false(whole_cut_reads(&f->whole));
    for (int i = 0; i < 2; i++) { /* the start may wait for something else */
        assert_int_equal(ask(f), ERR_OK);
        assert_int_equal(f->plan.past.cut.name.version, 5);
    }
    whole_cut_forget(&f->whole);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(ask(f), ERR_SEARCHING); /* anew */
    whole_cut_forget(&f->whole);
    assert_true(whole_cut_reads(&f->whole));
    whole_cut_go_on(&f->whole, UINT64_C(60000000000)); /* nobody asks again */
    assert_null(f->whole.dir);
}

TEST_F(a_run_is_resumed_from_its_directory_when_the_store_is_gone, plan)
{
    record_version(f, 4); /* the newest is taken */
    record_version(f, 5);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.is_new && f->plan.has_past);
    assert_int_equal(f->plan.past.generation, 3);
    assert_int_equal(f->plan.past.cut.name.version, 5);
    assert_int_equal(f->plan.past.cut.counters.samples, 40);
    assert_int_equal(f->plan.past.fingerprint[0], 4);
    f->request.data_digest[0] = 1;
    assert_int_equal(plan(f), ERR_DATA_SET);
}

static void store_version_of(struct plan_fixture *f, uint64_t run, uint64_t version)
{
    const struct cut_record cut = {.name = {3, version}, .server_count = 1};
    record_version(f, version);
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 9, NULL, &f->reason), ERR_OK);
}

static void store_version(struct plan_fixture *f, uint64_t version)
{
    store_version_of(f, f->plan.run->stored.run, version);
}

static enum err choose(struct plan_fixture *f, uint64_t version)
{
    char path[80];
    snprintf(path, sizeof path, "%s/checkpoints", f->directory);
    return checkpoint_choose(path, (struct checkpoint_name){3, version}, &f->reason);
}

TEST_F(a_resume_goes_on_from_the_checkpoint_that_was_chosen, plan)
{
    struct coordinator_past past;
    bool chosen;
    store_run(f);
    for (uint64_t version = 4; version < 7; version++)
        store_version(f, version);
    const struct store_run *stored = &f->plan.run->stored;
    assert_int_equal(control_past_find(f->store, stored, &past, &chosen, &f->reason), ERR_OK);
    assert_true(!chosen && past.cut.name.version == 6);
    assert_int_equal(choose(f, 5), ERR_OK);
    assert_int_equal(control_past_find(f->store, stored, &past, &chosen, &f->reason), ERR_OK);
    assert_true(chosen && past.cut.name.version == 5);
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 5);
    assert_int_equal(choose(f, 3), ERR_OK);
    assert_int_equal(plan(f), ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, "g3-v3, which was restored"));
}

TEST_F(what_is_set_aside_is_passed_over_when_the_store_is_gone, plan)
{
    record_version(f, 5);
    record_version(f, 6);
    assert_int_equal(choose(f, 5), ERR_OK);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 5);
}

/* A gradient that a server took behind the newest checkpoint. */
static void log_gradient(struct plan_fixture *f)
{
    char folder[512];
    static const float gradient[4];
    const struct journal_entry entry = {.n = 4, .scale = 1, .gradient = gradient};
    scoped(journal_release) struct journal journal = {0};
    snprintf(folder, sizeof folder, "%s/checkpoints/journal", f->directory);
    assert_int_equal(journal_open(&file_ops_real, folder, (struct journal_name){.generation = 1},
                                  &journal, NULL),
                     ERR_OK);
    assert_int_equal(journal_put(&journal, &entry), ERR_OK);
    assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
}

static void put_state(struct plan_fixture *f, enum run_state state)
{
    uint64_t run = f->plan.run->stored.run;
    assert_int_equal(store_put_state(f->store, f->term, run, state, "", NULL), ERR_OK);
}

TEST_F(p12_a_resume_of_a_killed_run_cannot_change_what_its_servers_have_logged, plan)
{
    static const char other_products[] = SPEC("10", "0.1") "numerics: any\n";
    store_run(f);
    put_state(f, RUN_TRAINING);
    f->request.spec = spec_longer;
    assert_int_equal(plan(f), ERR_OK); /* nothing is logged */
    log_gradient(f);
    assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
    assert_non_null(strstr(f->reason.text, "have logged updates behind the newest checkpoint"));
    assert_non_null(strstr(f->reason.text, "resume the run once without these changes"));
    f->request.spec = other_products; /* workers', not servers' */
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.drops_journal);
    f->request.spec = spec;
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.drops_journal);
}

TEST_F(a_resume_of_a_stopped_run_with_other_settings_goes_on_from_its_checkpoint_alone, plan)
{
    store_run(f);
    log_gradient(f);
    uint64_t run = f->plan.run->stored.run;
    f->request.spec = spec_longer;
    assert_int_equal(store_put_stop(f->store, f->term, run, "a test", NULL), ERR_OK);
    put_state(f, RUN_STOPPED);
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.drops_journal);
    const char *notes = (const char *)f->plan.notes.data;
    assert_non_null(strstr(notes, "\nwhat servers have logged behind the newest checkpoint is "
                                  "computed again"));
}

/* Killed, and its operator began another one, or resumed it elsewhere. */
TEST_F(p12_a_run_that_was_left_for_another_was_not_stopped_by_its_operator, plan)
{
    store_run(f);
    log_gradient(f);
    put_state(f, RUN_TRAINING);
    for (int asked = 0; asked < 2; asked++) { /* a stop that it had not come to */
        uint64_t run = f->plan.run->stored.run;
        if (asked == 1)
            assert_int_equal(store_put_stop(f->store, f->term, run, "a test", NULL), ERR_OK);
        assert_int_equal(store_stop_others(f->store, f->term, run + 1, "another", NULL), ERR_OK);
        f->request.spec = spec_longer;
        assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
        f->request.spec = spec;
        assert_int_equal(plan(f), ERR_OK);
        put_state(f, RUN_TRAINING);
    }
}

/* The operator chose it, whatever came behind it. */
TEST_F(a_resume_from_a_chosen_checkpoint_with_other_settings_needs_no_stop, plan)
{
    store_run(f);
    record_version(f, 5);
    store_version(f, 5);
    assert_int_equal(choose(f, 5), ERR_OK);
    log_gradient(f);
    f->request.spec = spec_longer;
    put_state(f, RUN_TRAINING);
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.drops_journal);
}

static struct coordinator_past past_of(struct plan_fixture *f)
{
    struct coordinator_past past;
    bool chosen;
    assert_int_equal(control_past_find(f->store, &f->plan.run->stored, &past, &chosen, &f->reason),
                     ERR_OK);
    return past;
}

TEST_F(any_checkpoint_that_the_store_has_may_be_chosen, plan)
{
    store_run(f);
    record_version(f, 41); /* makes the folder of the choice */
    for (uint64_t version = 1; version <= 40; version++) {
        const struct cut_record cut = {.name = {3, version}, .server_count = 1};
        assert_int_equal(
            store_put_cut(f->store, f->term, f->plan.run->stored.run, &cut, 50, NULL, &f->reason),
            ERR_OK);
    }
    assert_int_equal(choose(f, 2), ERR_OK);
    assert_int_equal(past_of(f).cut.name.version, 2);
}

/* A store that had no room, or another coordinator's. */
TEST_F(a_chosen_checkpoint_that_the_store_lacks_is_taken_from_the_directory, plan)
{
    struct control_cuts lacks;
    store_run(f);
    store_version(f, 4);
    record_version(f, 5);
    assert_int_equal(past_of(f).cut.name.version, 4); /* while that is there */
    assert_int_equal(choose(f, 5), ERR_OK);
    struct coordinator_past past = past_of(f);
    assert_int_equal(past.cut.name.version, 5);
    assert_int_equal(past.cut.counters.samples, 40);
    assert_int_equal(past.cut.server_count, 1);
    assert_int_equal(past.generation, 3);
    assert_int_equal(control_past_lacks(f->store, &f->plan.run->stored, &lacks, &f->reason),
                     ERR_OK);
    assert_int_equal(lacks.count, 1);
    control_cuts_release(&lacks);
}

static void damage_version(struct plan_fixture *f, uint64_t version)
{
    char path[120];
    snprintf(path, sizeof path, "%s/checkpoints/g3-v%d/server-0.roost", f->directory, (int)version);
    assert_int_equal(truncate(path, 70), 0);
}

static void remove_version(struct plan_fixture *f, uint64_t version)
{
    char path[120];
    snprintf(path, sizeof path, "%s/checkpoints/g3-v%d", f->directory, (int)version);
    assert_int_equal(file_remove_tree(path, NULL), ERR_OK);
}

TEST_F(checkpoints_that_the_store_lacks_are_taken_when_all_that_it_knows_are_removed, plan)
{
    struct control_cuts lacks;
    store_run(f);
    store_version(f, 3);
    store_version(f, 4);
    record_version(f, 5);
    record_version(f, 6);
    remove_version(f, 4);
    assert_int_equal(past_of(f).cut.name.version, 4); /* the search for a whole one finds 3 */
    remove_version(f, 3);
    assert_int_equal(past_of(f).cut.name.version, 6);
    assert_int_equal(control_past_lacks(f->store, &f->plan.run->stored, &lacks, &f->reason),
                     ERR_OK);
    assert_int_equal(lacks.count, 2);
    assert_int_equal(lacks.list[1].name.version, 5);
    control_cuts_release(&lacks);
    remove_version(f, 6);
    remove_version(f, 5);
    assert_int_equal(past_of(f).cut.name.version, 4); /* a share that is not mounted */
}

/* Version 6, the newest of the directory, is damaged, and 5 is whole. */
static void expect_not_passed_over(struct plan_fixture *f)
{
    char command[512];
    f->request.spec = "";
    snprintf(command, sizeof command, "`roost checkpoint restore %s g3-v5`", f->directory);
    assert_int_equal(plan(f), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, command));
    assert_non_null(strstr(f->reason.text, "/g3-v6/"));
    assert_int_equal(choose(f, 5), ERR_OK);
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 5);
}

/* The directory comes from a backup that is older than the store. */
TEST_F(p12_a_damaged_checkpoint_of_an_older_directory_is_not_passed_over, plan)
{
    f->request.spec = spec_logged;
    store_run(f);
    store_version(f, 9);
    remove_version(f, 9);
    record_version(f, 5);
    record_version(f, 6);
    damage_version(f, 6);
    expect_not_passed_over(f);
}

TEST_F(p12_a_damaged_checkpoint_of_a_directory_that_was_moved_back_is_not_passed_over, plan)
{
    f->request.spec = spec_logged;
    assert_int_equal(plan(f), ERR_OK);
    struct store_run there = {.directory = (char *)(uintptr_t) "/there",
                              .spec = f->plan.run->stored.spec,
                              .restore = (char *)(uintptr_t) ""};
    assert_int_equal(store_add_run(f->store, f->term, &there, NULL, NULL), ERR_OK);
    store_run(f);
    store_version(f, 4);
    store_version_of(f, there.run, 5);
    store_version_of(f, there.run, 6);
    damage_version(f, 6);
    expect_not_passed_over(f);
}

/* Its directory was moved, and what was resumed there, with other settings, is the other run. */
TEST_F(p12_a_run_that_was_moved_back_is_compared_with_the_one_that_logged, plan)
{
    f->request.spec = spec_longer;
    assert_int_equal(plan(f), ERR_OK);
    scoped(free_scoped) char *text = strdup(f->plan.run->stored.spec);
    struct store_run there = {.directory = (char *)(uintptr_t) "/there",
                              .spec = text,
                              .restore = (char *)(uintptr_t) "",
                              .data_digest = {9},
                              .state = RUN_TRAINING};
    assert_int_equal(store_add_run(f->store, f->term, &there, NULL, NULL), ERR_OK);
    f->request.spec = spec;
    store_run(f);
    store_version(f, 4);
    store_version_of(f, there.run, 5);
    assert_int_equal(
        store_put_stop(f->store, f->term, f->plan.run->stored.run, "before it was moved", NULL),
        ERR_OK);
    put_state(f, RUN_STOPPED);
    log_gradient(f);
    assert_int_equal(plan(f), ERR_SPEC_DIFFERS);
    f->request.spec = spec_longer;
    assert_int_equal(plan(f), ERR_OK);
    assert_false(f->plan.drops_journal);
    f->request.spec = "";
    assert_int_equal(plan(f), ERR_OK);
    assert_string_equal(f->plan.run->stored.spec, text);
    f->request.spec = spec;
    assert_int_equal(store_put_stop(f->store, f->term, there.run, "a test", NULL), ERR_OK);
    assert_int_equal(store_put_state(f->store, f->term, there.run, RUN_STOPPED, "", NULL), ERR_OK);
    assert_int_equal(plan(f), ERR_OK);
    assert_true(f->plan.drops_journal);
}

/* A cut path leads nowhere. */
TEST_F(a_command_names_no_half_of_a_directory, plan)
{
    char directory[WIRE_TEXT_BYTES_MAX];
    struct control_passed passed = {
        .spec = spec_logged, .directory = directory, .damage = "damaged", .whole = {3, 5}};
    memset(directory, 'd', sizeof directory - 1);
    directory[sizeof directory - 1] = 0;
    assert_int_equal(control_past_judge_passed(&passed, &f->reason), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "`roost checkpoint restore DIR g3-v5`"));
    directory[100] = 0;
    assert_int_equal(control_past_judge_passed(&passed, &f->reason), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "ddd g3-v5`"));
}

/* Root reads what no mode allows. */
static void make_unreadable(struct plan_fixture *f, uint64_t version)
{
    char path[120];
    snprintf(path, sizeof path, "%s/checkpoints/g3-v%d/server-0.roost", f->directory, (int)version);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("server-0.roost", path), 0); /* ELOOP */
}

TEST_F(an_older_checkpoint_that_cannot_be_read_refuses_no_resume, plan)
{
    for (uint64_t version = 4; version <= 6; version++)
        record_version(f, version);
    make_unreadable(f, 5);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 6);
    assert_int_equal(f->plan.older.count, 1);
    assert_int_equal(f->plan.older.list[0].name.version, 4);
    make_unreadable(f, 6); /* the newest may be whole */
    assert_int_equal(plan(f), ERR_IO);
}

static void touch(struct plan_fixture *f, const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", f->directory, folder);
    assert_int_equal(file_make_dirs(path, 0755, NULL), ERR_OK);
    snprintf(path, sizeof path, "%s/%s/%s", f->directory, folder, name);
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0644, (struct slice){0}, NULL),
                     ERR_OK);
}

/* Coordinators that died before their first cut left these; servers refuse an older generation. */
TEST_F(a_run_that_is_taken_from_its_directory_goes_on_above_all_generations_there, plan)
{
    char order[ORDER_NAME_BYTES];
    record_version(f, 3);
    f->request.resume = true;
    touch(f, "checkpoints/journal",
          "g00000000000000000004-s00000-b00000000000000000005-000000.journal");
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.generation, 4);
    control_plan_release(&f->plan);
    order_name_file((struct order_name){.generation = 6, .boot = 5}, order);
    touch(f, ORDER_FOLDER, order);
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.generation, 6);
}

/* The store comes from a backup. */
TEST_F(a_stored_run_goes_on_above_all_generations_of_its_directory, plan)
{
    store_run(f);
    store_version(f, 3);
    touch(f, "checkpoints/journal",
          "g00000000000000000004-s00000-b00000000000000000005-000000.journal");
    assert_int_equal(past_of(f).cut.name.version, 3);
    assert_int_equal(past_of(f).generation, 4);
}

TEST_F(a_run_that_is_taken_from_its_directory_comes_with_its_older_checkpoints, plan)
{
    for (uint64_t version = 3; version <= 7; version++)
        record_version(f, version);
    damage_version(f, 7);
    damage_version(f, 4);
    f->request.resume = true;
    assert_int_equal(plan(f), ERR_OK);
    assert_int_equal(f->plan.past.cut.name.version, 6);
    assert_int_equal(f->plan.older.count, 2);
    assert_int_equal(f->plan.older.list[0].name.version, 5);
    assert_int_equal(f->plan.older.list[1].name.version, 3);
    assert_int_equal(f->plan.older.list[1].counters.samples, 24);
}
