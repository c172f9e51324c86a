/* A server's file of a cut, or its cut.json, by the first byte. Digests are put right first,
 * because no mutation would get past them; whatever is accepted then must lie within its bytes. */
#include "tests/fuzz/fuzz.h"

#include "common/files/checkpoint_format.h"

static const struct checkpoint_name cut = {1, 2};

/* Length, end and digest as a writer would have made them; false: there is no place for them. */
static bool put_right(struct buf *file)
{
    if (file->bytes < CHECKPOINT_HEAD_BYTES + CHECKPOINT_TAIL_BYTES)
        return false;
    uint8_t *tail = file->data + file->bytes - CHECKPOINT_TAIL_BYTES;
    uint64_t table = checkpoint_get64(tail), end = file->bytes - CHECKPOINT_TAIL_BYTES;
    if (table > end)
        return false;
    scoped(digest_stream_release) struct digest_stream stream = {0};
    check(digest_stream_init(&stream) == ERR_OK);
    digest_stream_add(&stream, (struct slice){file->data, CHECKPOINT_HEAD_BYTES});
    digest_stream_add(&stream, (struct slice){file->data + table, end - table});
    struct digest digest = digest_stream_finish(&stream);
    checkpoint_put64(tail + 8, (end - table) / CHECKPOINT_ENTRY_BYTES);
    memcpy(tail + 16, digest.bytes, 32);
    checkpoint_put64(tail + 48, file->bytes);
    memcpy(tail + 56, CHECKPOINT_END, 8);
    return true;
}

static void fuzz_file(struct slice bytes)
{
    scoped(buf_release) struct buf file = {0};
    check(buf_append(&file, bytes.data, bytes.bytes) == ERR_OK);
    if (!put_right(&file))
        return;
    struct checkpoint_view view;
    struct reason reason;
    if (checkpoint_view_init(buf_slice(&file), "file", cut, 0, &view, &reason) != ERR_OK)
        return;
    unsigned sum = 0;
    for (uint32_t i = 0; i < view.count; i++) {
        struct checkpoint_entry entry = checkpoint_view_entry(&view, i);
        uint64_t block = checkpoint_block_bytes(view.arrays, entry.n);
        for (uint64_t k = 0; k < block; k++)
            sum += file.data[entry.offset + k];
    }
    check(sum < UINT32_MAX);
}

static void fuzz_record(struct slice bytes)
{
    if (bytes.bytes == 0)
        return;
    scoped(buf_release) struct buf text = {0};
    struct digest digest;
    check(digest_sha256(bytes, &digest) == ERR_OK);
    /* The object without its closing brace, then its digest. */
    check(buf_append(&text, bytes.data, bytes.bytes - 1) == ERR_OK);
    check(buf_printf(&text, ",\"sha256\":\"%s\"}\n", digest_to_hex(&digest).text) == ERR_OK);
    struct checkpoint_record record;
    struct reason reason;
    char *spec = NULL;
    if (checkpoint_record_parse(buf_slice(&text), "cut.json", &record, &spec, &reason) == ERR_OK) {
        scoped(buf_release) struct buf again = {0};
        check(record.server_count > 0 && record.server_count <= CHECKPOINT_SERVERS_MAX);
        check(checkpoint_record_print(&record, &again) == ERR_OK);
        char *spec_again = NULL;
        check(checkpoint_record_parse(buf_slice(&again), "again", &record, &spec_again, &reason) ==
              ERR_OK);
        free(spec_again);
    }
    free(spec);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    struct slice rest = {data + 1, bytes - 1};
    if (data[0] % 2 == 0)
        fuzz_file(rest);
    else
        fuzz_record(rest);
    return 0;
}
