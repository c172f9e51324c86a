/* A journal's file, after one byte: even, the head and the hashes of records are made right first,
 * or no input would get beyond them; odd, it is read as it is. Reading ends, without an error or
 * with CORRUPT, and every gradient lies inside the file. */
#include "tests/fuzz/fuzz.h"

#include "common/digest.h"
#include "common/scoped.h"
#include "server/disk/journal.h"

#include <stdlib.h>
#include <string.h>

/* As journal.h says. */
enum {
    HEAD_BYTES = 64,
    HEAD_HASH = 56,
    RECORD_HEAD_BYTES = 32,
    RECORD_SIZE = 16,
    RECORD_HASH = 24
};

static const struct journal_name name = {.generation = 3, .boot = 9, .server = 1};

static void put32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static void repair_head(uint8_t *head)
{
    memset(head, 0, HEAD_BYTES);
    memcpy(head, "roostjnl", 8);
    put32(head + 8, 1);
    put32(head + 12, name.server);
    put64(head + 16, name.generation);
    put64(head + 24, name.boot);
    put64(head + HEAD_HASH, digest_fast64((struct slice){head, HEAD_HASH}));
}

static void repair_records(uint8_t *file, size_t bytes)
{
    uint32_t size;
    uint64_t number = 0;
    for (size_t at = HEAD_BYTES; bytes - at >= RECORD_HEAD_BYTES; at += RECORD_HEAD_BYTES + size) {
        uint8_t *record = file + at;
        memcpy(&size, record + RECORD_SIZE, sizeof size);
        if (size > bytes - at - RECORD_HEAD_BYTES)
            return;
        memcpy(record, "jrecords", 8);
        put64(record + 8, number++);
        put64(record + RECORD_HASH, 0);
        put64(record + RECORD_HASH,
              digest_fast64((struct slice){record, RECORD_HEAD_BYTES + size}));
    }
}

static enum err take(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)reason;
    const struct slice *file = context;
    const uint8_t *gradient = (const uint8_t *)entry->gradient;
    check(gradient >= file->data + HEAD_BYTES);
    check((size_t)(gradient - file->data) + entry->n * sizeof(float) <= file->bytes);
    check((size_t)(gradient - file->data) % sizeof(float) == 0);
    return ERR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes <= 1 + HEAD_BYTES)
        return -1;
    scoped(free_scoped) uint8_t *copy = malloc(bytes - 1); /* aligned, as a mapped file is */
    check(copy != NULL);
    memcpy(copy, data + 1, bytes - 1);
    if (data[0] % 2 == 0) {
        repair_head(copy);
        repair_records(copy, bytes - 1);
    }
    struct slice file = {copy, bytes - 1};
    struct journal_reader reader = {&file, take};
    struct reason reason;
    uint64_t torn = 0;
    enum err err = journal_read_file(file, "journal", name, &reader, &torn, &reason);
    check(err == ERR_OK || err == ERR_CORRUPT);
    check(torn <= file.bytes);
    return 0;
}
