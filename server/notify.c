/* Reports to systemd. */
#include "server/notify.h"

#ifdef ROOST_SYSTEMD
#include <systemd/sd-daemon.h>

/* A failure is ignored: systemd notices a missing report. */
void notify_ready(void)
{
    (void)sd_notify(0, "READY=1");
}

void notify_stopping(void)
{
    (void)sd_notify(0, "STOPPING=1");
}

void notify_status(const char *line)
{
    (void)sd_notifyf(0, "STATUS=%s", line);
}

void notify_alive(void)
{
    (void)sd_notify(0, "WATCHDOG=1");
}

void notify_more_time(uint64_t ns)
{
    (void)sd_notifyf(0, "EXTEND_TIMEOUT_USEC=%llu", (unsigned long long)(ns / 1000));
}

uint64_t notify_alive_every_ns(void)
{
    uint64_t watchdog_us;
    if (sd_watchdog_enabled(0, &watchdog_us) <= 0)
        return UINT64_MAX;
    return watchdog_us * 1000 / 2;
}

#else

void notify_ready(void)
{
}

void notify_stopping(void)
{
}

void notify_status(const char *line)
{
    (void)line;
}

void notify_alive(void)
{
}

void notify_more_time(uint64_t ns)
{
    (void)ns;
}

uint64_t notify_alive_every_ns(void)
{
    return UINT64_MAX;
}
#endif
