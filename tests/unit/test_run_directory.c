/* The directories of runs: their names, which is taken, which is the newest. */
#include "tests/unit/folder.h"

#include "common/files/run_directory.h"

#include <fcntl.h>
#include <sys/stat.h>

/* ---- names ---- */

TEST(a_directory_has_one_name_however_it_is_spelled)
{
    static const struct {
        const char *spelled, *name;
    } rows[] = {{"/srv/run", "/srv/run"},
                {"/srv/run/", "/srv/run"},
                {"//srv/./run//.", "/srv/run"},
                {"/srv/.run/a.b/...", "/srv/.run/a.b/..."},
                {"/srv/link/../run/", "/srv/link/../run"},
                {"run", "/var/lib/roost/run"},
                {"./run/run-2/", "/var/lib/roost/run/run-2"},
                {".", "/var/lib/roost"},
                {"/", "/"},
                {"/.", "/"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        assert_int_equal(
            run_directory_name(rows[i].spelled, "/var/lib//roost/", name, sizeof name, NULL),
            ERR_OK);
        assert_string_equal(name, rows[i].name);
    }
}

TEST(a_name_takes_no_more_bytes_than_there_are)
{
    struct reason reason;
    char name[9] = "", shorter[8] = "";
    assert_int_equal(run_directory_name("/srv/run/", "/", name, sizeof name, &reason), ERR_OK);
    assert_string_equal(name, "/srv/run");
    assert_int_equal(run_directory_name("/srv/run/", "/", shorter, sizeof shorter, &reason),
                     ERR_INVALID);
    assert_non_null(strstr(reason.text, "longer than 7"));
}

TEST(a_relative_one_has_no_name_without_a_folder_that_it_begins_in)
{
    struct reason reason;
    char name[64];
    assert_int_equal(run_directory_name("run", ".", name, sizeof name, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "was removed"));
    assert_int_equal(run_directory_name("/run", ".", name, sizeof name, NULL), ERR_OK);
}

/* ---- the newest ---- */

struct runs_fixture {
    void *folder;
    struct run_directories all;
    struct run_directory newest;
};

static void set_time(struct runs_fixture *f, const char *name, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    assert_int_equal(utimensat(AT_FDCWD, folder_path(&f->folder, name), times, 0), 0);
}

static void add_cut(struct runs_fixture *f, const char *name, time_t seconds)
{
    char path[100];
    assert_int_equal(file_make_dirs(folder_path(&f->folder, name), 0755, NULL), ERR_OK);
    snprintf(path, sizeof path, "%s/cut.json", name);
    folder_write(&f->folder, path, "{}", 2);
    set_time(f, path, seconds);
}

/* A run that ended, and one that was stopped later. */
static void runs_set_up(struct runs_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    f->all = (struct run_directories){folder_path(&f->folder, "run"), "/run-"};
    add_cut(f, "run/checkpoints/g1-v900", 1000);
    add_cut(f, "run/checkpoints/g1-v1000", 2000);
    add_cut(f, "run/run-2/checkpoints/g2-v400", 3000);
    add_cut(f, "run/run-2/checkpoints/g2-v500", 4000);
    set_time(f, "run/checkpoints", 2000);
    set_time(f, "run/run-2/checkpoints", 4000);
}

static void runs_tear_down(struct runs_fixture *f)
{
    folder_remove(&f->folder);
}

static void assert_newest(struct runs_fixture *f, const char *name)
{
    assert_int_equal(run_directory_newest(&f->all, &f->newest, NULL), ERR_OK);
    assert_string_equal(f->newest.path, folder_path(&f->folder, name));
}

TEST_F(the_run_with_the_newest_checkpoint_is_the_newest, runs)
{
    assert_newest(f, "run/run-2");
    add_cut(f, "run/checkpoints/g3-v1100", 5000);
    assert_newest(f, "run");
}

/* roost checkpoint prune. */
TEST_F(a_run_whose_older_checkpoint_is_removed_is_no_newer, runs)
{
    assert_int_equal(file_remove_tree(folder_path(&f->folder, "run/checkpoints/g1-v900"), NULL),
                     ERR_OK);
    set_time(f, "run/checkpoints", 5000);
    assert_newest(f, "run/run-2");
}

/* roost checkpoint restore. */
TEST_F(a_run_whose_older_checkpoint_was_chosen_last_is_the_newest, runs)
{
    folder_write(&f->folder, "run/checkpoints/restore", "g1-v900\n", 8);
    set_time(f, "run/checkpoints/restore", 5000);
    assert_newest(f, "run");
    set_time(f, "run/checkpoints/restore", 3500);
    assert_newest(f, "run/run-2");
}
