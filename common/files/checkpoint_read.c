/* An opened cut: mapped files and an index over their tables. */
#include "common/files/checkpoint_format.h"
#include "common/files/checkpoint_seed.h"

#include <inttypes.h>

struct place {
    uint32_t chunk;
    uint32_t file;
    uint32_t entry;
};

struct checkpoint {
    struct checkpoint_path folder;
    struct checkpoint_record record;
    char *spec; /* of the record */
    struct checkpoint_arrays arrays;
    struct checkpoint_path *paths; /* one per server */
    struct file_map *maps;
    struct checkpoint_view *views;
    struct checkpoint_seed *seed; /* in place of the files; NULL: there are files */
    uint32_t count;               /* chunks in all files */
    struct place *places;         /* ascending by chunk */
};

/* ---- one file ---- */

struct checkpoint_entry checkpoint_view_entry(const struct checkpoint_view *view, uint32_t index)
{
    const uint8_t *bytes = view->table + (size_t)index * CHECKPOINT_ENTRY_BYTES;
    struct checkpoint_entry entry = {.chunk = checkpoint_get32(bytes),
                                     .n = checkpoint_get32(bytes + 4),
                                     .offset = checkpoint_get64(bytes + 8)};
    memcpy(entry.digest.bytes, bytes + 16, 32);
    return entry;
}

static enum err corrupt(const char *path, uint64_t offset, const char *what, struct reason *reason)
{
    return reason_set(reason, ERR_CORRUPT, "%s: offset %" PRIu64 ": %s", path, offset, what);
}

/* So that a sector that the disk cannot read is damage as any other, and no SIGBUS. */
static enum err load(struct slice file, struct file_range part, const char *path,
                     struct reason *reason)
{
    return file_map_load((struct slice){file.data + part.offset, part.bytes}) == ERR_OK
               ? ERR_OK
               : corrupt(path, part.offset, "the disk cannot read what is here", reason);
}

/* The tail leads to the table, and its digest covers head and table. */
static enum err judge_tail(struct slice bytes, const char *path, struct checkpoint_view *view,
                           struct reason *reason)
{
    if (bytes.bytes < CHECKPOINT_HEAD_BYTES + CHECKPOINT_TAIL_BYTES)
        return corrupt(path, bytes.bytes, "the file ends too early", reason);
    uint64_t at = bytes.bytes - CHECKPOINT_TAIL_BYTES;
    const uint8_t *tail = bytes.data + at;
    TRY(load(bytes, (struct file_range){at, CHECKPOINT_TAIL_BYTES}, path, reason));
    if (memcmp(tail + 56, CHECKPOINT_END, 8) != 0)
        return corrupt(path, at + 56, "the file's end is missing", reason);
    if (checkpoint_get64(tail + 48) != bytes.bytes)
        return corrupt(path, at + 48, "the file has another length", reason);
    uint64_t table = checkpoint_get64(tail), count = checkpoint_get64(tail + 8);
    if (count > CHECKPOINT_CHUNKS_MAX)
        return corrupt(path, at + 8, "too many chunks", reason);
    if (table < CHECKPOINT_HEAD_BYTES || table > at || at - table != count * CHECKPOINT_ENTRY_BYTES)
        return corrupt(path, at, "the table is not where it should be", reason);
    TRY(load(bytes, (struct file_range){0, CHECKPOINT_HEAD_BYTES}, path, reason));
    TRY(load(bytes, (struct file_range){table, at - table}, path, reason));
    view->table = bytes.data + table;
    view->count = (uint32_t)count;

    scoped(digest_stream_release) struct digest_stream stream = {0};
    if (digest_stream_init(&stream) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    digest_stream_add(&stream, (struct slice){bytes.data, CHECKPOINT_HEAD_BYTES});
    digest_stream_add(&stream, (struct slice){view->table, count * CHECKPOINT_ENTRY_BYTES});
    view->manifest = digest_stream_finish(&stream);
    if (memcmp(view->manifest.bytes, tail + 16, 32) != 0)
        return corrupt(path, at + 16, "head and table do not match their digest", reason);
    return ERR_OK;
}

static enum err judge_head(const struct checkpoint_view *view, struct checkpoint_name name,
                           uint32_t server, struct reason *reason)
{
    uint8_t expected[CHECKPOINT_HEAD_BYTES];
    if (memcmp(view->bytes.data, CHECKPOINT_MAGIC, 8) != 0)
        return corrupt(view->path, 0, "this is no checkpoint's file", reason);
    if (checkpoint_get32(view->bytes.data + 8) != CHECKPOINT_FORMAT)
        return reason_set(reason, ERR_UNSUPPORTED,
                          "%s: offset 8: format %" PRIu32 "; this roost reads %d", view->path,
                          checkpoint_get32(view->bytes.data + 8), CHECKPOINT_FORMAT);
    if (view->arrays.states > CHECKPOINT_STATES_MAX)
        return corrupt(view->path, 12, "too many states", reason);
    if (view->arrays.versions > CHECKPOINT_VERSIONS_MAX)
        return corrupt(view->path, 36, "too many versions", reason);
    if (view->arrays.extra_bytes > CHECKPOINT_EXTRA_BYTES_MAX || view->arrays.extra_bytes % 4 != 0)
        return corrupt(view->path, 40, "too many extra bytes", reason);
    checkpoint_put_head(expected, name, server, view->arrays);
    if (memcmp(view->bytes.data, expected, sizeof expected) != 0)
        return corrupt(view->path, 16, "the file belongs to another checkpoint or server", reason);
    return ERR_OK;
}

/* Blocks lie within their part of the file and fill it. */
static enum err judge_table(const struct checkpoint_view *view, struct reason *reason)
{
    uint64_t table = (uint64_t)(view->table - view->bytes.data);
    uint64_t blocks = 0;
    for (uint32_t i = 0; i < view->count; i++) {
        struct checkpoint_entry entry = checkpoint_view_entry(view, i);
        uint64_t at = table + (uint64_t)i * CHECKPOINT_ENTRY_BYTES;
        uint64_t bytes = checkpoint_block_bytes(view->arrays, entry.n);
        if (entry.n == 0 || entry.n > MODEL_CHUNK_WEIGHTS_MAX || entry.offset % 4 != 0 ||
            entry.offset < CHECKPOINT_HEAD_BYTES || entry.offset > table ||
            bytes > table - entry.offset)
            return corrupt(view->path, at, "a block is not where it can be", reason);
        if (i > 0 && checkpoint_view_entry(view, i - 1).chunk >= entry.chunk)
            return corrupt(view->path, at, "chunks are not in order", reason);
        blocks += bytes;
    }
    if (blocks != table - CHECKPOINT_HEAD_BYTES)
        return corrupt(view->path, table, "blocks have gaps", reason);
    return ERR_OK;
}

enum err checkpoint_view_init(struct slice bytes, const char *path, struct checkpoint_name name,
                              uint32_t server, struct checkpoint_view *ret_view,
                              struct reason *reason)
{
    struct checkpoint_view view = {.bytes = bytes, .path = path};
    TRY(judge_tail(bytes, path, &view, reason));
    view.arrays = (struct checkpoint_arrays){.states = checkpoint_get32(bytes.data + 12),
                                             .versions = checkpoint_get32(bytes.data + 36),
                                             .extra_bytes = checkpoint_get32(bytes.data + 40)};
    TRY(judge_head(&view, name, server, reason));
    TRY(judge_table(&view, reason));
    *ret_view = view;
    return ERR_OK;
}

/* ---- all files of a cut ---- */

static enum err open_file(struct checkpoint *checkpoint, const char *folder, uint32_t server,
                          struct reason *reason)
{
    char *path = checkpoint->paths[server].text;
    int length =
        snprintf(path, CHECKPOINT_PATH_BYTES, "%s/server-%" PRIu32 ".roost", folder, server);
    if (length < 0 || length >= CHECKPOINT_PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "%s: path is too long", folder);
    TRY(file_map_open(path, &checkpoint->maps[server], reason));
    struct checkpoint_view *view = &checkpoint->views[server];
    TRY(checkpoint_view_init(checkpoint->maps[server].bytes, path, checkpoint->record.name, server,
                             view, reason));
    if (memcmp(view->manifest.bytes, checkpoint->record.manifests[server].bytes, 32) != 0)
        return corrupt(path, view->bytes.bytes - CHECKPOINT_TAIL_BYTES + 16,
                       "the manifest is not the one that cut.json names", reason);
    if (server > 0 && view->arrays.states != checkpoint->arrays.states)
        return corrupt(path, 12, "another number of states than in server-0.roost", reason);
    if (server > 0 && view->arrays.versions != checkpoint->arrays.versions)
        return corrupt(path, 36, "another number of versions than in server-0.roost", reason);
    if (server > 0 && view->arrays.extra_bytes != checkpoint->arrays.extra_bytes)
        return corrupt(path, 40, "another number of extra bytes than in server-0.roost", reason);
    checkpoint->arrays = view->arrays;
    checkpoint->count += view->count;
    return ERR_OK;
}

static int by_chunk(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    return (left->chunk > right->chunk) - (left->chunk < right->chunk);
}

/* P9: version 0 by its seed, without files. */
static enum err open_seed(struct checkpoint *checkpoint, struct reason *reason)
{
    checkpoint->arrays = checkpoint->record.arrays;
    TRY(checkpoint_seed_new(checkpoint->spec, checkpoint->arrays, checkpoint->folder.text,
                            &checkpoint->seed, reason));
    checkpoint->count = checkpoint_seed_count(checkpoint->seed);
    checkpoint->places = calloc((size_t)checkpoint->count + 1, sizeof *checkpoint->places);
    if (checkpoint->places == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", checkpoint->folder.text);
    for (uint32_t c = 0; c < checkpoint->count; c++)
        checkpoint->places[c] = (struct place){.chunk = c, .entry = c};
    return ERR_OK;
}

static enum err index_chunks(struct checkpoint *checkpoint, struct reason *reason)
{
    checkpoint->places = calloc((size_t)checkpoint->count + 1, sizeof *checkpoint->places);
    if (checkpoint->places == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", checkpoint->folder.text);
    struct place *place = checkpoint->places;
    for (uint32_t f = 0; f < checkpoint->record.server_count; f++)
        for (uint32_t e = 0; e < checkpoint->views[f].count; e++)
            *place++ = (struct place){checkpoint_view_entry(&checkpoint->views[f], e).chunk, f, e};
    qsort(checkpoint->places, checkpoint->count, sizeof *checkpoint->places, by_chunk);
    for (uint32_t i = 0; i < checkpoint->count; i++) {
        uint32_t chunk = checkpoint->places[i].chunk;
        if (chunk != i) /* a model's chunks are 0, 1, … */
            return reason_set(reason, ERR_CORRUPT, "%s: chunk %" PRIu32 " is %s",
                              checkpoint->folder.text, chunk < i ? chunk : i,
                              chunk < i ? "in two files" : "missing");
    }
    return ERR_OK;
}

static enum err open_files(struct checkpoint *checkpoint, const char *folder, struct reason *reason)
{
    size_t servers = checkpoint->record.server_count;
    checkpoint->paths = calloc(servers, sizeof *checkpoint->paths);
    checkpoint->maps = calloc(servers, sizeof *checkpoint->maps);
    checkpoint->views = calloc(servers, sizeof *checkpoint->views);
    if (checkpoint->paths == NULL || checkpoint->maps == NULL || checkpoint->views == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", folder);
    for (uint32_t i = 0; i < servers; i++)
        TRY(open_file(checkpoint, folder, i, reason));
    return index_chunks(checkpoint, reason);
}

static enum err read_record(struct checkpoint *checkpoint, struct reason *reason)
{
    struct checkpoint_path path;
    int length =
        snprintf(path.text, sizeof path.text, "%s/" CHECKPOINT_JSON, checkpoint->folder.text);
    if (length < 0 || length >= (int)sizeof path.text)
        return reason_set(reason, ERR_INVALID, "%s: path is too long", checkpoint->folder.text);
    scoped(buf_release) struct buf bytes = {0};
    TRY(file_read(path.text, CHECKPOINT_JSON_BYTES_MAX, &bytes, reason));
    return checkpoint_record_parse(buf_slice(&bytes), path.text, &checkpoint->record,
                                   &checkpoint->spec, reason);
}

enum err checkpoint_open_folder(const char *folder, struct checkpoint **ret_checkpoint,
                                struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to open %s", folder);
    int length = snprintf(checkpoint->folder.text, CHECKPOINT_PATH_BYTES, "%s", folder);
    if (length < 0 || length >= CHECKPOINT_PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "%.100s...: path is too long", folder);
    TRY(read_record(checkpoint, reason));
    TRY(checkpoint->record.by_seed ? open_seed(checkpoint, reason)
                                   : open_files(checkpoint, folder, reason));
    *ret_checkpoint = checkpoint;
    checkpoint = NULL;
    return ERR_OK;
}

enum err checkpoint_open(const char *checkpoint_dir, struct checkpoint_name name,
                         struct checkpoint **ret_checkpoint, struct reason *reason)
{
    struct checkpoint_path folder;
    TRY(checkpoint_folder(checkpoint_dir, name, &folder));
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(checkpoint_open_folder(folder.text, &checkpoint, reason));
    struct checkpoint_name found = checkpoint->record.name;
    if (found.generation != name.generation || found.version != name.version)
        return reason_set(reason, ERR_CORRUPT, "%s: cut.json is of the cut g%" PRIu64 "-v%" PRIu64,
                          folder.text, found.generation, found.version);
    *ret_checkpoint = checkpoint;
    checkpoint = NULL;
    return ERR_OK;
}

void checkpoint_free(struct checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (uint32_t i = 0; checkpoint->maps != NULL && i < checkpoint->record.server_count; i++)
        file_map_release(&checkpoint->maps[i]);
    free(checkpoint->paths);
    free(checkpoint->maps);
    free(checkpoint->views);
    free(checkpoint->places);
    checkpoint_seed_free(checkpoint->seed);
    free(checkpoint->spec);
    free(checkpoint);
}

const struct checkpoint_record *checkpoint_about(const struct checkpoint *checkpoint)
{
    return &checkpoint->record;
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->folder.text;
}

struct checkpoint_arrays checkpoint_arrays(const struct checkpoint *checkpoint)
{
    return checkpoint->arrays;
}

bool checkpoint_is_by_seed(const struct checkpoint *checkpoint)
{
    return checkpoint->seed != NULL;
}

/* ---- chunks ---- */

static uint32_t weights_of(const struct checkpoint *checkpoint, const struct place *place)
{
    return checkpoint->seed != NULL
               ? checkpoint_seed_weights(checkpoint->seed, place->chunk)
               : checkpoint_view_entry(&checkpoint->views[place->file], place->entry).n;
}

enum err checkpoint_fits(const struct checkpoint *checkpoint, const struct model *model,
                         uint32_t states, struct reason *reason)
{
    const char *folder = checkpoint->folder.text;
    if (checkpoint->arrays.states != states)
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: has %" PRIu32
                          " values of optimizer state a weight, the run %" PRIu32,
                          folder, checkpoint->arrays.states, states);
    for (uint32_t c = 0; c < model->chunks_count; c++) {
        if (c >= checkpoint->count)
            return reason_set(reason, ERR_CORRUPT, "%s: chunk %" PRIu32 " is missing", folder, c);
        uint32_t n = weights_of(checkpoint, &checkpoint->places[c]);
        if (n != model->chunks[c].weights)
            return reason_set(reason, ERR_SPEC_DIFFERS,
                              "%s: chunk %" PRIu32 " has %" PRIu32 " weights, the model's %" PRIu32,
                              folder, c, n, model->chunks[c].weights);
    }
    if (checkpoint->count != model->chunks_count)
        return reason_set(reason, ERR_SPEC_DIFFERS,
                          "%s: has %" PRIu32 " chunks, the model %" PRIu32, folder,
                          checkpoint->count, model->chunks_count);
    return ERR_OK;
}

static enum err read_seed(const struct checkpoint *checkpoint, uint32_t chunk,
                          struct checkpoint_chunk *ret_chunk, struct reason *reason)
{
    struct checkpoint_chunk made = checkpoint_seed_read(checkpoint->seed, chunk);
    if (made.values == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", checkpoint->folder.text);
    *ret_chunk = made;
    return ERR_OK;
}

static const struct place *find_place(const struct checkpoint *checkpoint, uint32_t chunk)
{
    struct place key = {.chunk = chunk};
    return bsearch(&key, checkpoint->places, checkpoint->count, sizeof *checkpoint->places,
                   by_chunk);
}

static struct slice block_of(const struct checkpoint *checkpoint, const struct place *place,
                             struct checkpoint_entry *ret_entry)
{
    const struct checkpoint_view *view = &checkpoint->views[place->file];
    *ret_entry = checkpoint_view_entry(view, place->entry);
    return (struct slice){view->bytes.data + ret_entry->offset,
                          checkpoint_block_bytes(view->arrays, ret_entry->n)};
}

/* Asks for the block that is read some time after this one: a disk is then read as fast as it can.
 */
static void read_ahead(const struct checkpoint *checkpoint, const struct place *place)
{
    const size_t blocks = 16; /* of at most 1.5 MiB with AdamW */
    struct checkpoint_entry entry;
    if ((size_t)(checkpoint->places + checkpoint->count - place) <= blocks)
        return;
    file_read_ahead(block_of(checkpoint, place + blocks, &entry));
}

/* Whatever a block's digest is. */
static enum err borrow(const struct checkpoint *checkpoint, uint32_t chunk,
                       struct checkpoint_chunk *ret_chunk, struct reason *reason)
{
    const struct place *place = find_place(checkpoint, chunk);
    struct checkpoint_entry entry;
    if (place == NULL)
        return reason_set(reason, ERR_NOT_FOUND, "%s: no chunk %" PRIu32, checkpoint->folder.text,
                          chunk);
    if (checkpoint->seed != NULL)
        return read_seed(checkpoint, chunk, ret_chunk, reason);
    read_ahead(checkpoint, place);
    struct slice block = block_of(checkpoint, place, &entry);
    const struct checkpoint_view *view = &checkpoint->views[place->file];
    TRY(load(view->bytes, (struct file_range){entry.offset, block.bytes}, view->path, reason));
    const void *values = block.data; /* aligned: the map is, and offsets are multiples of 4 */
    *ret_chunk = (struct checkpoint_chunk){entry.n, values};
    return ERR_OK;
}

enum err checkpoint_read(const struct checkpoint *checkpoint, uint32_t chunk,
                         struct checkpoint_chunk *ret_chunk, struct reason *reason)
{
    TRY(borrow(checkpoint, chunk, ret_chunk, reason));
    if (checkpoint->seed != NULL)
        return ERR_OK;
    struct checkpoint_entry entry;
    struct digest digest;
    const struct place *place = find_place(checkpoint, chunk);
    const char *path = checkpoint->views[place->file].path;
    if (digest_sha256(block_of(checkpoint, place, &entry), &digest) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    if (memcmp(digest.bytes, entry.digest.bytes, sizeof digest.bytes) != 0)
        return reason_set(reason, ERR_CORRUPT,
                          "%s: offset %" PRIu64 ": chunk %" PRIu32 " does not match its digest",
                          path, entry.offset, chunk);
    return ERR_OK;
}

enum err checkpoint_read_parameter(const struct checkpoint *checkpoint, const struct model *model,
                                   uint32_t parameter, uint32_t array, float *ret_values,
                                   struct reason *reason)
{
    check(parameter < model->parameters_count && array <= checkpoint->arrays.states);
    const struct model_parameter *p = &model->parameters[parameter];
    for (uint32_t c = p->chunk_first; c < p->chunk_first + p->chunks_count; c++) {
        struct checkpoint_chunk chunk;
        TRY(checkpoint_read(checkpoint, c, &chunk, reason));
        model_scatter(model, c, ret_values, chunk.values + (size_t)array * chunk.n);
    }
    return ERR_OK;
}

enum err checkpoint_verify_part(const struct checkpoint *checkpoint, uint64_t bytes, uint32_t *next,
                                bool *ret_done, struct reason *reason)
{
    uint32_t count = checkpoint->seed == NULL ? checkpoint->count : 0;
    if (checkpoint->count == 0)
        return reason_set(reason, ERR_CORRUPT, "%s: holds no chunk", checkpoint_path(checkpoint));
    for (uint64_t read = 0; *next < count && read < bytes; ++*next) {
        struct checkpoint_chunk chunk;
        TRY(checkpoint_read(checkpoint, checkpoint->places[*next].chunk, &chunk, reason));
        read += checkpoint_block_bytes(checkpoint->arrays, chunk.n);
    }
    *ret_done = *next >= count;
    return ERR_OK;
}

enum err checkpoint_verify(const struct checkpoint *checkpoint, struct reason *reason)
{
    /* Values that a seed makes have no digest to compare. */
    for (uint32_t i = 0; checkpoint->seed == NULL && i < checkpoint->count; i++) {
        struct checkpoint_chunk chunk;
        TRY(checkpoint_read(checkpoint, checkpoint->places[i].chunk, &chunk, reason));
    }
    return ERR_OK;
}

enum err checkpoint_judge(const char *checkpoint_dir, struct checkpoint_name name,
                          struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(checkpoint_open(checkpoint_dir, name, &checkpoint, reason));
    if (checkpoint->count == 0)
        return reason_set(reason, ERR_CORRUPT, "%s: holds no chunk", checkpoint_path(checkpoint));
    return checkpoint_verify(checkpoint, reason);
}

struct digest_context {
    const struct checkpoint *checkpoint;
    struct reason *reason;
};

static enum err borrow_for_digest(void *context, uint32_t chunk, uint32_t array,
                                  const float **ret_values)
{
    const struct digest_context *c = context;
    struct checkpoint_chunk found;
    TRY(borrow(c->checkpoint, chunk, &found, c->reason));
    *ret_values = found.values + (size_t)array * found.n;
    return ERR_OK;
}

static enum err read_for_digest(void *context, uint32_t chunk, uint32_t array, float *ret_values)
{
    const struct digest_context *c = context;
    struct checkpoint_chunk found;
    TRY(borrow(c->checkpoint, chunk, &found, c->reason));
    memcpy(ret_values, found.values + (size_t)array * found.n, found.n * sizeof *ret_values);
    return ERR_OK;
}

enum err checkpoint_digest(const struct checkpoint *checkpoint, const struct model *model,
                           struct digest *ret_digest, struct reason *reason)
{
    struct digest_context context = {checkpoint, reason};
    struct state_digest_source source = {.context = &context,
                                         .read = read_for_digest,
                                         .borrow = borrow_for_digest,
                                         .arrays = 1 + checkpoint->arrays.states};
    enum err err = state_digest(model, &source, ret_digest);
    return err == ERR_NOMEM ? reason_set(reason, err, "no memory for the digest") : err;
}
