/* What roost checkpoint and roost ledger say of the folder of a run that goes on while they read. */
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/watch.h"
#include "tests/unit/fake_client.h"
#include "tests/unit/folder.h"

#include "common/files/checkpoint.h"
#include "common/files/step_log.h"

#include <inttypes.h>

/* ---- the run ---- */

enum { SEGMENT_BYTES = 1000, STEPS_BEFORE = 12, STEPS_MEANWHILE = 13 };

static const char spec[] = "model: {kind: mlp, layers: [2, 3, 3], activation: tanh}\n"
                           "data: {kind: spiral}\n";

struct run_folder_fixture {
    void *folder;
    char run[300];
    char checkpoints[320];
    struct step_log log;
    uint64_t steps;
    bool json;
    void (*meanwhile)(struct run_folder_fixture *f);  /* once, before rows or a cut are read */
    void (*before_cut)(struct run_folder_fixture *f); /* before the ledger looks for one */
    struct reason reason;
};

static struct run_folder_fixture *going_on;

/* From now on nothing else happens meanwhile. */
static void go_on(void)
{
    void (*meanwhile)(struct run_folder_fixture * f) = going_on->meanwhile;
    going_on->meanwhile = NULL;
    if (meanwhile != NULL)
        meanwhile(going_on);
}

static void add_steps(struct run_folder_fixture *f, uint64_t count)
{
    enum { SLOTS = 4, SLOT_SAMPLES = 2, EPOCH_SAMPLES = 30 };
    for (uint64_t end = f->steps + count; f->steps < end; f->steps++) {
        scoped(buf_release) struct buf row = {0};
        assert_int_equal(buf_printf(&row,
                                    "{\"step\":%" PRIu64 ",\"samples\":%" PRIu64
                                    ",\"skipped\":false,\"ticket\":%" PRIu64
                                    ",\"slots\":%d,\"slot_samples\":%d,\"step_samples\":%d,"
                                    "\"epoch_samples\":%d,\"digest\":\"%016" PRIx64
                                    "\",\"slot_ms\":1,\"generation\":1,\"time\":%" PRIu64 ".0}\n",
                                    f->steps, (f->steps + 1) * SLOTS * SLOT_SAMPLES,
                                    f->steps * SLOTS, SLOTS, SLOT_SAMPLES, SLOTS * SLOT_SAMPLES,
                                    EPOCH_SAMPLES, f->steps * 77, f->steps + 1),
                         ERR_OK);
        assert_int_equal(step_log_append(&f->log, buf_slice(&row), &f->reason), ERR_OK);
    }
}

static void write_file(struct run_folder_fixture *f, struct checkpoint_name name,
                       struct digest *ret_manifest)
{
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *writer = NULL;
    const struct checkpoint_arrays arrays = {0};
    const float weight = 1;
    assert_int_equal(
        checkpoint_writer_new(&file_ops_real, f->checkpoints, name, 0, arrays, &writer, &f->reason),
        ERR_OK);
    assert_int_equal(checkpoint_writer_add(writer, 0, 1, &weight, NULL, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_writer_finish(writer, ret_manifest, &f->reason), ERR_OK);
}

static void record_cut(struct run_folder_fixture *f, struct checkpoint_name name)
{
    struct checkpoint_record record = {.name = name,
                                       .run = 1,
                                       .counters = {f->log.sums.samples, name.version, 0},
                                       .spec = spec,
                                       .server_count = 1};
    write_file(f, name, &record.manifests[0]);
    assert_int_equal(checkpoint_record(&file_ops_real, f->checkpoints, &record, &f->reason),
                     ERR_OK);
}

static void run_folder_set_up(struct run_folder_fixture *f)
{
    const struct step_log_place from = {0, 0};
    uint64_t reached;
    assert_int_equal(folder_make(&f->folder), 0);
    snprintf(f->run, sizeof f->run, "%s", folder_path(&f->folder, "."));
    snprintf(f->checkpoints, sizeof f->checkpoints, "%s/checkpoints", f->run);
    folder_write(&f->folder, "run.yaml", spec, sizeof spec - 1);
    assert_int_equal(step_log_open(&file_ops_real, f->run, from, &f->log, &reached, &f->reason),
                     ERR_OK);
    f->log.segment_bytes = f->log.close_at = SEGMENT_BYTES;
    add_steps(f, STEPS_BEFORE);
    record_cut(f, (struct checkpoint_name){1, 11});
    record_cut(f, (struct checkpoint_name){1, 12});
    going_on = f;
}

static void run_folder_tear_down(struct run_folder_fixture *f)
{
    step_log_release(&f->log);
    folder_remove(&f->folder);
}

/* ---- what the commands read ---- */

enum err __real_checkpoint_judge(const char *checkpoint_dir, struct checkpoint_name name,
                                 struct reason *reason);
enum err __wrap_checkpoint_judge(const char *checkpoint_dir, struct checkpoint_name name,
                                 struct reason *reason);
enum err __wrap_checkpoint_judge(const char *checkpoint_dir, struct checkpoint_name name,
                                 struct reason *reason)
{
    go_on();
    return __real_checkpoint_judge(checkpoint_dir, name, reason);
}

enum err __real_checkpoint_open(const char *checkpoint_dir, struct checkpoint_name name,
                                struct checkpoint **ret_checkpoint, struct reason *reason);
enum err __wrap_checkpoint_open(const char *checkpoint_dir, struct checkpoint_name name,
                                struct checkpoint **ret_checkpoint, struct reason *reason);
enum err __wrap_checkpoint_open(const char *checkpoint_dir, struct checkpoint_name name,
                                struct checkpoint **ret_checkpoint, struct reason *reason)
{
    go_on();
    return __real_checkpoint_open(checkpoint_dir, name, ret_checkpoint, reason);
}

enum err __real_checkpoint_open_any(const char *path, struct checkpoint **ret_checkpoint,
                                    struct reason *reason);
enum err __wrap_checkpoint_open_any(const char *path, struct checkpoint **ret_checkpoint,
                                    struct reason *reason);
enum err __wrap_checkpoint_open_any(const char *path, struct checkpoint **ret_checkpoint,
                                    struct reason *reason)
{
    if (going_on->before_cut != NULL)
        going_on->before_cut(going_on);
    return __real_checkpoint_open_any(path, ret_checkpoint, reason);
}

enum err __real_step_log_read(const char *path, const struct step_log_reader *reader,
                              bool *ret_torn, struct reason *reason);
enum err __wrap_step_log_read(const char *path, const struct step_log_reader *reader,
                              bool *ret_torn, struct reason *reason);
enum err __wrap_step_log_read(const char *path, const struct step_log_reader *reader,
                              bool *ret_torn, struct reason *reason)
{
    go_on();
    return __real_step_log_read(path, reader, ret_torn, reason);
}

/* ---- the rest of the commands ---- */

/* The ledger's option is --full. */
void arguments_parse(const struct arguments_about *about, int argc, char **argv,
                     struct arguments *ret_arguments)
{
    (void)argc, (void)argv;
    if (about->own_input != NULL)
        *(bool *)about->own_input = true;
    *ret_arguments = (struct arguments){.subject = going_on->run, .json = going_on->json};
}

int command_fail(enum err err, const struct reason *reason)
{
    fail_msg("%s: %s", err_name(err), reason->text);
    return EXIT_FAILURE;
}

/* What only other commands need. */

uint32_t arguments_count(const char *value, const char *what, uint32_t max,
                         const struct argp_state *state)
{
    (void)value, (void)what, (void)max, (void)state;
    fail();
    return 0;
}

enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason)
{
    (void)client, (void)answer, (void)ret_status, (void)reason;
    fail();
    return ERR_OK;
}

enum err client_checkpoint(struct client *client, struct cut_name *ret_newest,
                           struct reason *reason)
{
    (void)client, (void)ret_newest, (void)reason;
    fail();
    return ERR_OK;
}

int client_fail(const struct client_options *options, enum err err, const struct reason *reason)
{
    (void)options, (void)err, (void)reason;
    fail();
    return EXIT_FAILURE;
}

bool watch_is_over(const struct status_reply *status)
{
    (void)status;
    fail();
    return false;
}

/* ---- what is said ---- */

static char said[8192]; /* on stdout */

/* The exit code. */
static int say(command_fn *command, const char *action)
{
    char name[] = "roost", word[16];
    char *words[] = {name, word, NULL};
    FILE *out = stdout;
    snprintf(word, sizeof word, "%s", action);
    memset(said, 0, sizeof said);
    stdout = fmemopen(said, sizeof said - 1, "w");
    assert_non_null(stdout);
    int code = command(2, words);
    fclose(stdout);
    stdout = out;
    return code;
}

static void assert_says(const char *words)
{
    if (strstr(said, words) == NULL)
        fail_msg("\"%s\" is not in: %s", words, said);
}

static void assert_does_not_say(const char *words)
{
    if (strstr(said, words) != NULL)
        fail_msg("\"%s\" is in: %s", words, said);
}

static void prune(struct run_folder_fixture *f)
{
    const struct checkpoint_name newest = {1, 12};
    assert_int_equal(checkpoint_prune(f->checkpoints, newest, 1, &f->reason), ERR_OK);
}

static void damage(struct run_folder_fixture *f)
{
    folder_write(&f->folder, "checkpoints/g1-v11/cut.json", "x", 1);
}

TEST_F(a_checkpoint_that_was_pruned_meanwhile_is_not_damaged, run_folder, .meanwhile = prune)
{
    (void)f;
    assert_int_equal(say(command_checkpoint, "verify"), EXIT_SUCCESS);
    assert_says("g1-v12");
    assert_does_not_say("g1-v11");
}

TEST_F(a_list_leaves_out_what_was_pruned_meanwhile, run_folder, .meanwhile = prune, .json = true)
{
    (void)f;
    assert_int_equal(say(command_checkpoint, "list"), EXIT_SUCCESS);
    assert_says("g1-v12");
    assert_does_not_say("g1-v11");
}

TEST_F(a_checkpoint_that_is_damaged_is_told, run_folder, .meanwhile = damage)
{
    (void)f;
    assert_int_equal(say(command_checkpoint, "verify"), EXIT_FAILURE);
    assert_says("g1-v11");
    assert_says("DAMAGED: ");
}

/* Into which rows of steps.jsonl go that are not read yet. */
static void close_segment(struct run_folder_fixture *f)
{
    add_steps(f, STEPS_MEANWHILE);
}

TEST_F(a_segment_that_is_closed_while_the_ledger_is_read_is_read_too, run_folder,
       .meanwhile = close_segment)
{
    (void)f;
    assert_int_equal(say(command_ledger, "--full"), EXIT_SUCCESS);
    assert_does_not_say("FAULT");
    assert_says("in all 25 steps, 200 samples");
}

static void add_cut(struct run_folder_fixture *f)
{
    add_steps(f, 1);
    record_cut(f, (struct checkpoint_name){1, f->steps});
}

TEST_F(a_checkpoint_that_is_recorded_while_the_ledger_is_read_is_no_fault, run_folder,
       .before_cut = add_cut)
{
    (void)f;
    assert_int_equal(say(command_ledger, "--full"), EXIT_SUCCESS);
    assert_does_not_say("FAULT");
    assert_says("version 13");
}
