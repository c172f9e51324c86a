/* The journal: what is committed is read again, whatever crash or rotten bit came between. */
#include "tests/unit/dying_disk.h"
#include "tests/unit/folder.h"

#include "common/rand.h"
#include "server/disk/journal.h"

enum { N = 37, CRASH_TICKETS = 12, FLIPS = 10000, HEAD_BYTES = 64 };

static const struct journal_name first = {.generation = 3, .boot = 9, .server = 1};

static float value_of(uint64_t ticket, uint32_t i)
{
    return (float)(ticket * 100 + i);
}

static struct journal_entry entry_of(uint64_t ticket, float *values)
{
    for (uint32_t i = 0; i < N; i++)
        values[i] = value_of(ticket, i);
    return (struct journal_entry){.chunk = (uint32_t)ticket % 5,
                                  .n = N,
                                  .ticket = ticket,
                                  .version = ticket / 2,
                                  .scale = 0.5f,
                                  .gradient = values};
}

static void put(struct journal *journal, uint64_t ticket)
{
    float values[N];
    struct journal_entry entry = entry_of(ticket, values);
    assert_int_equal(journal_put(journal, &entry), ERR_OK);
}

/* What was read: tickets 0, 1, 2 … each as it was written, or the test fails. */
static enum err take(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)reason;
    uint64_t *count = context;
    float values[N];
    struct journal_entry expected = entry_of((*count)++, values);
    assert_int_equal(entry->ticket, expected.ticket);
    assert_int_equal(entry->chunk, expected.chunk);
    assert_int_equal(entry->version, expected.version);
    assert_int_equal(entry->n, N);
    assert_true(entry->scale == 0.5f);
    assert_memory_equal(entry->gradient, values, sizeof values);
    return ERR_OK;
}

struct outcome {
    enum err err;
    uint64_t count, torn;
    struct reason reason;
};

static struct outcome read_folder(const char *folder)
{
    struct outcome outcome = {0};
    struct journal_reader reader = {&outcome.count, take};
    outcome.err = journal_read(&file_ops_real, folder, &reader, &outcome.torn, &outcome.reason);
    return outcome;
}

/* Tickets 0 … count - 1, three a record, a new segment after `rotate` of them. */
static enum err write_tickets(const struct file_ops *ops, const char *folder, uint64_t count,
                              uint64_t rotate, uint64_t *ret_committed)
{
    struct journal journal = {0};
    enum err err = journal_open(ops, folder, first, &journal, NULL);
    *ret_committed = 0;
    for (uint64_t ticket = 0; err == ERR_OK && ticket < count; ticket++) {
        if (ticket == rotate)
            err = journal_cut(&journal, 1, NULL);
        if (err != ERR_OK)
            break;
        put(&journal, ticket);
        if (ticket % 3 == 2 || ticket + 1 == count || ticket + 1 == rotate)
            err = journal_commit(&journal, NULL);
        if (err == ERR_OK && journal.count == 0)
            *ret_committed = ticket + 1;
    }
    journal_release(&journal);
    return err;
}

/* A journal of that many tickets in one file. */
static const char *journal_of(void **state, uint64_t tickets)
{
    uint64_t committed;
    const char *path = folder_path(state, "journal");
    assert_int_equal(write_tickets(&file_ops_real, path, tickets, UINT64_MAX, &committed), ERR_OK);
    assert_int_equal(committed, tickets);
    return path;
}

/* The bytes of that file. */
static struct buf bytes_of(void **state, uint64_t tickets)
{
    char file[512];
    struct buf bytes = {0};
    snprintf(file, sizeof file,
             "%s/g00000000000000000003-s00001-b00000000000000000009-000000.journal",
             journal_of(state, tickets));
    assert_int_equal(file_read(file, 1 << 20, &bytes, NULL), ERR_OK);
    return bytes;
}

static struct outcome read_bytes(struct slice bytes)
{
    struct outcome outcome = {0};
    struct journal_reader reader = {&outcome.count, take};
    outcome.err = journal_read_file(bytes, "f", first, &reader, &outcome.torn, &outcome.reason);
    return outcome;
}

TEST_IN_FOLDER(what_was_committed_is_read_in_its_order)
{
    uint64_t committed;
    assert_int_equal(read_folder(folder_path(state, "none")).count, 0);
    const char *path = folder_path(state, "journal");
    assert_int_equal(write_tickets(&file_ops_real, path, 20, 7, &committed), ERR_OK);
    assert_int_equal(committed, 20);
    struct outcome outcome = read_folder(path);
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 20);
    assert_int_equal(outcome.torn, 0);
}

/* The millionth has a longer number, which is before the others' in a list of names. */
TEST_IN_FOLDER(segments_are_read_in_the_order_of_their_numbers)
{
    struct journal_name name = first;
    struct journal journal;
    const char *path = folder_path(state, "journal");
    name.segment = 999998;
    assert_int_equal(journal_open(&file_ops_real, path, name, &journal, NULL), ERR_OK);
    for (uint64_t ticket = 0; ticket < 4; ticket++) {
        put(&journal, ticket);
        assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
        assert_int_equal(journal_cut(&journal, ticket + 1, NULL), ERR_OK);
    }
    name = journal.name;
    assert_int_equal(name.segment, 1000002);
    journal_release(&journal);
    struct outcome outcome = read_folder(path);
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 4);
    assert_int_equal(journal_prune(&file_ops_real, path, name, NULL), ERR_OK);
    assert_int_equal(read_folder(path).count, 0);
}

/* A sector of theirs that the disk cannot read is no damage of this server's. */
TEST_IN_FOLDER(others_journals_of_this_generation_are_left_alone)
{
    const char *path = folder_path(state, "journal");
    struct journal_name other = first;
    struct journal journals[2];
    other.server = first.server + 1;
    assert_int_equal(journal_open(&file_ops_real, path, first, &journals[0], NULL), ERR_OK);
    assert_int_equal(journal_open(&file_ops_real, path, other, &journals[1], NULL), ERR_OK);
    for (unsigned i = 0; i < 2; i++) {
        put(&journals[i], i);
        assert_int_equal(journal_commit(&journals[i], NULL), ERR_OK);
    }
    for (uint64_t generation = first.generation; generation <= first.generation + 1; generation++) {
        struct outcome outcome = {0};
        uint64_t torn;
        const struct journal_reader reader = {&outcome.count, take, generation, first.server};
        assert_int_equal(journal_read(&file_ops_real, path, &reader, &torn, NULL), ERR_OK);
        assert_int_equal(outcome.count, generation == first.generation ? 1 : 2);
    }
    journal_release(&journals[0]);
    journal_release(&journals[1]);
}

TEST(names_are_read_back_and_nothing_else_is)
{
    struct journal_name name;
    assert_true(journal_parse_name(
        "g00000000000000000003-s00001-b00000000000000000009-000007.journal", &name));
    assert_true(name.generation == 3 && name.server == 1 && name.boot == 9 && name.segment == 7);
    assert_true(journal_parse_name(
        "g00000000000000000003-s00001-b00000000000000000009-4294967295.journal", &name));
    assert_true(name.segment == UINT32_MAX);
    assert_false(journal_parse_name(
        "g00000000000000000003-s00001-b00000000000000000009-0000007.journal", &name));
    assert_false(journal_parse_name("g3-s1-b9-7.journal", &name));
    assert_false(journal_parse_name(
        "g00000000000000000003-s00001-b00000000000000000009-000007.journal.tmp", &name));
    assert_false(journal_parse_name("", &name));
}

TEST_IN_FOLDER(a_file_that_ends_anywhere_gives_its_whole_records)
{
    scoped(buf_release) struct buf bytes = bytes_of(state, 6);
    for (size_t length = 0; length <= bytes.bytes; length++) {
        struct outcome outcome = read_bytes((struct slice){bytes.data, length});
        assert_int_equal(outcome.err, ERR_OK);
        assert_true(outcome.count == 0 || outcome.count == 3 || outcome.count == 6);
        assert_int_equal(outcome.count == 6, length == bytes.bytes);
        bool boundary = outcome.torn == 0;
        assert_true(boundary || strstr(outcome.reason.text, "cut off") != NULL);
    }
}

/* Every crash point: each open, write, fsync, truncate being the last, in each way to die. */
TEST_IN_FOLDER(no_crash_loses_what_was_committed)
{
    uint32_t points = 0;
    for (uint32_t death = 0; death < DEATHS; death++) {
        bool finished = false;
        for (int die_at = 0; !finished; die_at++, points++) {
            char name[64];
            struct disk disk;
            uint64_t committed;
            snprintf(name, sizeof name, "crash-%u-%d", death, die_at);
            const char *path = folder_path(state, name);
            disk_init(&disk, die_at);
            finished = write_tickets(&disk.ops, path, CRASH_TICKETS, 7, &committed) == ERR_OK;
            disk_lose(&disk, (enum death)death);
            struct outcome outcome = read_folder(path);
            if (outcome.err != ERR_OK)
                fail_msg("death %u after %d operations: %s", death, die_at, outcome.reason.text);
            assert_true(outcome.count >= committed);
        }
    }
    print_message("%u crash points of the journal, 0 bad restarts\n", points);
    assert_true(points > 4 * 15);
}

static void commit_without_room(struct disk *disk, struct journal *journal)
{
    disk->die_at = disk->count;
    assert_true(journal_commit(journal, NULL) != ERR_OK);
    disk->die_at = 1000;
}

TEST_IN_FOLDER(a_full_disk_can_be_tried_again)
{
    struct journal journal = {0};
    struct disk disk;
    const char *path = folder_path(state, "journal");
    disk_init(&disk, 1000);
    assert_int_equal(journal_open(&disk.ops, path, first, &journal, NULL), ERR_OK);
    put(&journal, 0);
    assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
    put(&journal, 1);
    commit_without_room(&disk, &journal);
    assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
    journal_release(&journal);
    struct outcome outcome = read_folder(path);
    assert_int_equal(outcome.count, 2);
    assert_int_equal(outcome.torn, 0);
}

/* A writer that was killed between write and sync leaves what the machine may still lose. */
TEST_IN_FOLDER(what_is_read_is_synced_before)
{
    uint64_t torn;
    struct disk disk;
    const char *path = journal_of(state, 6);
    for (int die_at = 0; die_at <= 2; die_at++) {
        struct outcome outcome = {0};
        struct journal_reader reader = {&outcome.count, take};
        disk_init(&disk, die_at);
        outcome.err = journal_read(&disk.ops, path, &reader, &torn, NULL);
        assert_int_equal(outcome.err, die_at == 0 ? ERR_IO : die_at == 1 ? ERR_NOT_SYNCED : ERR_OK);
        assert_int_equal(outcome.count, die_at < 2 ? 0 : 6);
    }
}

static off_t lost_bytes; /* at the end of each file: only the page cache has them */

void __real_file_forget_cached(const char *path);
void __wrap_file_forget_cached(const char *path);

void __wrap_file_forget_cached(const char *path)
{
    static const uint8_t zeros[64];
    __real_file_forget_cached(path);
    if (lost_bytes == 0)
        return;
    int fd = open(path, O_RDWR);
    off_t end = lseek(fd, 0, SEEK_END);
    assert_true(end > lost_bytes && lost_bytes <= (off_t)sizeof zeros);
    assert_int_equal(pwrite(fd, zeros, (size_t)lost_bytes, end - lost_bytes), lost_bytes);
    close(fd);
}

/* Its sync failed, a later one does not, and the machine has not gone down since. */
TEST_IN_FOLDER(p12_a_record_that_the_page_cache_alone_has_is_not_read)
{
    const char *path = journal_of(state, 6);
    lost_bytes = 64;
    struct outcome outcome = read_folder(path);
    lost_bytes = 0;
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 3); /* a record's */
    assert_true(outcome.torn > 0);
}

static int nothing_there(const struct file_ops *ops, const char *path, int flags, unsigned mode)
{
    (void)ops, (void)path, (void)flags, (void)mode;
    errno = ENOENT;
    return -1;
}

TEST_IN_FOLDER(a_file_that_was_just_pruned_is_passed_over)
{
    uint64_t torn;
    struct outcome outcome = {0};
    struct journal_reader reader = {&outcome.count, take};
    struct file_ops pruned = file_ops_real;
    const char *path = journal_of(state, 6);
    pruned.open = nothing_there;
    assert_int_equal(journal_read(&pruned, path, &reader, &torn, NULL), ERR_OK);
    assert_int_equal(outcome.count, 0);
}

/* What one that failed had, and what is added to it, are there once. */
TEST_IN_FOLDER(a_record_that_found_no_room_may_grow)
{
    struct journal journal = {0};
    struct disk disk;
    const char *path = folder_path(state, "journal");
    disk_init(&disk, 1000);
    assert_int_equal(journal_open(&disk.ops, path, first, &journal, NULL), ERR_OK);
    put(&journal, 0);
    commit_without_room(&disk, &journal);
    put(&journal, 1);
    assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
    journal_release(&journal);
    struct outcome outcome = read_folder(path);
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 2);
}

/* A damaged record that was not the last is said with its place; of a damaged last one nothing is
 * used. Either way no flipped bit reaches a chunk: take() compares all. */
TEST_IN_FOLDER(every_flipped_bit_is_found)
{
    scoped(buf_release) struct buf bytes = bytes_of(state, 30);
    struct rand_state rand = {20261121};
    uint32_t corrupt = 0;
    for (uint32_t i = 0; i < FLIPS; i++) {
        uint64_t at = rand_below(&rand, bytes.bytes * 8);
        bytes.data[at / 8] ^= (uint8_t)(1 << at % 8);
        struct outcome outcome = read_bytes(buf_slice(&bytes));
        bytes.data[at / 8] ^= (uint8_t)(1 << at % 8);
        if (outcome.err == ERR_OK) {
            assert_true(outcome.torn > 0); /* said */
            assert_int_equal(outcome.count, 27);
        } else {
            assert_int_equal(outcome.err, ERR_CORRUPT);
            corrupt++;
        }
        assert_true(outcome.reason.text[0] != 0);
    }
    print_message("seed 20261121: %d flipped bits, all found, %u of them by name\n", FLIPS,
                  corrupt);
    assert_true(corrupt > FLIPS * 8 / 10);
}

static uint32_t count_files(const char *path)
{
    scoped(file_names_release) struct file_names names = {0};
    assert_int_equal(file_list(path, &names, NULL), ERR_OK);
    return (uint32_t)names.count;
}

TEST_IN_FOLDER(a_recorded_cut_lets_older_files_go)
{
    const char *path = folder_path(state, "journal");
    static const struct journal_name names[] = {
        {.generation = 2, .boot = 20, .server = 0}, /* an older generation */
        {.generation = 3, .boot = 7, .server = 1},  /* an older boot */
        {.generation = 3, .boot = 5, .server = 0},  /* another server's */
        {.generation = 4, .boot = 9, .server = 1},  /* of what comes */
    };
    for (uint32_t i = 0; i < 3; i++) {
        scoped(journal_release) struct journal other = {0};
        assert_int_equal(journal_open(&file_ops_real, path, names[i], &other, NULL), ERR_OK);
    }
    struct journal journal = {0};
    scoped(journal_release) struct journal later = {0};
    assert_int_equal(journal_open(&file_ops_real, path, first, &journal, NULL), ERR_OK);
    assert_int_equal(journal_open(&file_ops_real, path, names[3], &later, NULL), ERR_OK);
    struct journal_name keep;
    assert_int_equal(journal_cut(&journal, 5, NULL), ERR_OK);
    assert_int_equal(journal_cut(&journal, 6, NULL), ERR_OK);
    assert_false(journal_needed(&journal, 4, &keep));
    assert_true(journal_needed(&journal, 6, &keep));
    assert_true(journal_needed(&journal, 5, &keep));
    journal_release(&journal);
    assert_int_equal(count_files(path), 7);
    assert_int_equal(journal_prune(&file_ops_real, path, keep, NULL), ERR_OK);
    assert_int_equal(count_files(path), 4);
    assert_int_equal(journal_prune(&file_ops_real, folder_path(state, "none"), keep, NULL), ERR_OK);
}

TEST_IN_FOLDER(p12_a_run_that_goes_back_behind_its_journal_drops_all_of_it)
{
    uint64_t committed;
    const char *path = folder_path(state, "journal");
    assert_int_equal(journal_remove(&file_ops_real, path, NULL), ERR_OK); /* no folder */
    assert_int_equal(write_tickets(&file_ops_real, path, 9, 5, &committed), ERR_OK);
    assert_int_equal(read_folder(path).count, 9);
    const char *other = folder_write(state, "journal/other", "", 0); /* somebody else's */
    assert_int_equal(journal_remove(&file_ops_real, path, NULL), ERR_OK);
    assert_int_equal(read_folder(path).count, 0);
    assert_int_equal(access(other, F_OK), 0);
}

static int not_removed(const struct file_ops *ops, const char *path)
{
    (void)ops, (void)path;
    errno = EIO;
    return -1;
}

TEST_IN_FOLDER(p12_a_journal_that_cannot_be_removed_is_an_error)
{
    uint64_t committed;
    struct file_ops ops = file_ops_real;
    struct reason reason;
    const char *path = folder_path(state, "journal");
    ops.unlink = not_removed;
    assert_int_equal(write_tickets(&file_ops_real, path, 9, 5, &committed), ERR_OK);
    assert_int_equal(journal_remove(&ops, path, &reason), ERR_IO);
    assert_non_null(strstr(reason.text, "cannot remove "));
    assert_int_equal(read_folder(path).count, 9);
}

TEST_IN_FOLDER(a_journal_that_has_taken_nothing_since_a_cut_has_no_records)
{
    bool has = true;
    uint64_t committed;
    const char *path = folder_path(state, "journal");
    assert_int_equal(journal_has_records(path, &has, NULL), ERR_OK);
    assert_false(has); /* no folder */
    struct journal_name keep = first;
    scoped(journal_release) struct journal journal = {0};
    assert_int_equal(write_tickets(&file_ops_real, path, 9, 5, &committed), ERR_OK);
    assert_int_equal(journal_has_records(path, &has, NULL), ERR_OK);
    assert_true(has);
    keep.boot++;
    assert_int_equal(journal_open(&file_ops_real, path, keep, &journal, NULL), ERR_OK);
    assert_int_equal(journal_prune(&file_ops_real, path, keep, NULL), ERR_OK);
    assert_int_equal(journal_has_records(path, &has, NULL), ERR_OK);
    assert_false(has); /* a head alone */
}

/* Its boots are counted anew: the file that it would begin is the one that it is to redo. */
TEST_IN_FOLDER(p3_a_start_that_lost_its_folder_writes_behind_what_is_there)
{
    const char *path = journal_of(state, 6);
    struct journal_name again = first;
    again.boot = 1; /* lower than before, or the same */
    for (uint64_t ticket = 6; ticket < 12; ticket += 3, again.boot = first.boot) {
        scoped(journal_release) struct journal journal = {0};
        assert_int_equal(journal_open(&file_ops_real, path, again, &journal, NULL), ERR_OK);
        assert_true(journal.name.boot > first.boot);
        for (uint64_t i = 0; i < 3; i++)
            put(&journal, ticket + i);
        assert_int_equal(journal_commit(&journal, NULL), ERR_OK);
    }
    struct outcome outcome = read_folder(path);
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 12);
}

/* It lost its memory, and with it the newest term: an older coordinator may be the first to find
 * it. */
TEST_IN_FOLDER(p7_a_generation_that_is_not_the_newest_gets_no_journal)
{
    struct journal journal;
    const char *path = journal_of(state, 6);
    struct journal_name older = first;
    older.generation--;
    assert_int_equal(journal_open(&file_ops_real, path, older, &journal, NULL), ERR_OLD_GENERATION);
    older.server++; /* another's folder is the same */
    assert_int_equal(journal_open(&file_ops_real, path, older, &journal, NULL), ERR_OK);
    journal_release(&journal);
}

/* Head and first record are synced together: a crash may spoil either, and nothing was durable. */
TEST_IN_FOLDER(p12_a_head_that_a_crash_spoilt_is_cut_off_with_its_only_record)
{
    for (uint64_t tickets = 3; tickets <= 6; tickets += 3) {
        scoped(buf_release) struct buf bytes = bytes_of(state, tickets);
        memset(bytes.data + 8, 0, 4);
        struct outcome outcome = read_bytes(buf_slice(&bytes));
        assert_int_equal(outcome.err, tickets == 3 ? ERR_OK : ERR_CORRUPT);
        assert_int_equal(outcome.torn, tickets == 3 ? bytes.bytes : 0);
        assert_int_equal(outcome.count, 0);
        assert_int_equal(file_remove_tree(folder_path(state, "journal"), NULL), ERR_OK);
    }
}

/* A whole record at another place than its own: blocks of a file that was there before. */
TEST_IN_FOLDER(records_out_of_their_order_are_cut_off)
{
    scoped(buf_release) struct buf bytes = bytes_of(state, 3);
    size_t record = bytes.bytes - HEAD_BYTES;
    assert_int_equal(buf_reserve(&bytes, record), ERR_OK);
    memcpy(bytes.data + bytes.bytes, bytes.data + HEAD_BYTES, record);
    bytes.bytes += record;
    struct outcome outcome = read_bytes(buf_slice(&bytes));
    assert_int_equal(outcome.err, ERR_OK);
    assert_int_equal(outcome.count, 3);
    assert_int_equal(outcome.torn, record);
}

/* Three tickets come, cut 1 is named again and recorded: they are still there. */
static void prune_after_three_tickets(struct journal *journal, const char *path)
{
    struct journal_name keep;
    for (uint64_t ticket = 0; ticket < 3; ticket++)
        put(journal, ticket);
    assert_int_equal(journal_commit(journal, NULL), ERR_OK);
    assert_int_equal(journal_cut(journal, 1, NULL), ERR_OK);
    assert_true(journal_needed(journal, 1, &keep));
    assert_int_equal(journal_prune(&file_ops_real, path, keep, NULL), ERR_OK);
    journal_release(journal);
    assert_int_equal(read_folder(path).count, 3);
}

/* The commit of a cut may be sent again long after the cut was recorded. */
TEST_IN_FOLDER(p12_a_cut_that_is_named_again_lets_nothing_go_that_came_since)
{
    const char *path = folder_path(state, "journal");
    struct journal journal = {0};
    assert_int_equal(journal_open(&file_ops_real, path, first, &journal, NULL), ERR_OK);
    assert_int_equal(journal_cut(&journal, 1, NULL), ERR_OK);
    prune_after_three_tickets(&journal, path);
}

/* A full disk begins no segment: then the one that goes on is needed, also when the cut is named
 * again and there is room. */
TEST_IN_FOLDER(p12_a_cut_whose_segment_did_not_begin_needs_the_one_before)
{
    const char *path = folder_path(state, "journal");
    struct journal journal = {0};
    struct disk disk;
    disk_init(&disk, 1000);
    assert_int_equal(journal_open(&disk.ops, path, first, &journal, NULL), ERR_OK);
    disk.die_at = disk.count;
    assert_true(journal_cut(&journal, 1, NULL) != ERR_OK);
    disk.die_at = 1000;
    prune_after_three_tickets(&journal, path);
}

static enum err refuse(void *context, const struct journal_entry *entry, struct reason *reason)
{
    (void)context;
    return reason_set(reason, ERR_CORRUPT, "a gap before ticket %u", (unsigned)entry->ticket);
}

TEST_IN_FOLDER(an_error_of_the_taker_ends_the_reading)
{
    uint64_t torn;
    struct reason reason = {{0}};
    struct journal_reader reader = {NULL, refuse};
    const char *path = journal_of(state, 6);
    assert_int_equal(journal_read(&file_ops_real, path, &reader, &torn, &reason), ERR_CORRUPT);
    assert_string_equal(reason.text, "a gap before ticket 0");
}
