/* Reports to systemd (sd_notify): the daemon is ready, a status line, the main loop is alive.
 * Nothing happens without systemd or without libsystemd. Any thread. */
#ifndef ROOST_SERVER_NOTIFY_H
#define ROOST_SERVER_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *line);
void notify_alive(void);
/* A start or a stop takes long and goes on: systemd extends its limit by this long. */
void notify_more_time(uint64_t ns);
/* Half the time within which systemd expects notify_alive(); UINT64_MAX: it expects none. */
uint64_t notify_alive_every_ns(void);

#endif
