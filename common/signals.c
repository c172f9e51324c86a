#include "common/signals.h"

#include <signal.h>

static sigset_t waited_for(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    return set;
}

static void wait_for_signals(void *argument)
{
    struct signals *signals = argument;
    sigset_t set = waited_for();
    for (;;) {
        int number;
        if (sigwait(&set, &number) != 0 || atomic_load(&signals->stopping))
            return;
        signals->said(signals->owner, number);
    }
}

enum err signals_start(struct signals *signals, void (*said)(void *owner, int number), void *owner)
{
    sigset_t set = waited_for();
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    signals->said = said;
    signals->owner = owner;
    atomic_init(&signals->stopping, false);
    return thread_start(&signals->thread, "signals", wait_for_signals, signals);
}

void signals_stop(struct signals *signals)
{
    atomic_store(&signals->stopping, true);
    pthread_kill(signals->thread.id, SIGTERM);
    thread_join(&signals->thread);
}
