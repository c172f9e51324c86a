/* Writes a server's file block after block, and collects the rows of its table meanwhile. */
#include "common/files/checkpoint_format.h"

struct checkpoint_writer {
    struct file_writer file;
    struct checkpoint_arrays arrays;
    struct checkpoint_threads threads;
    uint32_t count, capacity;
    struct checkpoint_entry *entries;
    uint8_t head[CHECKPOINT_HEAD_BYTES];
};

void checkpoint_put_head(uint8_t head[static CHECKPOINT_HEAD_BYTES], struct checkpoint_name name,
                         uint32_t server, struct checkpoint_arrays arrays)
{
    memset(head, 0, CHECKPOINT_HEAD_BYTES);
    memcpy(head, CHECKPOINT_MAGIC, 8);
    checkpoint_put32(head + 8, CHECKPOINT_FORMAT);
    checkpoint_put32(head + 12, arrays.states);
    checkpoint_put64(head + 16, name.generation);
    checkpoint_put64(head + 24, name.version);
    checkpoint_put32(head + 32, server);
    checkpoint_put32(head + 36, arrays.versions);
    checkpoint_put32(head + 40, arrays.extra_bytes);
}

enum err checkpoint_writer_new(const struct file_ops *ops, const char *checkpoint_dir,
                               struct checkpoint_name name, uint32_t server,
                               struct checkpoint_arrays arrays,
                               struct checkpoint_writer **ret_writer, struct reason *reason)
{
    check(arrays.states <= CHECKPOINT_STATES_MAX && arrays.versions <= CHECKPOINT_VERSIONS_MAX);
    check(arrays.extra_bytes <= CHECKPOINT_EXTRA_BYTES_MAX && arrays.extra_bytes % 4 == 0);
    check(server < CHECKPOINT_SERVERS_MAX);
    struct checkpoint_path folder, path;
    TRY(checkpoint_folder(checkpoint_dir, name, &folder));
    TRY(checkpoint_file(checkpoint_dir, name, server, &path));
    TRY(file_make_dirs(folder.text, 0755, reason));
    /* The folder's own name must survive a crash as well. */
    TRY(file_sync_dir(ops, checkpoint_dir, reason));
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *writer =
        calloc(1, sizeof *writer);
    if (writer == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", path.text);
    writer->arrays = arrays;
    checkpoint_put_head(writer->head, name, server, arrays);
    TRY(file_writer_open(ops, path.text, 0644, &writer->file, reason));
    file_writer_direct(&writer->file);
    struct slice head = {writer->head, sizeof writer->head};
    TRY(file_writer_write(&writer->file, head, reason));
    *ret_writer = writer;
    writer = NULL;
    return ERR_OK;
}

void checkpoint_writer_threads(struct checkpoint_writer *writer, struct checkpoint_threads threads)
{
    writer->threads = threads;
}

void checkpoint_writer_free(struct checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    file_writer_release(&writer->file);
    free(writer->entries);
    free(writer);
}

static enum err reserve_entry(struct checkpoint_writer *writer)
{
    if (writer->count < writer->capacity)
        return ERR_OK;
    uint32_t capacity = writer->capacity == 0 ? 64 : writer->capacity * 2;
    struct checkpoint_entry *entries =
        reallocarray(writer->entries, capacity, sizeof *writer->entries);
    if (entries == NULL)
        return ERR_NOMEM;
    writer->entries = entries;
    writer->capacity = capacity;
    return ERR_OK;
}

/* A block on its way: by two threads at once, which share nothing of it but its bytes. */
struct block_work {
    struct checkpoint_writer *writer;
    struct slice weights, rest;
    struct digest digest;
    struct reason reason;
    enum err digested, written;
};

/* A thread that waits behind another one is moved at once to a core that falls idle, but only at a
 * later tick of the scheduler's clock to one that a thread of THREAD_SHARE_IDLE has. That made steps
 * beside a cut longer by 20 ms now and then. So this thread lets its core fall idle often. The system
 * adds some 50 us to each rest. */
static void digest_with_rests(struct digest_stream *stream, struct slice bytes)
{
    const size_t run_bytes_max = 128 << 10; /* 0.1 ms */
    const uint64_t rest_ns = 50000;
    while (bytes.bytes > 0) {
        size_t run = bytes.bytes < run_bytes_max ? bytes.bytes : run_bytes_max;
        digest_stream_add(stream, (struct slice){bytes.data, run});
        bytes = (struct slice){bytes.data + run, bytes.bytes - run};
        thread_rest(rest_ns);
    }
}

static void digest_block(void *argument)
{
    struct block_work *work = argument;
    scoped(digest_stream_release) struct digest_stream stream = {0};
    work->digested = digest_stream_init(&stream);
    if (work->digested != ERR_OK)
        return;
    void (*add)(struct digest_stream *, struct slice) =
        work->writer->threads.rests ? digest_with_rests : digest_stream_add;
    add(&stream, work->weights);
    add(&stream, work->rest);
    work->digest = digest_stream_finish(&stream);
}

static void write_bytes(void *argument)
{
    struct block_work *work = argument;
    struct file_writer *file = &work->writer->file;
    work->written = file_writer_write(file, work->weights, &work->reason);
    if (work->written == ERR_OK && work->rest.bytes > 0)
        work->written = file_writer_write(file, work->rest, &work->reason);
}

static enum err write_block(struct checkpoint_writer *writer, struct slice weights,
                            struct slice rest, struct digest *ret_digest, struct reason *reason)
{
    struct checkpoint_threads threads = writer->threads;
    struct block_work work = {.writer = writer, .weights = weights, .rest = rest};
    if (threads.digests != NULL)
        side_thread_begin(threads.digests, digest_block, &work);
    if (threads.writes != NULL)
        side_thread_begin(threads.writes, write_bytes, &work);
    else
        write_bytes(&work);
    if (threads.writes != NULL)
        side_thread_end(threads.writes);
    if (threads.digests != NULL)
        side_thread_end(threads.digests);
    else
        digest_block(&work);
    if (work.written != ERR_OK)
        return reason_set(reason, work.written, "%s", work.reason.text);
    if (work.digested != ERR_OK)
        return reason_set(reason, work.digested, "no memory to write %s", writer->file.path);
    *ret_digest = work.digest;
    return ERR_OK;
}

enum err checkpoint_writer_add(struct checkpoint_writer *writer, uint32_t chunk, uint32_t n,
                               const float *weights, const void *rest, struct reason *reason)
{
    check(writer->count < CHECKPOINT_CHUNKS_MAX && n > 0 && n <= MODEL_CHUNK_WEIGHTS_MAX);
    if (reserve_entry(writer) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", writer->file.path);
    size_t first = n * sizeof *weights;
    struct slice slices[] = {{(const uint8_t *)weights, first},
                             {rest, checkpoint_block_bytes(writer->arrays, n) - first}};
    struct checkpoint_entry *entry = &writer->entries[writer->count];
    *entry = (struct checkpoint_entry){.chunk = chunk, .n = n, .offset = writer->file.bytes};
    TRY(write_block(writer, slices[0], slices[1], &entry->digest, reason));
    writer->count++;
    return ERR_OK;
}

static int by_chunk(const void *a, const void *b)
{
    const struct checkpoint_entry *left = a, *right = b;
    return (left->chunk > right->chunk) - (left->chunk < right->chunk);
}

/* The table's bytes, in `out`, which is empty. */
static enum err print_table(struct checkpoint_writer *writer, struct buf *out)
{
    if (writer->count > 0)
        qsort(writer->entries, writer->count, sizeof *writer->entries, by_chunk);
    for (uint32_t i = 0; i < writer->count; i++) {
        const struct checkpoint_entry *entry = &writer->entries[i];
        check(i == 0 || writer->entries[i - 1].chunk < entry->chunk);
        uint8_t bytes[CHECKPOINT_ENTRY_BYTES];
        checkpoint_put32(bytes, entry->chunk);
        checkpoint_put32(bytes + 4, entry->n);
        checkpoint_put64(bytes + 8, entry->offset);
        memcpy(bytes + 16, entry->digest.bytes, 32);
        TRY(buf_append(out, bytes, sizeof bytes));
    }
    return ERR_OK;
}

static enum err manifest_of(const uint8_t head[static CHECKPOINT_HEAD_BYTES], struct slice table,
                            struct digest *ret_manifest)
{
    scoped(digest_stream_release) struct digest_stream stream = {0};
    TRY(digest_stream_init(&stream));
    digest_stream_add(&stream, (struct slice){head, CHECKPOINT_HEAD_BYTES});
    digest_stream_add(&stream, table);
    *ret_manifest = digest_stream_finish(&stream);
    return ERR_OK;
}

enum err checkpoint_writer_finish(struct checkpoint_writer *writer, struct digest *ret_manifest,
                                  struct reason *reason)
{
    scoped(buf_release) struct buf table = {0};
    struct digest manifest;
    if (print_table(writer, &table) != ERR_OK ||
        manifest_of(writer->head, buf_slice(&table), &manifest) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", writer->file.path);
    uint8_t tail[CHECKPOINT_TAIL_BYTES];
    checkpoint_put64(tail, writer->file.bytes);
    checkpoint_put64(tail + 8, writer->count);
    memcpy(tail + 16, manifest.bytes, 32);
    checkpoint_put64(tail + 48, writer->file.bytes + table.bytes + sizeof tail);
    memcpy(tail + 56, CHECKPOINT_END, 8);
    TRY(file_writer_write(&writer->file, buf_slice(&table), reason));
    TRY(file_writer_write(&writer->file, (struct slice){tail, sizeof tail}, reason));
    TRY(file_writer_commit(&writer->file, reason));
    *ret_manifest = manifest;
    return ERR_OK;
}
