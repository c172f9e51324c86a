/* server/notify.h: there is no systemd here. */
#include "server/notify.h"

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
