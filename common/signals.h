/* Signals as events: one thread waits for SIGTERM, SIGINT and SIGHUP and calls back. SIGINT and
 * SIGHUP stay ignored where whoever started the process had it so (nohup, `command &` of a script).
 */
#ifndef ROOST_COMMON_SIGNALS_H
#define ROOST_COMMON_SIGNALS_H

#include "common/thread.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

struct signals {
    struct thread thread;
    sigset_t awaited;
    void (*received)(void *owner, int number);
    void *owner;
    atomic_bool stopping;
};

/* Blocks the signals in this and all later threads and starts the one that waits for them. Call it
 * before other threads are started. `received` runs on the waiting thread. SIGPIPE is ignored. */
enum err signals_start(struct signals *signals, void (*received)(void *owner, int number),
                       void *owner) MUST_USE;
void signals_stop(struct signals *signals);
/* Ends the process with exit code 0 after `ms`, rounded up to seconds, whatever the process is
 * doing. Any thread; a later call starts the time again. */
void signals_exit_after(uint32_t ms);

#endif
