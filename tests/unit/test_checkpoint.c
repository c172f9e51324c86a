/* Cuts on disk: what is written is read, and nothing else is taken for it. */
#include "tests/models.h"
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include "common/files/checkpoint.h"
#include "common/files/checkpoint_format.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SERVERS = 2, STATES = 2, VERSIONS = 1 };

static const struct checkpoint_arrays arrays = {.states = STATES, .versions = VERSIONS};

static const struct checkpoint_name cut = {3, 1200};

/* An mlp with few weights in several chunks, and values for each. */
struct cut_fixture {
    void *folder;
    struct model model;
    char dir[320]; /* RUN/checkpoints */
    char run[300];
    struct checkpoint_record record;
    struct reason reason;
    float shift;   /* of all values */
    uint32_t lost; /* chunk + 1, which is in no file; 0: none */
};

static float value(uint32_t chunk, uint32_t array, uint32_t i)
{
    return (float)chunk + (float)array / 8 + (float)i / 1024;
}

static void chunk_values(const struct model *model, uint32_t chunk, float *out)
{
    uint32_t n = model->chunks[chunk].weights;
    for (uint32_t i = 0; i < (1 + STATES + VERSIONS) * n; i++)
        out[i] = value(chunk, i / n, i % n);
}

static void cut_set_up(struct cut_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    struct spec_model settings = {
        .kind = SPEC_MLP, .sizes_count = 3, .sizes = {2, 3, 2}, .tensor_max = 1};
    assert_int_equal(model_init(&f->model, &settings, &f->reason), ERR_OK);
    snprintf(f->run, sizeof f->run, "%s", folder_path(&f->folder, "run"));
    snprintf(f->dir, sizeof f->dir, "%s/checkpoints", f->run);
    f->record = (struct checkpoint_record){.name = cut,
                                           .run = UINT64_MAX - 1,
                                           .counters = {64000, 1190, 2},
                                           .spec = "model: {kind: mlp}\n# \"quoted\"\n",
                                           .server_count = SERVERS};
    memset(f->record.fingerprint.bytes, 0xab, 32);
    memset(f->record.data_digest.bytes, 0xcd, 32);
}

static void cut_tear_down(struct cut_fixture *f)
{
    folder_remove(&f->folder);
    model_release(&f->model);
}

/* One server's file: its share of the chunks (every second), last one first, but for a lost one. */
static enum err write_server(struct cut_fixture *f, const struct file_ops *ops,
                             struct checkpoint_name name, uint32_t server, struct digest *manifest)
{
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *writer = NULL;
    TRY(checkpoint_writer_new(ops, f->dir, name, server, arrays, &writer, &f->reason));
    for (uint32_t i = f->model.chunks_count; i-- > 0;) {
        float values[64];
        assert_true((1 + STATES + VERSIONS) * f->model.chunks[i].weights <= 64);
        chunk_values(&f->model, i, values);
        values[0] += f->shift;
        if (i % SERVERS == server && i + 1 != f->lost)
            TRY(checkpoint_writer_add(writer, i, f->model.chunks[i].weights, values,
                                      values + f->model.chunks[i].weights, &f->reason));
    }
    return checkpoint_writer_finish(writer, manifest, &f->reason);
}

static void write_cut(struct cut_fixture *f, struct checkpoint_name name, bool recorded)
{
    struct file_ops ops = quick_ops();
    f->record.name = name;
    for (uint32_t s = 0; s < SERVERS; s++)
        assert_int_equal(write_server(f, &ops, name, s, &f->record.manifests[s]), ERR_OK);
    if (recorded)
        assert_int_equal(checkpoint_record(&ops, f->dir, &f->record, &f->reason), ERR_OK);
}

/* A block that is larger than what a digest takes between two rests, and no multiple of it. */
static struct digest write_large(struct cut_fixture *f, struct checkpoint_name name,
                                 const struct checkpoint_threads *threads)
{
    enum { N = 100003 };
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *writer = NULL;
    struct digest manifest;
    float *values = calloc((1 + STATES + VERSIONS) * N, sizeof *values);
    assert_non_null(values);
    for (uint32_t i = 0; i < (1 + STATES + VERSIONS) * N; i++)
        values[i] = (float)i;
    assert_int_equal(
        checkpoint_writer_new(&file_ops_real, f->dir, name, 0, arrays, &writer, &f->reason),
        ERR_OK);
    if (threads != NULL)
        checkpoint_writer_threads(writer, *threads);
    assert_int_equal(checkpoint_writer_add(writer, 0, N, values, values + N, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_writer_finish(writer, &manifest, &f->reason), ERR_OK);
    free(values);
    return manifest;
}

TEST_F(a_file_is_the_same_whoever_computes_its_digests_with_rests_or_without, cut)
{
    struct checkpoint_threads threads = {0};
    struct digest alone = write_large(f, cut, NULL), beside;
    assert_int_equal(side_thread_new("digests", THREAD_SHARE_IDLE, &threads.digests), ERR_OK);
    for (int rests = 0; rests < 2; rests++) {
        threads.rests = rests;
        beside = write_large(f, cut, &threads);
        assert_memory_equal(beside.bytes, alone.bytes, sizeof alone.bytes);
    }
    side_thread_free(threads.digests);
}

TEST_F(p9_version_0_is_recorded_by_its_seed_without_files, cut)
{
    const struct checkpoint_name first = {1, 0};
    char spec[] = "model: {kind: mlp, layers: [2, 4, 3]}\ndata: {kind: spiral}\n"
                  "train: {seed: 7, steps: 3}\n";
    struct checkpoint_record record = f->record;
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    struct model model;
    struct spec parsed;
    float expected[MODEL_CHUNK_WEIGHTS_MAX];
    record.name = first;
    record.spec = spec;
    record.by_seed = true;
    record.arrays = (struct checkpoint_arrays){.states = 2, .versions = 1, .extra_bytes = 8};
    memset(record.manifests, 0, sizeof record.manifests);
    assert_int_equal(checkpoint_record(&file_ops_real, f->dir, &record, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_judge(f->dir, first, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_open(f->dir, first, &checkpoint, &f->reason), ERR_OK);
    assert_true(checkpoint_is_by_seed(checkpoint));
    assert_int_equal(spec_parse(slice_of(spec), "spec", NULL, &parsed, &f->reason), ERR_OK);
    assert_int_equal(model_init(&model, &parsed.model, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_fits(checkpoint, &model, 2, &f->reason), ERR_OK);
    for (uint32_t c = 0; c < model.chunks_count; c++) {
        struct checkpoint_chunk chunk;
        assert_int_equal(checkpoint_read(checkpoint, c, &chunk, &f->reason), ERR_OK);
        assert_int_equal(chunk.n, model.chunks[c].weights);
        model_initial(&model, 7, c, expected);
        size_t bytes = chunk.n * sizeof *expected;
        assert_memory_equal(chunk.values, expected, bytes);
        assert_memory_equal(chunk.values + 3 * chunk.n, expected, bytes); /* the version before */
        for (uint32_t i = 0; i < 2 * chunk.n; i++)
            assert_float_equal(chunk.values[chunk.n + i], 0, 0);
    }
    model_release(&model);
}

TEST_F(only_version_0_is_recorded_by_its_seed, cut)
{
    struct checkpoint_record record = f->record;
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    record.by_seed = true;
    record.name.version = 3;
    assert_int_equal(checkpoint_record(&file_ops_real, f->dir, &record, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_open(f->dir, record.name, &checkpoint, &f->reason), ERR_MALFORMED);
}

/* Opens and reads everything: OK only when every byte is as it was written. */
static enum err read_all(struct cut_fixture *f)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(checkpoint_open(f->dir, cut, &checkpoint, &f->reason));
    return checkpoint_verify(checkpoint, &f->reason);
}

TEST_F(what_is_written_is_read, cut)
{
    write_cut(f, cut, true);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(f->dir, cut, &checkpoint, &f->reason), ERR_OK);
    const struct checkpoint_record *record = checkpoint_about(checkpoint);
    assert_int_equal(record->name.version, 1200);
    assert_int_equal(record->counters.samples, 64000);
    assert_int_equal(record->counters.applied, 1190);
    assert_int_equal(record->counters.skips_in_row, 2);
    assert_true(record->run == f->record.run);
    assert_string_equal(record->spec, f->record.spec);
    assert_memory_equal(&record->fingerprint, &f->record.fingerprint, 32);
    assert_memory_equal(&record->data_digest, &f->record.data_digest, 32);
    assert_int_equal(record->server_count, SERVERS);
    assert_int_equal(checkpoint_arrays(checkpoint).states, STATES);
    assert_int_equal(checkpoint_arrays(checkpoint).versions, VERSIONS);
    assert_int_equal(checkpoint_fits(checkpoint, &f->model, STATES, &f->reason), ERR_OK);
    for (uint32_t c = 0; c < f->model.chunks_count; c++) {
        struct checkpoint_chunk chunk;
        float values[64];
        chunk_values(&f->model, c, values);
        assert_int_equal(checkpoint_read(checkpoint, c, &chunk, &f->reason), ERR_OK);
        assert_int_equal(chunk.n, f->model.chunks[c].weights);
        assert_memory_equal(chunk.values, values, (1 + STATES + VERSIONS) * chunk.n * 4);
    }
    struct checkpoint_chunk none;
    assert_int_equal(checkpoint_read(checkpoint, 1000, &none, &f->reason), ERR_NOT_FOUND);
}

static enum err read_value(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct model *model = context;
    for (uint32_t i = 0; i < model->chunks[chunk].weights; i++)
        ret_values[i] = value(chunk, array, i);
    return ERR_OK;
}

TEST_F(the_digest_is_the_runs, cut)
{
    write_cut(f, cut, true);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open_any(f->run, &checkpoint, &f->reason), ERR_OK);
    struct digest digest, expected;
    struct state_digest_source source = {
        .context = &f->model, .read = read_value, .arrays = 1 + STATES};
    assert_int_equal(state_digest(&f->model, &source, &expected), ERR_OK);
    assert_int_equal(checkpoint_digest(checkpoint, &f->model, &digest, &f->reason), ERR_OK);
    assert_memory_equal(digest.bytes, expected.bytes, 32);
    float parameter[64], chunk[64];
    assert_int_equal(checkpoint_read_parameter(checkpoint, &f->model, 0, 2, parameter, &f->reason),
                     ERR_OK);
    gather_chunk(&f->model, 0, chunk, parameter);
    assert_true(chunk[1] == value(0, 2, 1));
}

static void replace(const char *path, struct slice bytes)
{
    struct file_ops ops = quick_ops();
    assert_int_equal(file_write_atomic(&ops, path, 0644, bytes, NULL), ERR_OK);
}

static void flip(const char *path, const struct buf *bytes, size_t at, uint8_t bit)
{
    bytes->data[at] ^= bit;
    replace(path, buf_slice(bytes));
    bytes->data[at] ^= bit;
}

TEST_F(a_flipped_bit_anywhere_is_found, cut)
{
    write_cut(f, cut, true);
    assert_int_equal(read_all(f), ERR_OK);
    for (uint32_t s = 0; s <= SERVERS; s++) {
        struct checkpoint_path path;
        assert_int_equal(checkpoint_file(f->dir, cut, s, &path), ERR_OK);
        if (s == SERVERS)
            strcpy(strrchr(path.text, '/'), "/cut.json");
        scoped(buf_release) struct buf bytes = {0};
        assert_int_equal(file_read(path.text, 100000, &bytes, &f->reason), ERR_OK);
        for (size_t i = 0; i < bytes.bytes; i++) {
            flip(path.text, &bytes, i, (uint8_t)(1 << i % 8));
            f->reason.text[0] = 0;
            enum err err = read_all(f);
            if (err != ERR_CORRUPT && err != ERR_UNSUPPORTED && err != ERR_MALFORMED)
                fail_msg("%s: byte %zu: %s", path.text, i, err_name(err));
            assert_non_null(strstr(f->reason.text, "g3-v1200/"));
        }
        flip(path.text, &bytes, 0, 0);
    }
    assert_int_equal(read_all(f), ERR_OK);
}

TEST_F(a_file_of_another_length_is_found, cut)
{
    write_cut(f, cut, true);
    struct checkpoint_path path;
    assert_int_equal(checkpoint_file(f->dir, cut, 1, &path), ERR_OK);
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(file_read(path.text, 100000, &bytes, &f->reason), ERR_OK);
    for (size_t length = 0; length < bytes.bytes; length++) {
        struct slice part = {bytes.data, length};
        replace(path.text, part);
        assert_int_equal(read_all(f), ERR_CORRUPT);
    }
    assert_int_equal(buf_append(&bytes, "", 1), ERR_OK);
    replace(path.text, buf_slice(&bytes));
    assert_int_equal(read_all(f), ERR_CORRUPT);
    assert_int_equal(unlink(path.text), 0);
    assert_int_equal(read_all(f), ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, "server-1.roost"));
}

TEST_F(a_file_of_another_cut_or_server_is_found, cut)
{
    struct checkpoint_name other = {3, 1201};
    write_cut(f, other, true);
    write_cut(f, cut, true);
    struct checkpoint_path from, to;
    assert_int_equal(checkpoint_file(f->dir, other, 0, &from), ERR_OK);
    assert_int_equal(checkpoint_file(f->dir, cut, 0, &to), ERR_OK);
    assert_int_equal(rename(from.text, to.text), 0);
    assert_int_equal(read_all(f), ERR_CORRUPT);
    write_cut(f, cut, true);
    assert_int_equal(checkpoint_file(f->dir, cut, 1, &from), ERR_OK);
    assert_int_equal(rename(from.text, to.text), 0);
    assert_int_equal(read_all(f), ERR_CORRUPT);
    /* The same cut written once more has the same bytes, so its manifests are the same. */
    struct digest manifest = f->record.manifests[0];
    write_cut(f, cut, false);
    assert_memory_equal(&manifest, &f->record.manifests[0], sizeof manifest);
    /* Another file of the same name: cut.json knows better. */
    f->shift = 1;
    assert_int_equal(write_server(f, &file_ops_real, cut, 1, &manifest), ERR_OK);
    assert_int_equal(read_all(f), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "cut.json"));
    f->shift = 0;
    write_cut(f, cut, false);
    assert_int_equal(read_all(f), ERR_OK);
    /* cut.json of another cut in this folder. */
    assert_int_equal(checkpoint_folder(f->dir, cut, &to), ERR_OK);
    assert_int_equal(checkpoint_folder(f->dir, other, &from), ERR_OK);
    strcat(to.text, "/cut.json");
    strcat(from.text, "/cut.json");
    assert_int_equal(rename(from.text, to.text), 0);
    assert_int_equal(read_all(f), ERR_CORRUPT);
    /* A folder under another name. */
    write_cut(f, cut, true);
    assert_int_equal(checkpoint_folder(f->dir, cut, &from), ERR_OK);
    assert_int_equal(checkpoint_folder(f->dir, (struct checkpoint_name){4, 1}, &to), ERR_OK);
    assert_int_equal(rename(from.text, to.text), 0);
    struct checkpoint *none = NULL;
    assert_int_equal(checkpoint_open(f->dir, (struct checkpoint_name){4, 1}, &none, &f->reason),
                     ERR_CORRUPT);
}

TEST_F(a_full_disk_leaves_nothing_behind, cut)
{
    int fail_at = 1;
    for (enum err err = ERR_NO_SPACE; err != ERR_OK; fail_at++) {
        struct faults faults;
        struct digest manifest;
        faults_init(&faults, fail_at, ENOSPC);
        err = write_server(f, &faults.ops, cut, 0, &manifest);
        if (err == ERR_OK)
            break;
        assert_true(err == ERR_NO_SPACE || err == ERR_NOT_SYNCED);
        struct checkpoint_path path;
        assert_int_equal(checkpoint_file(f->dir, cut, 0, &path), ERR_OK);
        strcat(path.text, ".tmp");
        assert_int_equal(access(path.text, F_OK), -1);
    }
    assert_true(fail_at > 6);
}

TEST_F(only_recorded_cuts_count, cut)
{
    struct checkpoint_name newest;
    assert_int_equal(checkpoint_newest(f->dir, &newest, &f->reason), ERR_NOT_FOUND);
    write_cut(f, (struct checkpoint_name){1, 500}, false);
    assert_int_equal(checkpoint_newest(f->dir, &newest, &f->reason), ERR_NOT_FOUND);
    write_cut(f, (struct checkpoint_name){1, 1000}, true);
    write_cut(f, (struct checkpoint_name){2, 100}, true);
    write_cut(f, (struct checkpoint_name){2, 20}, true);
    write_cut(f, (struct checkpoint_name){2, 200}, false);
    char foreign[400]; /* not a name that we write */
    snprintf(foreign, sizeof foreign, "%s/g9-v05", f->dir);
    assert_int_equal(file_make_dirs(foreign, 0755, NULL), ERR_OK);
    strcat(foreign, "/cut.json");
    replace(foreign, slice_of("{}"));
    assert_int_equal(checkpoint_newest(f->dir, &newest, &f->reason), ERR_OK);
    assert_int_equal(newest.generation, 2); /* a newer generation is newer */
    assert_int_equal(newest.version, 100);
}

static bool is_there(struct cut_fixture *f, struct checkpoint_name name)
{
    struct checkpoint_path path;
    assert_int_equal(checkpoint_folder(f->dir, name, &path), ERR_OK);
    return access(path.text, F_OK) == 0;
}

TEST_F(old_cuts_and_leftovers_are_pruned, cut)
{
    const struct checkpoint_name oldest = {1, 0}, leftover = {1, 10}, older = {1, 20},
                                 newest = {2, 20}, writing = {2, 30};
    write_cut(f, oldest, true);
    write_cut(f, leftover, false);
    write_cut(f, older, true);
    write_cut(f, newest, true);
    write_cut(f, writing, false);
    char foreign[400];
    snprintf(foreign, sizeof foreign, "%s/g1-v05", f->dir); /* not ours */
    assert_int_equal(file_make_dirs(foreign, 0755, NULL), ERR_OK);
    assert_int_equal(checkpoint_prune(f->dir, newest, 2, &f->reason), ERR_OK);
    assert_false(is_there(f, oldest));
    assert_false(is_there(f, leftover));
    assert_true(is_there(f, older));
    assert_true(is_there(f, newest));
    assert_true(is_there(f, writing));
    assert_int_equal(access(foreign, F_OK), 0);
    assert_int_equal(checkpoint_prune(f->dir, newest, 1, &f->reason), ERR_OK);
    assert_false(is_there(f, older));
    assert_true(is_there(f, newest));
}

/* A damaged cut that was gone back from, and one whose coordinator died before the store knew, are
 * recorded in the folder as well. */
TEST_F(what_somebody_may_go_back_to_is_not_pruned, cut)
{
    const struct checkpoint_name older = {1, 0}, oldest = {1, 2}, damaged = {1, 3},
                                 leftover = {5, 3}, newest = {6, 3}, writing = {6, 4};
    write_cut(f, older, true);
    write_cut(f, oldest, true);
    write_cut(f, damaged, true);
    write_cut(f, leftover, false);
    write_cut(f, newest, true);
    write_cut(f, writing, false);
    assert_int_equal(checkpoint_prune_older(f->dir, newest, oldest, &f->reason), ERR_OK);
    assert_false(is_there(f, older));
    assert_true(is_there(f, oldest));
    assert_true(is_there(f, damaged));
    assert_false(is_there(f, leftover));
    assert_true(is_there(f, newest));
    assert_true(is_there(f, writing));
    assert_int_equal(checkpoint_prune_older(f->dir, newest, writing, &f->reason), ERR_OK);
    assert_false(is_there(f, oldest));
    assert_false(is_there(f, damaged));
    assert_true(is_there(f, newest));
}

/* Its cut.json is there, but the coordinator may die before the store knows. */
TEST_F(a_cut_newer_than_the_recorded_one_takes_nobodys_place, cut)
{
    const struct checkpoint_name recorded = {1, 10}, next = {1, 20};
    write_cut(f, recorded, true);
    write_cut(f, next, true);
    assert_int_equal(checkpoint_prune(f->dir, recorded, 1, &f->reason), ERR_OK);
    assert_true(is_there(f, recorded));
    assert_true(is_there(f, next));
}

/* One bit of the file of server 0, `offset` bytes from its beginning. */
static void spoil(struct cut_fixture *f, struct checkpoint_name name, size_t offset)
{
    scoped(buf_release) struct buf bytes = {0};
    struct checkpoint_path path;
    assert_int_equal(checkpoint_file(f->dir, name, 0, &path), ERR_OK);
    assert_int_equal(file_read(path.text, 1 << 24, &bytes, NULL), ERR_OK);
    bytes.data[offset] ^= 1;
    replace(path.text, buf_slice(&bytes));
}

TEST_F(a_cut_is_judged_by_every_bit, cut)
{
    struct checkpoint_names names;
    const struct checkpoint_name older = {1, 10}, newest = {2, 20}, missing = {3, 1};
    write_cut(f, older, true);
    write_cut(f, newest, true);
    write_cut(f, missing, false);
    f->reason.text[0] = 0;
    assert_int_equal(checkpoint_list(f->dir, &names, &f->reason), ERR_OK);
    assert_string_equal(f->reason.text, ""); /* that none is chosen is no failure */
    assert_int_equal(names.count, 2);
    assert_int_equal(names.names[0].generation, 2);
    assert_int_equal(names.names[1].version, 10);
    checkpoint_names_release(&names);
    assert_int_equal(checkpoint_judge(f->dir, newest, &f->reason), ERR_OK);
    spoil(f, newest, 100); /* a weight */
    assert_int_equal(checkpoint_judge(f->dir, newest, &f->reason), ERR_CORRUPT);
    assert_int_equal(checkpoint_judge(f->dir, older, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_judge(f->dir, missing, &f->reason), ERR_NOT_FOUND);
}

/* Each file is as it was written, but it was written without that chunk. */
TEST_F(a_cut_that_lacks_a_chunk_is_damaged, cut)
{
    for (f->lost = 1; f->lost < f->model.chunks_count; f->lost++) {
        write_cut(f, cut, true);
        assert_int_equal(checkpoint_judge(f->dir, cut, &f->reason), ERR_CORRUPT);
        assert_non_null(strstr(f->reason.text, "is missing"));
    }
    write_cut(f, cut, true); /* without the last one: only who knows the model finds out */
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(f->dir, cut, &checkpoint, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_fits(checkpoint, &f->model, STATES, &f->reason), ERR_CORRUPT);
}

/* In place of the third page of a map one that cannot be read, as of a bad sector. */
static void lose_page(struct cut_fixture *f, const void *map)
{
    uint8_t *page = (uint8_t *)((uintptr_t)map & ~(uintptr_t)4095) + 8192;
    int empty = open(folder_write(&f->folder, "empty", "", 0), O_RDONLY | O_CLOEXEC);
    assert_true(mmap(page, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED, empty, 0) == page);
    close(empty);
}

TEST_F(a_block_that_cannot_be_read_is_damage, cut)
{
    struct checkpoint_chunk chunk;
    if (!unit_kernel_loads_maps())
        skip();
    f->record.server_count = 1;
    f->record.manifests[0] = write_large(f, cut, NULL);
    assert_int_equal(checkpoint_record(&file_ops_real, f->dir, &f->record, &f->reason), ERR_OK);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(f->dir, cut, &checkpoint, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_read(checkpoint, 0, &chunk, &f->reason), ERR_OK);
    lose_page(f, chunk.values);
    assert_int_equal(checkpoint_read(checkpoint, 0, &chunk, &f->reason), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "offset 64: the disk cannot read"));
}

TEST_F(a_damaged_cut_takes_no_whole_ones_place, cut)
{
    const struct checkpoint_name older = {1, 10}, newest = {1, 20};
    write_cut(f, older, true);
    write_cut(f, newest, true);
    spoil(f, newest, 0);
    assert_int_equal(checkpoint_prune(f->dir, newest, 1, &f->reason), ERR_CORRUPT);
    assert_int_equal(checkpoint_prune_older(f->dir, newest, newest, &f->reason), ERR_CORRUPT);
    assert_true(is_there(f, older));
    spoil(f, newest, 0);
    assert_int_equal(checkpoint_prune(f->dir, newest, 1, &f->reason), ERR_OK);
    assert_false(is_there(f, older));
}

TEST_F(a_path_may_be_the_run_its_checkpoints_or_one_cut, cut)
{
    write_cut(f, (struct checkpoint_name){1, 7}, true);
    write_cut(f, cut, true);
    char folder[400];
    snprintf(folder, sizeof folder, "%s/g1-v7", f->dir);
    const char *paths[] = {f->run, f->dir, folder};
    const uint64_t versions[] = {1200, 1200, 7};
    for (int i = 0; i < 3; i++) {
        scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
        assert_int_equal(checkpoint_open_any(paths[i], &checkpoint, &f->reason), ERR_OK);
        assert_int_equal(checkpoint_about(checkpoint)->name.version, versions[i]);
    }
    struct checkpoint *none = NULL;
    assert_int_equal(checkpoint_open_any("/nowhere", &none, &f->reason), ERR_NOT_FOUND);
}

TEST_F(another_model_is_told, cut)
{
    write_cut(f, cut, true);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(f->dir, cut, &checkpoint, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_fits(checkpoint, &f->model, 1, &f->reason), ERR_SPEC_DIFFERS);
    const uint32_t sizes[3][4] = {{2, 4, 2}, {2, 3, 3, 2}, {2, 2}};
    for (uint32_t i = 0; i < 3; i++) {
        struct spec_model settings = {.kind = SPEC_MLP, .tensor_max = 1};
        settings.sizes_count = i == 2 ? 2 : i + 3;
        memcpy(settings.sizes, sizes[i], sizeof sizes[i]);
        scoped(model_release) struct model model;
        assert_int_equal(model_init(&model, &settings, &f->reason), ERR_OK);
        assert_int_equal(checkpoint_fits(checkpoint, &model, STATES, &f->reason), ERR_SPEC_DIFFERS);
    }
}

/* Tables whose digests are right but whose places are not: nothing outside the file is read. */
TEST(a_table_that_leads_outside_is_refused)
{
    const struct {
        uint32_t n;
        uint64_t offset;
    } cases[] = {{4, 64},  {0, 64}, {131073, 64}, {4, 60}, {4, 66}, {4, UINT64_MAX - 3},
                 {4, 112}, {5, 64}, {3, 64}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t file[64 + 16 + 48 + 64] = {0};
        checkpoint_put_head(file, cut, 0, (struct checkpoint_arrays){0});
        uint8_t *table = file + 80, *tail = table + 48;
        checkpoint_put32(table, 7);
        checkpoint_put32(table + 4, cases[i].n);
        checkpoint_put64(table + 8, cases[i].offset);
        scoped(digest_stream_release) struct digest_stream stream = {0};
        assert_int_equal(digest_stream_init(&stream), ERR_OK);
        digest_stream_add(&stream, (struct slice){file, 64});
        digest_stream_add(&stream, (struct slice){table, 48});
        struct digest digest = digest_stream_finish(&stream);
        checkpoint_put64(tail, 80);
        checkpoint_put64(tail + 8, 1);
        memcpy(tail + 16, digest.bytes, 32);
        checkpoint_put64(tail + 48, sizeof file);
        memcpy(tail + 56, CHECKPOINT_END, 8);
        struct checkpoint_view view;
        assert_int_equal(
            checkpoint_view_init((struct slice){file, sizeof file}, "file", cut, 0, &view, NULL),
            i == 0 ? ERR_OK : ERR_CORRUPT);
    }
}

TEST_F(cuts_newer_than_the_chosen_one_are_set_aside_and_then_removed, cut)
{
    struct checkpoint_names names;
    struct checkpoint_name newest;
    const struct checkpoint_name a = {1, 10}, b = {1, 20}, c = {2, 5}, unrecorded = {2, 6};
    write_cut(f, a, true);
    write_cut(f, b, true);
    write_cut(f, c, true);
    write_cut(f, unrecorded, false);
    assert_int_equal(checkpoint_chosen(f->dir, &newest, &f->reason), ERR_NOT_FOUND);
    assert_int_equal(checkpoint_choose(f->dir, a, &f->reason), ERR_OK);
    assert_int_equal(checkpoint_choose(f->dir, b, &f->reason), ERR_OK); /* the last one counts */
    assert_int_equal(checkpoint_chosen(f->dir, &newest, &f->reason), ERR_OK);
    assert_int_equal(newest.version, 20);
    assert_int_equal(checkpoint_newest(f->dir, &newest, &f->reason), ERR_OK);
    assert_int_equal(newest.version, 20);
    assert_int_equal(checkpoint_list(f->dir, &names, &f->reason), ERR_OK);
    assert_int_equal(names.count, 3);
    assert_int_equal(names.set_aside, 1);
    checkpoint_names_release(&names);
    assert_true(is_there(f, c));
    assert_int_equal(checkpoint_take_chosen(f->dir, &f->reason), ERR_OK);
    assert_false(is_there(f, c) || is_there(f, unrecorded));
    assert_true(is_there(f, a) && is_there(f, b));
    assert_int_equal(checkpoint_chosen(f->dir, &newest, &f->reason), ERR_NOT_FOUND);
    assert_int_equal(checkpoint_take_chosen(f->dir, &f->reason), ERR_OK); /* nothing is chosen */
    assert_true(is_there(f, a) && is_there(f, b));
}

TEST_F(a_choice_may_be_read_by_another_user_than_who_made_it, cut)
{
    struct file_info info = {0};
    char path[400];
    write_cut(f, (struct checkpoint_name){1, 10}, true);
    mode_t before = umask(077); /* root's */
    enum err err = checkpoint_choose(f->dir, (struct checkpoint_name){1, 10}, &f->reason);
    umask(before);
    assert_int_equal(err, ERR_OK);
    snprintf(path, sizeof path, "%s/restore", f->dir);
    assert_int_equal(file_stat(path, &info, NULL), ERR_OK);
    assert_int_equal(info.mode, 0644);
}

TEST_F(a_choice_that_names_no_cut_is_refused, cut)
{
    struct checkpoint_name newest;
    char path[400];
    write_cut(f, (struct checkpoint_name){1, 10}, true);
    snprintf(path, sizeof path, "%s/restore", f->dir);
    replace(path, slice_of("g1-v010\n"));
    assert_int_equal(checkpoint_chosen(f->dir, &newest, &f->reason), ERR_CORRUPT);
    assert_int_equal(checkpoint_newest(f->dir, &newest, &f->reason), ERR_CORRUPT);
    assert_non_null(strstr(f->reason.text, "restore: names no checkpoint: g1-v010"));
}

TEST_F(a_cut_is_verified_a_part_at_a_time, cut)
{
    const struct checkpoint_name name = {1, 10};
    struct checkpoint *checkpoint = NULL;
    uint32_t next = 0, parts = 0;
    bool done = false;
    write_cut(f, name, true);
    assert_int_equal(checkpoint_open(f->dir, name, &checkpoint, &f->reason), ERR_OK);
    for (; !done; parts++)
        assert_int_equal(checkpoint_verify_part(checkpoint, 1, &next, &done, &f->reason), ERR_OK);
    assert_true(parts > 1 && parts == next); /* a block each */
    checkpoint_free(checkpoint);
    spoil(f, name, 100); /* a weight */
    assert_int_equal(checkpoint_open(f->dir, name, &checkpoint, &f->reason), ERR_OK);
    next = 0;
    enum err err = ERR_OK;
    for (done = false; !done && err == ERR_OK;)
        err = checkpoint_verify_part(checkpoint, 1, &next, &done, &f->reason);
    assert_int_equal(err, ERR_CORRUPT);
    checkpoint_free(checkpoint);
}
