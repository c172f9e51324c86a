/* What systemd is told (sd_notify): readiness, a status line, that the main loop is alive. Nothing
 * happens where there is no systemd, or without libsystemd. Any thread. */
#ifndef ROOST_SERVER_NOTIFY_H
#define ROOST_SERVER_NOTIFY_H

#include <stdint.h>

void notify_ready(void);
void notify_stopping(void);
void notify_status(const char *line);
void notify_alive(void);
/* A start or a stop that takes its time goes on: it is not over the limit for this long. */
void notify_more_time(uint64_t ns);
/* How often notify_alive() is expected, halved; UINT64_MAX: not at all. */
uint64_t notify_alive_every_ns(void);

#endif
