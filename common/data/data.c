/* A stream of tokens over mapped files, or points in memory; and how it is divided into samples. */
#include "common/data/data.h"

#include "common/data/entropy.h"
#include "common/data/paths.h"
#include "common/data/tokens.h"

#include <inttypes.h>
#include <string.h>

/* Between two looks whether to stop: a second of a slow disk. */
enum { PIECE_BYTES = 4 << 20, PIECE_TOKENS = PIECE_BYTES / 4 };

struct stream_file {
    char *path;
    struct file_map map;
    struct tokens tokens;
    uint64_t first; /* the stream's token that is the file's first */
};

struct data {
    enum data_kind kind;
    uint32_t context;
    uint32_t vocabulary;
    struct stream_file *files;
    size_t file_count;
    uint64_t token_count;
    struct spiral_point *points;
    uint64_t counts[2]; /* samples of each split */
    struct digest digest;
};

void data_free(struct data *data)
{
    if (data == NULL)
        return;
    for (size_t i = 0; i < data->file_count; i++) {
        file_map_release(&data->files[i].map);
        free(data->files[i].path);
    }
    free(data->files);
    free(data->points);
    free(data);
}

/* The last ceil(fraction * samples) are held out. */
static enum err divide(struct data *data, uint64_t samples, double fraction, struct reason *reason)
{
    double exact = fraction * (double)samples;
    uint64_t held_out = (uint64_t)exact;
    held_out += (double)held_out < exact;
    if (held_out >= samples)
        return reason_set(reason, ERR_INVALID,
                          "%" PRIu64 " samples, %" PRIu64 " of them held out: none to train on",
                          samples, held_out);
    data->counts[DATA_TRAIN] = samples - held_out;
    data->counts[DATA_VALIDATION] = held_out;
    return ERR_OK;
}

static bool is_stopped(const atomic_bool *stop)
{
    return stop != NULL && atomic_load(stop);
}

static enum err say_stopped(struct reason *reason)
{
    return reason_set(reason, ERR_CANCELLED, "the data set is not read on");
}

/* The bytes of `all` from `at` on, a piece of them at most. */
static struct slice piece_at(struct slice all, size_t at)
{
    size_t left = all.bytes - at;
    return (struct slice){all.data + at, left < PIECE_BYTES ? left : PIECE_BYTES};
}

static enum err check_tokens(const struct data_settings *settings, const char *path,
                             struct slice file, const struct tokens *all, struct reason *reason)
{
    for (uint64_t first = 0; first < all->count; first += PIECE_TOKENS) {
        uint64_t left = all->count - first;
        const struct tokens piece = {all->data + first * all->width,
                                     left < PIECE_TOKENS ? left : PIECE_TOKENS, all->width};
        if (is_stopped(settings->stop))
            return say_stopped(reason);
        TRY(tokens_check(path, file, &piece, settings->vocabulary, reason));
    }
    return ERR_OK;
}

static enum err add_file(struct data *data, const struct data_settings *settings, const char *path,
                         struct reason *reason)
{
    struct stream_file *file = &data->files[data->file_count];
    TRY(file_map_open(path, &file->map, reason));
    data->file_count++; /* data_free() releases it from here on */
    file->path = strdup(path);
    if (file->path == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    file->first = data->token_count;
    file->tokens = (struct tokens){file->map.bytes.data, file->map.bytes.bytes, 1};
    if (data->kind == DATA_TOKENS) {
        TRY(tokens_parse(path, file->map.bytes, &file->tokens, reason));
        TRY(check_tokens(settings, path, file->map.bytes, &file->tokens, reason));
    }
    data->token_count += file->tokens.count;
    return ERR_OK;
}

static enum err digest_files(struct data *data, const atomic_bool *stop, struct reason *reason)
{
    scoped(digest_stream_release) struct digest_stream stream = {0};
    TRY(digest_stream_init(&stream));
    for (size_t i = 0; i < data->file_count; i++) {
        struct slice bytes = data->files[i].map.bytes;
        for (size_t at = 0; at < bytes.bytes; at += PIECE_BYTES) {
            if (is_stopped(stop))
                return say_stopped(reason);
            digest_stream_add(&stream, piece_at(bytes, at));
        }
    }
    data->digest = digest_stream_finish(&stream);
    return ERR_OK;
}

static enum err open_stream(struct data *data, const struct data_settings *settings,
                            struct reason *reason)
{
    if (settings->context == 0)
        return reason_set(reason, ERR_INVALID, "a context of 0 tokens");
    if (data->kind == DATA_TEXT && settings->vocabulary < 256)
        return reason_set(reason, ERR_INVALID, "text needs a vocabulary of 256, not %" PRIu32,
                          settings->vocabulary);
    scoped(file_names_release) struct file_names paths = {0};
    TRY(paths_find(settings->paths, settings->path_count, &paths, reason));
    data->files = calloc(paths.count + 1, sizeof *data->files);
    if (data->files == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for %zu files", paths.count);
    for (size_t i = 0; i < paths.count; i++)
        TRY(add_file(data, settings, paths.names[i], reason));
    uint64_t samples = data->token_count == 0 ? 0 : (data->token_count - 1) / settings->context;
    if (samples == 0)
        return reason_set(reason, ERR_INVALID,
                          "%s%s: %" PRIu64 " tokens are too few for one sample of %" PRIu32
                          " and its target",
                          paths.count > 0 ? paths.names[0] : "no file",
                          paths.count > 1 ? ", ..." : "", data->token_count, settings->context);
    TRY(divide(data, samples, settings->validation, reason));
    return digest_files(data, settings->stop, reason);
}

static enum err open_spiral(struct data *data, const struct data_settings *settings,
                            struct reason *reason)
{
    TRY(spiral_check(&settings->spiral, reason));
    uint64_t count = (uint64_t)settings->spiral.points * settings->spiral.classes;
    data->points = calloc(count, sizeof *data->points);
    if (data->points == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for %" PRIu64 " points", count);
    spiral_generate(&settings->spiral, data->points);
    TRY(divide(data, count, settings->validation, reason));
    struct slice bytes = {(const uint8_t *)data->points, count * sizeof *data->points};
    return digest_sha256(bytes, &data->digest);
}

enum err data_open(const struct data_settings *settings, struct data **ret_data,
                   struct reason *reason)
{
    if (!(settings->validation >= 0 && settings->validation < 1))
        return reason_set(reason, ERR_INVALID, "a held-out fraction of %g is not in [0, 1)",
                          settings->validation);
    scoped(data_free_scoped) struct data *data = calloc(1, sizeof *data);
    if (data == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for a data set");
    data->kind = settings->kind;
    data->context = settings->context;
    data->vocabulary = settings->vocabulary;
    if (data->kind == DATA_SPIRAL)
        TRY(open_spiral(data, settings, reason));
    else
        TRY(open_stream(data, settings, reason));
    *ret_data = data;
    data = NULL;
    return ERR_OK;
}

uint64_t data_count(const struct data *data, enum data_split split)
{
    return data->counts[split];
}

const struct digest *data_digest(const struct data *data)
{
    return &data->digest;
}

static void count_bytes(struct slice bytes, uint64_t counts[static 256])
{
    for (size_t i = 0; i < bytes.bytes; i++)
        counts[bytes.data[i]]++;
}

double data_entropy(const struct data *data, const atomic_bool *stop)
{
    check(data->kind == DATA_TEXT);
    uint64_t counts[256] = {0};
    for (size_t i = 0; i < data->file_count; i++) {
        struct slice bytes = data->files[i].map.bytes;
        for (size_t at = 0; at < bytes.bytes && !is_stopped(stop); at += PIECE_BYTES)
            count_bytes(piece_at(bytes, at), counts);
    }
    return entropy_nats(counts, 256);
}

/* The sample's place in the whole stream: training samples first, then the held-out ones. */
static uint64_t stream_sample(const struct data *data, enum data_split split, uint64_t index)
{
    check(index < data->counts[split]);
    return split == DATA_TRAIN ? index : data->counts[DATA_TRAIN] + index;
}

/* The file that holds the stream's token `first`: the last that does not begin after it. */
static size_t find_file(const struct data *data, uint64_t first)
{
    size_t low = 0, high = data->file_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (data->files[middle].first <= first)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The file was checked when it was opened; it is mapped, and somebody may have written into it. */
static enum err check_read(const struct data *data, const struct stream_file *file,
                           const int32_t *tokens, uint64_t count, struct reason *reason)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = (uint32_t)tokens[i] > largest ? (uint32_t)tokens[i] : largest;
    if (largest < data->vocabulary)
        return ERR_OK;
    return reason_set(reason, ERR_DATA_SET,
                      "%s was changed since it was opened: token %" PRIu32
                      " is not in the vocabulary of %" PRIu32,
                      file->path, largest, data->vocabulary);
}

static enum err read_stream(const struct data *data, uint64_t first, uint64_t count,
                            int32_t *tokens, struct reason *reason)
{
    for (size_t i = find_file(data, first); count > 0; i++) {
        check(i < data->file_count);
        const struct stream_file *file = &data->files[i];
        uint64_t skipped = first - file->first, run = file->tokens.count - skipped;
        run = run < count ? run : count;
        tokens_read(&file->tokens, skipped, run, tokens);
        TRY(check_read(data, file, tokens, run, reason));
        first += run;
        tokens += run;
        count -= run;
    }
    return ERR_OK;
}

enum err data_sample_tokens(const struct data *data, enum data_split split, uint64_t index,
                            int32_t *ret_inputs, int32_t *ret_targets, struct reason *reason)
{
    check(data->kind != DATA_SPIRAL);
    const uint64_t context = data->context;
    uint64_t first = stream_sample(data, split, index) * context;
    TRY(read_stream(data, first, context, ret_inputs, reason));
    memcpy(ret_targets, ret_inputs + 1, (context - 1) * sizeof *ret_targets);
    return read_stream(data, first + context, 1, ret_targets + context - 1, reason);
}

void data_sample_point(const struct data *data, enum data_split split, uint64_t index,
                       float ret_point[static 2], int32_t *ret_label)
{
    check(data->kind == DATA_SPIRAL);
    const struct spiral_point *point = &data->points[stream_sample(data, split, index)];
    ret_point[0] = point->x;
    ret_point[1] = point->y;
    *ret_label = point->label;
}
