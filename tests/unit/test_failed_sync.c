/* An fsync that fails ends the daemon, whichever of its threads called it: what was written may not
 * be on disk, and only a restart, which reads it, can tell. */
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#define SHARDS_FAILED daemon_ends
struct logger;
struct reason;
static void daemon_ends(const struct logger *logger, const struct reason *reason);

#include "tests/unit/shards_fixture.h"

static atomic_bool broken;
static atomic_uint ended;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    if (!atomic_load(&broken))
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

static void daemon_ends(const struct logger *logger, const struct reason *reason)
{
    (void)logger;
    assert_non_null(strstr(reason->text, "cannot sync"));
    atomic_fetch_add(&ended, 1);
}

TEST_F(a_cut_that_cannot_be_synced_ends_the_daemon, shards, .threads = 2)
{
    atomic_store(&ended, 0);
    atomic_store(&broken, true);
    command(f, prepare_command(f, small, 1)); /* which writes version 0 */
    assert_int_equal(wait_report(f, SERVER_MANIFEST, 1).manifest.code, ERR_NOT_SYNCED);
    assert_int_equal(atomic_load(&ended), 1);
    atomic_store(&broken, false);
}

TEST_F(a_cut_that_is_synced_does_not, shards, .threads = 2)
{
    atomic_store(&ended, 0);
    command(f, prepare_command(f, small, 1));
    assert_int_equal(wait_report(f, SERVER_MANIFEST, 1).manifest.code, ERR_OK);
    assert_int_equal(atomic_load(&ended), 0);
}
