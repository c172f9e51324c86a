/* Files, and what is left when a write, sync or rename fails. */
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_content(const char *path, const char *words)
{
    scoped(buf_release) struct buf bytes = {0};
    assert_int_equal(file_read(path, 1000, &bytes, NULL), ERR_OK);
    assert_int_equal(bytes.bytes, strlen(words));
    assert_memory_equal(bytes.data, words, bytes.bytes);
}

static void assert_missing(const char *path)
{
    assert_int_equal(access(path, F_OK), -1);
}

TEST_IN_FOLDER(a_file_is_read_up_to_a_limit)
{
    const char *path = folder_write(state, "a", "12345678", 8);
    scoped(buf_release) struct buf bytes = {0};
    struct reason reason;
    assert_int_equal(file_read(path, 7, &bytes, &reason), ERR_MALFORMED);
    assert_int_equal(bytes.bytes, 0);
    assert_int_equal(file_read(path, 8, &bytes, &reason), ERR_OK);
    assert_int_equal(file_read(path, 9, &bytes, &reason), ERR_OK);
    assert_int_equal(bytes.bytes, 16);
    assert_int_equal(file_read("/dev/zero", 100000, &bytes, &reason), ERR_INVALID);
}

TEST_IN_FOLDER(a_large_file_is_written_back_as_it_grows)
{
    static const uint8_t bytes[1 << 20] = {1};
    const char *path = folder_path(state, "a");
    struct faults faults;
    struct file_writer writer;
    faults_init(&faults, 0,
                EIO); /* open; after eight writes the first 8 MiB, after eight more the next */
    assert_int_equal(file_writer_open(&faults.ops, path, 0600, &writer, NULL), ERR_OK);
    enum err err = ERR_OK;
    for (int i = 0; i < 17 && err == ERR_OK; i++)
        err = file_writer_write(&writer, (struct slice){bytes, sizeof bytes}, NULL);
    assert_int_equal(err, ERR_OK);
    assert_int_equal(faults.count, 1 + 17 + 2);
    file_writer_release(&writer);
    faults_init(&faults, 19, EIO);
    assert_int_equal(file_writer_open(&faults.ops, path, 0600, &writer, NULL), ERR_OK);
    for (int i = 0; i < 16 && err == ERR_OK; i++)
        err = file_writer_write(&writer, (struct slice){bytes, sizeof bytes}, NULL);
    assert_int_equal(err, ERR_NOT_SYNCED); /* fsync() would not report it again */
    file_writer_release(&writer);
    assert_missing(path);
}

static int no_direct(const struct file_ops *ops, int fd, bool on)
{
    (void)ops, (void)fd, (void)on;
    errno = EINVAL;
    return -1;
}

static ssize_t half_write(const struct file_ops *ops, int fd, const void *data, size_t bytes)
{
    return file_ops_real.write(ops, fd, data, bytes / 2 + bytes % 2);
}

/* A direct file of two pieces and an odd rest, written in odd parts. */
static enum err write_direct(struct faults *faults, const char *path, struct slice bytes)
{
    scoped(file_writer_release) struct file_writer writer = {0};
    const size_t part = 777777;
    TRY(file_writer_open(&faults->ops, path, 0600, &writer, NULL));
    file_writer_direct(&writer);
    for (size_t at = 0; at < bytes.bytes; at += part) {
        size_t left = bytes.bytes - at;
        struct slice next = {bytes.data + at, left < part ? left : part};
        TRY(file_writer_write(&writer, next, NULL));
        assert_int_equal(writer.bytes, at + next.bytes);
    }
    return file_writer_commit(&writer, NULL);
}

TEST_IN_FOLDER(a_direct_file_has_its_bytes_wherever_it_lies)
{
    static uint8_t bytes[(5 << 19) + 3];
    const struct slice all = {bytes, sizeof bytes};
    const char *path = folder_path(state, "a");
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)((uint32_t)i * 2654435761u >> 24); /* no part is like another */
    enum { REFUSED_FIRST = 2, REFUSED_LATER, DIRECT, PLAIN, SHORT, CASES };
    for (int i = REFUSED_FIRST; i < CASES; i++) {
        struct faults faults;
        scoped(buf_release) struct buf read = {0};
        faults_init(&faults, i < DIRECT ? i : 0, EINVAL); /* open is the first operation */
        if (i == PLAIN)
            faults.ops.direct = no_direct;
        if (i == SHORT)
            faults.ops.write = half_write;
        assert_int_equal(write_direct(&faults, path, all), ERR_OK);
        assert_int_equal(file_read(path, sizeof bytes, &read, NULL), ERR_OK);
        assert_int_equal(read.bytes, sizeof bytes);
        assert_memory_equal(read.data, bytes, sizeof bytes);
    }
}

TEST_IN_FOLDER(a_direct_file_needs_room)
{
    static const uint8_t bytes[3 << 20] = {1};
    for (int write = 2; write <= 4; write++) {
        struct faults faults;
        faults_init(&faults, write, ENOSPC);
        assert_int_equal(
            write_direct(&faults, folder_path(state, "a"), (struct slice){bytes, sizeof bytes - 1}),
            ERR_NO_SPACE);
        assert_missing(folder_path(state, "a"));
        assert_missing(folder_path(state, "a.tmp"));
    }
}

TEST_IN_FOLDER(a_missing_file_is_named)
{
    scoped(buf_release) struct buf bytes = {0};
    struct reason reason;
    struct file_map map;
    const char *path = folder_path(state, "nothing");
    assert_int_equal(file_read(path, 10, &bytes, &reason), ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, path));
    assert_int_equal(file_map_open(path, &map, &reason), ERR_NOT_FOUND);
}

TEST_IN_FOLDER(a_mapped_file_has_its_bytes)
{
    struct reason reason;
    struct file_map map, empty, folder;
    assert_int_equal(file_map_open(folder_write(state, "a", "abc", 3), &map, &reason), ERR_OK);
    assert_int_equal(map.bytes.bytes, 3);
    assert_memory_equal(map.bytes.data, "abc", 3);
    assert_int_equal(file_map_open(folder_write(state, "b", "", 0), &empty, &reason), ERR_OK);
    assert_int_equal(empty.bytes.bytes, 0);
    assert_non_null(empty.bytes.data);
    assert_int_equal(file_map_open(folder_path(state, "."), &folder, &reason), ERR_INVALID);
    file_map_release(&map);
    file_map_release(&empty);
    file_map_release(&map);
}

TEST_IN_FOLDER(nobody_waits_for_a_pipe)
{
    scoped(buf_release) struct buf bytes = {0};
    struct reason reason;
    struct file_map map;
    const char *path = folder_path(state, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(file_read(path, 10, &bytes, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, path));
    assert_int_equal(file_map_open(path, &map, &reason), ERR_INVALID);
}

/* As /dev/tty is where there is no terminal. */
TEST_IN_FOLDER(what_no_open_finds_anything_behind_is_no_regular_file)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct reason reason;
    struct file_map map;
    const char *path = folder_path(state, "socket");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(file_map_open(path, &map, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "is not a regular file"));
    close(fd);
}

/* A child reads the byte, which is not there any more: what it says. */
static void read_lost(const volatile uint8_t *byte, char ret_text[static 4096])
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        file_faults_explain();
        _exit(*byte);
    }
    close(ends[1]);
    ssize_t got = read(ends[0], ret_text, 4095);
    assert_true(got > 0);
    ret_text[got] = 0;
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 75);
}

TEST_IN_FOLDER(a_process_whose_mapped_file_became_shorter_names_it)
{
    struct file_map map;
    struct reason reason;
    char text[4096];
    const char *path = folder_write(state, "corpus", "abc", 3);
    assert_int_equal(file_map_open(path, &map, &reason), ERR_OK);
    assert_int_equal(truncate(path, 0), 0);
    read_lost(map.bytes.data, text);
    assert_non_null(strstr(text, path));
    assert_non_null(strstr(text, "became shorter"));
    file_map_release(&map);
}

TEST_IN_FOLDER(whether_bytes_of_a_map_can_be_read_is_known_before_they_are_touched)
{
    enum { BYTES = 3 * 4096 };
    static const char bytes[BYTES] = "abc";
    if (!unit_kernel_loads_maps())
        skip();
    struct file_map map;
    const char *path = folder_write(state, "cut", bytes, BYTES);
    assert_int_equal(file_map_open(path, &map, NULL), ERR_OK);
    assert_int_equal(file_map_load(map.bytes), ERR_OK);
    assert_int_equal(truncate(path, 4096), 0);
    assert_int_equal(file_map_load((struct slice){map.bytes.data + 1, 4095}), ERR_OK);
    assert_int_equal(file_map_load((struct slice){map.bytes.data + 1, 4096}), ERR_IO);
    assert_int_equal(file_map_load((struct slice){map.bytes.data + BYTES, 0}), ERR_OK);
    file_map_release(&map);
}

/* As where the machine has no page for it. */
TEST(a_process_whose_shared_memory_is_not_there_says_so)
{
    char text[4096];
    int memory = memfd_create("roost-payloads", MFD_CLOEXEC);
    const uint8_t *at = mmap(NULL, 4096, PROT_READ, MAP_SHARED, memory, 0);
    assert_true(at != MAP_FAILED);
    read_lost(at, text);
    assert_null(strstr(text, "became shorter"));
    assert_non_null(strstr(text, "is shared memory, and the machine has no more of it"));
    munmap((void *)(uintptr_t)at, 4096);
    close(memory);
}

TEST_IN_FOLDER(an_atomic_write_replaces_the_whole_file)
{
    const char *path = folder_write(state, "a", "the old words", 13);
    folder_write(state, "a.tmp", "left by a crash", 15);
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0600, slice_of("new"), NULL), ERR_OK);
    assert_content(path, "new");
    assert_missing(folder_path(state, "a.tmp"));
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
}

static unsigned mode_of(const char *path)
{
    struct file_info info = {0};
    assert_int_equal(file_stat(path, &info, NULL), ERR_OK);
    return info.mode;
}

TEST_IN_FOLDER(what_other_users_shall_read_they_may_read_whatever_the_umask_is)
{
    const char *above = folder_path(state, "above"), *in = folder_path(state, "above/in");
    assert_int_equal(file_make_dirs(above, 0700, NULL), ERR_OK);
    mode_t before = umask(077);
    enum err err = file_make_public_dirs(folder_path(state, "above/in/it"), NULL);
    enum err err_again = file_make_public_dirs(above, NULL);
    enum err err_file = file_write_public(folder_path(state, "a"), slice_of("new"), NULL);
    umask(before);
    assert_int_equal(err, ERR_OK);
    assert_int_equal(err_again, ERR_OK);
    assert_int_equal(err_file, ERR_OK);
    assert_content(folder_path(state, "a"), "new");
    assert_int_equal(mode_of(folder_path(state, "a")), 0644);
    assert_int_equal(mode_of(above), 0700); /* was there */
    assert_int_equal(mode_of(in), 0755);
    assert_int_equal(mode_of(folder_path(state, "above/in/it")), 0755);
}

TEST_IN_FOLDER(whichever_operation_fails_the_file_is_old_or_new_and_whole)
{
    const char *path = folder_path(state, "a");
    enum { OPEN = 1, WRITE, SYNC, RENAME, OPEN_DIR, SYNC_DIR, OPERATIONS = SYNC_DIR };
    for (int fail_at = 1; fail_at <= OPERATIONS + 1; fail_at++) {
        struct faults faults;
        struct reason reason;
        faults_init(&faults, fail_at, fail_at == WRITE ? ENOSPC : EIO);
        folder_write(state, "a", "old", 3);
        enum err err = file_write_atomic(&faults.ops, path, 0644, slice_of("new"), &reason);
        bool sync = fail_at == SYNC || fail_at == SYNC_DIR;
        assert_int_equal(err, fail_at == WRITE        ? ERR_NO_SPACE
                              : sync                  ? ERR_NOT_SYNCED
                              : fail_at <= OPERATIONS ? ERR_IO
                                                      : ERR_OK);
        if (err != ERR_OK)
            assert_non_null(strstr(reason.text, (char *)((struct folder *)*state)->path));
        assert_content(path, fail_at <= RENAME ? "old" : "new");
        assert_missing(folder_path(state, "a.tmp"));
    }
}

TEST_IN_FOLDER(a_writer_that_is_not_committed_leaves_nothing)
{
    struct file_writer writer;
    const char *path = folder_path(state, "a");
    assert_int_equal(file_writer_open(&file_ops_real, path, 0644, &writer, NULL), ERR_OK);
    assert_int_equal(file_writer_write(&writer, slice_of("half"), NULL), ERR_OK);
    file_writer_release(&writer);
    file_writer_release(&writer);
    assert_missing(path);
    assert_missing(folder_path(state, "a.tmp"));
}

TEST_IN_FOLDER(short_writes_are_continued)
{
    struct faults faults;
    faults_init(&faults, 3, EINTR);
    faults.short_writes = true;
    const char *path = folder_path(state, "a");
    assert_int_equal(file_write_atomic(&faults.ops, path, 0644, slice_of("whole"), NULL), ERR_OK);
    assert_content(path, "whole");
}

TEST_IN_FOLDER(a_log_grows_over_several_openings)
{
    const char *path = folder_path(state, "log");
    for (int turn = 0; turn < 2; turn++) {
        scoped(file_log_release) struct file_log log = {0};
        assert_int_equal(file_log_open(&file_ops_real, path, &log, NULL), ERR_OK);
        assert_int_equal(log.bytes, turn * 6);
        assert_int_equal(file_log_append(&log, slice_of("one\n"), NULL), ERR_OK);
        assert_int_equal(file_log_append(&log, slice_of("2\n"), NULL), ERR_OK);
        assert_int_equal(file_log_sync(&log, NULL), ERR_OK);
    }
    assert_content(path, "one\n2\none\n2\n");
}

TEST_IN_FOLDER(an_append_on_a_full_disk_is_taken_back)
{
    struct faults faults;
    struct reason reason;
    const char *path = folder_path(state, "log");
    /* open, open and sync the folder, "a\n" in 2 writes, then 2 of "bcd\n" and a failure */
    faults_init(&faults, 8, ENOSPC);
    faults.short_writes = true;
    scoped(file_log_release) struct file_log log = {0};
    assert_int_equal(file_log_open(&faults.ops, path, &log, &reason), ERR_OK);
    assert_int_equal(file_log_append(&log, slice_of("a\n"), &reason), ERR_OK);
    assert_int_equal(file_log_append(&log, slice_of("bcd\n"), &reason), ERR_NO_SPACE);
    assert_content(path, "a\n");
    assert_int_equal(log.bytes, 2);
    assert_int_equal(file_log_append(&log, slice_of("bcd\n"), &reason), ERR_OK);
    assert_content(path, "a\nbcd\n");
}

/* Also on a full disk, which may refuse only then: what was appended is in the file, and must not
 * be appended again as if it were not. */
TEST_IN_FOLDER(a_failed_sync_of_a_log_is_an_error_of_its_own)
{
    static const int numbers[] = {EIO, ENOSPC};
    for (size_t i = 0; i < 2; i++) {
        struct faults faults;
        struct reason reason;
        faults_init(&faults, 4, numbers[i]);
        scoped(file_log_release) struct file_log log = {0};
        assert_int_equal(file_log_open(&faults.ops, folder_path(state, "log"), &log, &reason),
                         ERR_OK);
        assert_int_equal(file_log_sync(&log, &reason), ERR_NOT_SYNCED);
    }
}

TEST_IN_FOLDER(a_log_goes_back_to_a_position_but_not_beyond_its_end)
{
    struct reason reason;
    const char *path = folder_write(state, "log", "one\ntwo\n", 8);
    scoped(file_log_release) struct file_log log = {0};
    assert_int_equal(file_log_open(&file_ops_real, path, &log, &reason), ERR_OK);
    assert_int_equal(file_log_truncate(&log, 9, &reason), ERR_CORRUPT);
    assert_int_equal(file_log_truncate(&log, 4, &reason), ERR_OK);
    assert_int_equal(file_log_append(&log, slice_of("2\n"), &reason), ERR_OK);
    assert_content(path, "one\n2\n");
}

TEST_IN_FOLDER(who_has_a_replaced_log_open_appends_to_what_nobody_reads)
{
    const char *path = folder_path(state, "log");
    scoped(file_log_release) struct file_log older = {0}, newer = {0};
    assert_int_equal(file_log_replace(&file_ops_real, path, slice_of("one\n"), &older, NULL),
                     ERR_OK);
    assert_int_equal(file_log_replace(&file_ops_real, path, slice_of("one\n"), &newer, NULL),
                     ERR_OK);
    assert_int_equal(file_log_append(&older, slice_of("late\n"), NULL), ERR_OK);
    assert_int_equal(file_log_append(&newer, slice_of("two\n"), NULL), ERR_OK);
    assert_content(path, "one\ntwo\n");
}

TEST_IN_FOLDER(a_log_that_cannot_be_replaced_stays_as_it_was)
{
    struct reason reason;
    const char *path = folder_write(state, "log", "one\n", 4);
    for (int step = 1; step <= 4; step++) { /* open, write, fsync, rename */
        struct faults faults;
        struct file_log log;
        faults_init(&faults, step, EIO);
        assert_int_equal(file_log_replace(&faults.ops, path, slice_of("two\n"), &log, &reason),
                         step == 3 ? ERR_NOT_SYNCED : ERR_IO);
        assert_content(path, "one\n");
    }
}

TEST_IN_FOLDER(folders_are_made_with_those_above)
{
    struct reason reason;
    struct file_info info;
    const char *path = folder_path(state, "a/b//c/");
    assert_int_equal(file_make_dirs(path, 0755, &reason), ERR_OK);
    assert_int_equal(file_make_dirs(path, 0755, &reason), ERR_OK);
    assert_int_equal(file_stat(folder_path(state, "a/b/c"), &info, &reason), ERR_OK);
    assert_int_equal(info.kind, FILE_FOLDER);
    folder_write(state, "a/file", "x", 1);
    assert_int_equal(file_make_dirs(folder_path(state, "a/file"), 0755, &reason), ERR_EXISTS);
    assert_int_not_equal(file_make_dirs(folder_path(state, "a/file/d"), 0755, &reason), ERR_OK);
    assert_int_not_equal(file_make_dirs("", 0755, &reason), ERR_OK);
}

TEST_IN_FOLDER(a_tree_is_removed_without_following_links)
{
    assert_int_equal(file_make_dirs(folder_path(state, "kept"), 0755, NULL), ERR_OK);
    assert_int_equal(file_make_dirs(folder_path(state, "tree/in/in"), 0755, NULL), ERR_OK);
    const char *kept = folder_write(state, "kept/file", "x", 1);
    folder_write(state, "tree/in/file", "x", 1);
    assert_int_equal(symlink("../kept", folder_path(state, "tree/link")), 0);
    const char *tree = folder_path(state, "tree");
    assert_int_equal(file_remove_tree(tree, NULL), ERR_OK);
    assert_missing(tree);
    assert_content(kept, "x");
    assert_int_equal(file_remove_tree(tree, NULL), ERR_OK);
    assert_int_equal(file_remove_tree(kept, NULL), ERR_OK);
    assert_missing(kept);
}

TEST_IN_FOLDER(names_are_listed_in_the_order_of_their_bytes)
{
    static const char *const names[] = {"b", "a", "B", ".x", "a.1", "\xc3\xa4", "10", "9"};
    static const char *const sorted[] = {".x", "10", "9", "B", "a", "a.1", "b", "\xc3\xa4"};
    for (size_t i = 0; i < 8; i++)
        folder_write(state, names[i], "", 0);
    scoped(file_names_release) struct file_names list = {0}, found = {0};
    assert_int_equal(file_list(folder_path(state, ""), &list, NULL), ERR_OK);
    assert_int_equal(list.count, 8);
    for (size_t i = 0; i < 8; i++)
        assert_string_equal(list.names[i], sorted[i]);
    assert_int_equal(file_glob(folder_path(state, "[aB]*"), &found, NULL), ERR_OK);
    assert_int_equal(found.count, 3);
    assert_string_equal(found.names[0], folder_path(state, "B"));
    assert_string_equal(found.names[2], folder_path(state, "a.1"));
}

TEST_IN_FOLDER(a_pattern_without_a_match_is_named)
{
    struct reason reason;
    struct file_names names;
    const char *pattern = folder_path(state, "*.bin");
    assert_int_equal(file_glob(pattern, &names, &reason), ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, pattern));
    assert_int_equal(file_list(folder_path(state, "none"), &names, &reason), ERR_NOT_FOUND);
}

TEST_IN_FOLDER(links_lead_to_the_file_behind_them)
{
    struct reason reason;
    struct file_info info;
    char *resolved, *direct;
    const char *path = folder_write(state, "file", "12345", 5);
    assert_int_equal(symlink("file", folder_path(state, "link")), 0);
    assert_int_equal(file_stat(folder_path(state, "link"), &info, &reason), ERR_OK);
    assert_int_equal(info.kind, FILE_REGULAR);
    assert_int_equal(info.bytes, 5);
    assert_int_equal(file_resolve(folder_path(state, "link"), &resolved, &reason), ERR_OK);
    assert_int_equal(file_resolve(path, &direct, &reason), ERR_OK);
    assert_string_equal(resolved, direct);
    free(resolved);
    free(direct);
    assert_int_equal(file_resolve(folder_path(state, "none"), &resolved, &reason), ERR_NOT_FOUND);
    assert_int_equal(file_stat(folder_path(state, "none"), &info, &reason), ERR_NOT_FOUND);
    assert_int_equal(file_stat("/dev/null", &info, &reason), ERR_OK);
    assert_int_equal(info.kind, FILE_OTHER);
}

TEST_IN_FOLDER(a_claim_is_shared_or_alone)
{
    struct file_claim first = {0}, second = {0}, third = {0};
    const char *path = folder_path(state, "lock");
    assert_int_equal(file_claim_take(path, true, &first, NULL), ERR_OK);
    assert_int_equal(file_claim_take(path, true, &second, NULL), ERR_OK);
    assert_int_equal(file_claim_take(path, false, &third, NULL), ERR_EXISTS);
    assert_false(third.held);
    file_claim_release(&first);
    assert_int_equal(file_claim_take(path, false, &third, NULL), ERR_EXISTS);
    file_claim_release(&second);
    assert_int_equal(file_claim_take(path, false, &third, NULL), ERR_OK);
    assert_int_equal(file_claim_take(path, true, &first, NULL), ERR_EXISTS);
    file_claim_release(&third);
    file_claim_release(&third); /* it is {0} */
}
