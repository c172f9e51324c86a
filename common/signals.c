#include "common/signals.h"

#include <signal.h>
#include <unistd.h>

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Without those that our parent has us ignore, as nohup does, and a script's shell for `command &`:
 * a signal that is blocked would come all the same. */
static sigset_t awaited_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    if (!is_ignored(SIGINT))
        sigaddset(&set, SIGINT);
    if (!is_ignored(SIGHUP))
        sigaddset(&set, SIGHUP);
    return set;
}

static void wait_for_signals(void *argument)
{
    struct signals *signals = argument;
    for (;;) {
        int number;
        if (sigwait(&signals->awaited, &number) != 0 || atomic_load(&signals->stopping))
            return;
        signals->received(signals->owner, number);
    }
}

enum err signals_start(struct signals *signals, void (*received)(void *owner, int number),
                       void *owner)
{
    signal(SIGPIPE, SIG_IGN);
    signals->awaited = awaited_signals();
    pthread_sigmask(SIG_BLOCK, &signals->awaited, NULL);
    signals->received = received;
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

static void exit_now(int number)
{
    static const char text[] = "the time to leave is over: what is unfinished is dropped\n";
    (void)number;
    ssize_t written = write(STDERR_FILENO, text, sizeof text - 1);
    (void)written; /* perhaps nobody reads it */
    _exit(0);
}

void signals_exit_after(uint32_t ms)
{
    struct sigaction action = {.sa_handler = exit_now};
    sigaction(SIGALRM, &action, NULL);
    alarm(ms / 1000 + (ms % 1000 != 0));
}
