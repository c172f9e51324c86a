/* Data sets as samples: division, order, digest, and what is wrong with files. */
#include "tests/unit/folder.h"

#include "common/data/data.h"

#include <sys/stat.h>
#include <unistd.h>

static struct data *open_paths(enum data_kind kind, double validation, uint32_t context,
                               const char *const *paths, size_t path_count)
{
    const struct data_settings settings = {
        .kind = kind,
        .paths = paths,
        .path_count = path_count,
        .context = context,
        .vocabulary = 1000,
        .validation = validation,
    };
    struct data *data = NULL;
    struct reason reason = {{0}};
    if (data_open(&settings, &data, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return data;
}

static enum err fails_to_open(const struct data_settings *settings, struct reason *reason)
{
    struct data *data = NULL;
    enum err err = data_open(settings, &data, reason);
    assert_null(data);
    return err;
}

#define TEXT "the quick brown fox jumps over the lazy dog" /* 43 bytes: 10 samples of 4 */

TEST_IN_FOLDER(a_sample_is_its_tokens_and_the_same_one_further)
{
    const char *path = folder_write(state, "a", TEXT, 43);
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 4, &path, 1);
    assert_int_equal(data_count(data, DATA_TRAIN), 10);
    assert_int_equal(data_count(data, DATA_VALIDATION), 0);
    for (uint64_t index = 0; index < 10; index++) {
        int32_t inputs[4], targets[4];
        assert_int_equal(data_sample_tokens(data, DATA_TRAIN, index, inputs, targets, NULL),
                         ERR_OK);
        for (int t = 0; t < 4; t++) {
            assert_int_equal(inputs[t], TEXT[index * 4 + (uint64_t)t]);
            assert_int_equal(targets[t], TEXT[index * 4 + (uint64_t)t + 1]);
        }
    }
}

TEST_IN_FOLDER(the_last_samples_are_held_out_rounded_up)
{
    const char *path = folder_write(state, "a", TEXT, 43);
    static const struct {
        double fraction;
        unsigned held_out;
    } rows[] = {{0, 0}, {0.1, 1}, {0.11, 2}, {0.2, 2}, {0.85, 9}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        scoped(data_free_scoped) struct data *data =
            open_paths(DATA_TEXT, rows[i].fraction, 4, &path, 1);
        assert_int_equal(data_count(data, DATA_VALIDATION), rows[i].held_out);
        assert_int_equal(data_count(data, DATA_TRAIN), 10 - rows[i].held_out);
        int32_t inputs[4], targets[4];
        if (rows[i].held_out > 0) {
            assert_int_equal(data_sample_tokens(data, DATA_VALIDATION, rows[i].held_out - 1, inputs,
                                                targets, NULL),
                             ERR_OK);
            assert_int_equal(inputs[0], TEXT[36]);
        }
    }
}

TEST_IN_FOLDER(files_follow_each_other_in_the_order_of_their_paths)
{
    folder_write(state, "c", "ghij", 4);
    folder_write(state, "a", "abc", 3);
    folder_write(state, "b", "", 0);
    folder_write(state, "bb", "def", 3);
    const char *paths[] = {folder_path(state, "c"), folder_path(state, "b*"),
                           folder_path(state, "a")};
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 9, paths, 3);
    int32_t inputs[9], targets[9];
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 0, inputs, targets, NULL), ERR_OK);
    for (int t = 0; t < 9; t++) {
        assert_int_equal(inputs[t], 'a' + t);
        assert_int_equal(targets[t], 'b' + t);
    }
}

TEST_IN_FOLDER(the_digest_is_that_of_the_bytes_in_order)
{
    folder_write(state, "a", "abc", 3);
    folder_write(state, "b", "defghij", 7);
    const char *folder = folder_path(state, "");
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 2, &folder, 1);
    struct digest expected;
    assert_int_equal(digest_sha256((struct slice){(const uint8_t *)"abcdefghij", 10}, &expected),
                     ERR_OK);
    assert_memory_equal(data_digest(data), &expected, sizeof expected);
}

TEST_IN_FOLDER(a_folder_means_its_files_links_followed_and_each_once)
{
    folder_write(state, "GPL-2", "22", 2);
    folder_write(state, "GPL-3", "33", 2);
    folder_write(state, ".hidden", "hh", 2);
    assert_int_equal(mkdir(folder_path(state, "inner"), 0755), 0);
    folder_write(state, "inner/file", "ii", 2);
    assert_int_equal(symlink("GPL-3", folder_path(state, "GPL")), 0);
    assert_int_equal(symlink("nowhere", folder_path(state, "gone")), 0);
    const char *paths[] = {folder_path(state, "."), folder_path(state, "GPL-3"),
                           folder_path(state, "*")};
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 3, paths, 3);
    int32_t inputs[3], targets[3];
    assert_int_equal(data_count(data, DATA_TRAIN), 1);
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 0, inputs, targets, NULL), ERR_OK);
    assert_int_equal(inputs[1], '2');
    assert_int_equal(inputs[2], '3');
    assert_int_equal(targets[2], '3');
}

/* In place, while it is mapped. */
static void write_token(const char *path, long at, uint16_t token)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, at * (long)sizeof token, SEEK_SET), 0);
    assert_int_equal(fwrite(&token, sizeof token, 1, file), 1);
    assert_int_equal(fclose(file), 0);
}

TEST_IN_FOLDER(a_token_that_leaves_the_vocabulary_later_is_found_when_it_is_read)
{
    const uint16_t tokens[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const char *path = folder_write(state, "a.bin", tokens, sizeof tokens);
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TOKENS, 0, 4, &path, 1);
    int32_t inputs[4], targets[4];
    struct reason reason;
    write_token(path, 8, 999);
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 1, inputs, targets, &reason), ERR_OK);
    assert_int_equal(targets[3], 999);
    write_token(path, 8, 1000); /* the last target */
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 0, inputs, targets, &reason), ERR_OK);
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 1, inputs, targets, &reason),
                     ERR_DATA_SET);
    assert_non_null(strstr(reason.text, path));
    assert_non_null(strstr(reason.text, "token 1000 is not in the vocabulary of 1000"));
    write_token(path, 1, UINT16_MAX);
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 0, inputs, targets, &reason),
                     ERR_DATA_SET);
}

TEST_IN_FOLDER(token_files_of_both_widths_make_one_stream)
{
    const uint16_t narrow[3] = {10, 11, 12};
    uint32_t wide[256 + 3] = {20240801, 7, 3};
    wide[256] = 13;
    wide[257] = 14;
    wide[258] = 15;
    folder_write(state, "1.bin", narrow, sizeof narrow);
    folder_write(state, "2.bin", wide, sizeof wide);
    const char *pattern = folder_path(state, "*.bin");
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TOKENS, 0, 5, &pattern, 1);
    int32_t inputs[5], targets[5];
    assert_int_equal(data_sample_tokens(data, DATA_TRAIN, 0, inputs, targets, NULL), ERR_OK);
    for (int t = 0; t < 5; t++) {
        assert_int_equal(inputs[t], 10 + t);
        assert_int_equal(targets[t], 11 + t);
    }
}

TEST_IN_FOLDER(a_token_outside_the_vocabulary_is_refused_with_its_place)
{
    const uint16_t tokens[3] = {10, 999, 1000};
    const char *path = folder_write(state, "train.bin", tokens, sizeof tokens);
    const struct data_settings settings = {
        .kind = DATA_TOKENS, .paths = &path, .path_count = 1, .context = 1, .vocabulary = 1000};
    struct reason reason;
    assert_int_equal(fails_to_open(&settings, &reason), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "train.bin: offset 4: token 1000"));
}

TEST_IN_FOLDER(a_data_set_that_is_not_wanted_any_more_is_not_read_on)
{
    static const struct {
        enum data_kind kind;
        enum err read; /* to its end */
    } rows[] = {{DATA_TEXT, ERR_OK}, {DATA_TOKENS, ERR_MALFORMED}};
    const char *path = folder_write(state, "a", TEXT, 42);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        atomic_bool stop = false;
        const struct data_settings settings = {.kind = rows[i].kind,
                                               .paths = &path,
                                               .path_count = 1,
                                               .context = 4,
                                               .vocabulary = 256,
                                               .stop = &stop};
        struct reason reason;
        scoped(data_free_scoped) struct data *data = NULL;
        assert_int_equal(data_open(&settings, &data, &reason), rows[i].read);
        atomic_store(&stop, true);
        assert_int_equal(fails_to_open(&settings, &reason), ERR_CANCELLED);
    }
}

/* Larger than the pieces that are read between two looks whether to stop. */
TEST_IN_FOLDER(a_file_of_several_pieces_is_read_as_one)
{
    enum { BYTES = 9 << 20 };
    struct digest digest;
    struct reason reason;
    scoped(free_scoped) uint8_t *bytes = calloc(BYTES, 1);
    assert_non_null(bytes);
    bytes[BYTES - 1] = 4; /* a token of 1024 */
    const char *path = folder_write(state, "large", bytes, BYTES);
    assert_int_equal(digest_sha256((struct slice){bytes, BYTES}, &digest), ERR_OK);
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 5, &path, 1);
    assert_memory_equal(data_digest(data)->bytes, digest.bytes, sizeof digest.bytes);
    assert_true(data_entropy(data, NULL) > 0); /* the last byte is counted */
    const struct data_settings settings = {
        .kind = DATA_TOKENS, .paths = &path, .path_count = 1, .context = 1, .vocabulary = 1000};
    assert_int_equal(fails_to_open(&settings, &reason), ERR_MALFORMED);
    assert_non_null(strstr(reason.text, "large: offset 9437182: token 1024"));
}

TEST_IN_FOLDER(settings_that_cannot_be_are_refused)
{
    const char *path = folder_write(state, "a", TEXT, 43);
    const struct data_settings good = {
        .kind = DATA_TEXT, .paths = &path, .path_count = 1, .context = 4, .vocabulary = 256};
    struct data_settings wrong[] = {good, good, good, good, good, good, good};
    wrong[0].context = 43; /* no target for the last one */
    wrong[1].context = 0;
    wrong[2].vocabulary = 255;
    wrong[3].validation = -0.1;
    wrong[4].validation = 1;
    wrong[5].validation = 0.95; /* leaves no training sample */
    wrong[6].validation = __builtin_nan("");
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct reason reason;
        if (fails_to_open(&wrong[i], &reason) != ERR_INVALID)
            fail_msg("settings %zu are opened: %s", i, reason.text);
    }
}

TEST_IN_FOLDER(paths_that_lead_to_no_file_are_named)
{
    assert_int_equal(mkdir(folder_path(state, "empty"), 0755), 0);
    static const char *const names[] = {"none", "*.bin", "empty", "empt*"};
    for (int i = 0; i < 4; i++) {
        const char *path = folder_path(state, names[i]);
        const struct data_settings settings = {
            .kind = DATA_TEXT, .paths = &path, .path_count = 1, .context = 1, .vocabulary = 256};
        struct reason reason;
        assert_int_equal(fails_to_open(&settings, &reason), ERR_NOT_FOUND);
        assert_non_null(strstr(reason.text, path));
    }
}

/* ln 4 / 2 * 2 + …: "aabc" is a: 1/2, b and c: 1/4, so 1.5 ln 2. */
TEST_IN_FOLDER(entropy_is_that_of_all_bytes)
{
    folder_write(state, "1", "aa", 2);
    folder_write(state, "2", "bc", 2);
    const char *folder = folder_path(state, ".");
    scoped(data_free_scoped) struct data *data = open_paths(DATA_TEXT, 0, 1, &folder, 1);
    double difference = data_entropy(data, NULL) - 1.5 * 0x1.62e42fefa39efp-1;
    assert_true(difference < 1e-15 && difference > -1e-15);
}

static struct data *open_spiral(struct spiral_settings spiral, double validation)
{
    struct data *data = NULL;
    const struct data_settings settings = {
        .kind = DATA_SPIRAL, .validation = validation, .spiral = spiral};
    assert_int_equal(data_open(&settings, &data, NULL), ERR_OK);
    return data;
}

/* Expected: the definition at 160 bits (mpmath) with our random numbers. */
TEST(spiral_points_have_the_expected_bits)
{
    static const struct spiral_point expected[] = {
        {0x1.3ba13ep-2f, 0x1.03e4eap-3f, 0},
        {0x1.b5ffaap-2f, -0x1.ee809p-4f, 0},
        {-0x1.1e7da6p-1f, -0x1.082d3ap-2f, 2},
        {0x1.e34d3ep-3f, 0x1.7029c6p-4f, 0},
    };
    scoped(data_free_scoped) struct data *data =
        open_spiral((struct spiral_settings){1, 100, 3, 0.2}, 0.1);
    assert_int_equal(data_count(data, DATA_TRAIN), 270);
    assert_int_equal(data_count(data, DATA_VALIDATION), 30);
    for (uint64_t i = 0; i < 4; i++) {
        float point[2];
        int32_t label;
        data_sample_point(data, DATA_TRAIN, i, point, &label);
        assert_true(point[0] == expected[i].x);
        assert_true(point[1] == expected[i].y);
        assert_int_equal(label, expected[i].label);
    }
}

TEST(spiral_arms_have_all_their_points)
{
    scoped(data_free_scoped) struct data *data =
        open_spiral((struct spiral_settings){7, 50, 4, 0.2}, 0);
    unsigned points[4] = {0};
    double squares = 0;
    for (uint64_t i = 0; i < 200; i++) {
        float point[2];
        int32_t label;
        data_sample_point(data, DATA_TRAIN, i, point, &label);
        assert_in_range(label, 0, 3);
        points[label]++;
        squares += (double)(point[0] * point[0]) + (double)(point[1] * point[1]);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(points[i], 50);
    /* 4 times the sum of (i / 49)^2: 4 * 50 * 99 / (6 * 49) */
    assert_true(squares > 67.346 && squares < 67.348);
}

TEST(spirals_differ_by_seed_and_not_by_process)
{
    scoped(data_free_scoped) struct data *once =
        open_spiral((struct spiral_settings){1, 10, 2, 0.2}, 0);
    scoped(data_free_scoped) struct data *again =
        open_spiral((struct spiral_settings){1, 10, 2, 0.2}, 0.5);
    scoped(data_free_scoped) struct data *other =
        open_spiral((struct spiral_settings){2, 10, 2, 0.2}, 0);
    assert_memory_equal(data_digest(once), data_digest(again), sizeof(struct digest));
    assert_memory_not_equal(data_digest(once), data_digest(other), sizeof(struct digest));
}

TEST(a_spiral_of_one_point_a_class_is_its_centre)
{
    scoped(data_free_scoped) struct data *data =
        open_spiral((struct spiral_settings){1, 1, 1, 0}, 0);
    float point[2];
    int32_t label;
    data_sample_point(data, DATA_TRAIN, 0, point, &label);
    assert_true(point[0] == 0 && point[1] == 0);
}

TEST(spirals_that_cannot_be_are_refused)
{
    static const struct spiral_settings wrong[] = {
        {1, 0, 3, 0.2},    {1, SPIRAL_POINTS_MAX + 1, 3, 0.2},
        {1, 100, 0, 0.2},  {1, 100, SPIRAL_CLASSES_MAX + 1, 0.2},
        {1, 100, 3, -0.1}, {1, 100, 3, 101},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        const struct data_settings settings = {.kind = DATA_SPIRAL, .spiral = wrong[i]};
        struct reason reason;
        assert_int_equal(fails_to_open(&settings, &reason), ERR_INVALID);
        assert_non_null(strstr(reason.text, "spiral"));
    }
}
