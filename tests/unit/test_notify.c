/* What systemd is told, by a socket that takes its place. */
#include "tests/unit/folder.h"

#include "server/notify.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct notify_fixture {
    void *folder;
    struct sockaddr_un address;
    int socket;
};

static void notify_set_up(struct notify_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    f->address.sun_family = AF_UNIX;
    snprintf(f->address.sun_path, sizeof f->address.sun_path, "%s",
             folder_path(&f->folder, "socket"));
    f->socket = socket(AF_UNIX, SOCK_DGRAM, 0);
    assert_true(f->socket >= 0);
    assert_int_equal(bind(f->socket, (struct sockaddr *)&f->address, sizeof f->address), 0);
    setenv("NOTIFY_SOCKET", f->address.sun_path, 1);
}

static void notify_tear_down(struct notify_fixture *f)
{
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    close(f->socket);
    folder_remove(&f->folder);
}

/* The datagram is there when the call has returned; without libsystemd there is none. */
static void hears(const struct notify_fixture *f, const char *expected)
{
    char heard[256] = {0};
    ssize_t bytes = recv(f->socket, heard, sizeof heard - 1, MSG_DONTWAIT);
#ifdef ROOST_SYSTEMD
    assert_true(bytes > 0);
    assert_string_equal(heard, expected);
#else
    (void)expected;
    assert_int_equal(bytes, -1);
#endif
}

TEST_F(each_state_is_said_in_systemds_words, notify)
{
    notify_ready();
    hears(f, "READY=1");
    notify_status("training, 100% sure");
    hears(f, "STATUS=training, 100% sure");
    notify_alive();
    hears(f, "WATCHDOG=1");
    notify_more_time(UINT64_C(2500000000));
    hears(f, "EXTEND_TIMEOUT_USEC=2500000");
    notify_stopping();
    hears(f, "STOPPING=1");
}

TEST_F(a_watchdog_is_answered_twice_in_its_time, notify)
{
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    assert_true(notify_alive_every_ns() == UINT64_MAX);
    setenv("WATCHDOG_USEC", "2000000", 1);
    setenv("WATCHDOG_PID", pid, 1);
#ifdef ROOST_SYSTEMD
    assert_int_equal(notify_alive_every_ns(), 1000000000);
#endif
    setenv("WATCHDOG_PID", "1", 1); /* another process's */
    assert_true(notify_alive_every_ns() == UINT64_MAX);
}

TEST_F(without_systemd_nothing_is_said, notify)
{
    char heard[64];
    unsetenv("NOTIFY_SOCKET");
    notify_ready();
    notify_alive();
    assert_int_equal(recv(f->socket, heard, sizeof heard, MSG_DONTWAIT), -1);
}
