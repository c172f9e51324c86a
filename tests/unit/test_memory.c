/* How much memory a process may have, by files as the system has them. */
#include "common/memory.h"

#include "tests/unit/folder.h"

#include <sys/stat.h>

enum { MACHINE = 1 << 30 };

static void write_text(void **state, const char *name, const char *text)
{
    folder_write(state, name, text, strlen(text));
}

static void make_folder(void **state, const char *name)
{
    assert_int_equal(mkdir(folder_path(state, name), 0755), 0);
}

static uint64_t limit_of(void **state)
{
    const struct memory_sources sources = {folder_path(state, "groups"), folder_path(state, "fs")};
    return memory_limit_of(&sources, MACHINE);
}

TEST_IN_FOLDER(without_groups_the_machine_is_the_limit)
{
    assert_int_equal(limit_of(state), MACHINE);
    write_text(state, "groups", "0::/a\n");
    assert_int_equal(limit_of(state), MACHINE);
}

TEST_IN_FOLDER(the_least_limit_of_a_group_and_those_around_it_counts)
{
    make_folder(state, "fs");
    make_folder(state, "fs/a");
    make_folder(state, "fs/a/b");
    write_text(state, "groups", "0::/a/b\n");
    write_text(state, "fs/a/b/memory.max", "max\n");
    assert_int_equal(limit_of(state), MACHINE);
    write_text(state, "fs/a/memory.max", "4096000\n");
    assert_int_equal(limit_of(state), 4096000);
    write_text(state, "fs/a/b/memory.max", "8192000\n");
    assert_int_equal(limit_of(state), 4096000);
    write_text(state, "fs/a/b/memory.max", "1024000\n");
    assert_int_equal(limit_of(state), 1024000);
    write_text(state, "fs/a/memory.high", "512000\n");
    assert_int_equal(limit_of(state), 512000);
    write_text(state, "fs/a/memory.high", "max\n");
    assert_int_equal(limit_of(state), 1024000);
}

TEST_IN_FOLDER(older_hierarchies_and_containers_have_limits_too)
{
    make_folder(state, "fs");
    make_folder(state, "fs/memory");
    write_text(state, "groups", "5:devices:/x\n4:memory:/seen/from/outside\n0::/\n");
    write_text(state, "fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(limit_of(state), MACHINE);
    write_text(state, "fs/memory/memory.limit_in_bytes", "2048000\n");
    assert_int_equal(limit_of(state), 2048000);
}
