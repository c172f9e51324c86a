/* A machine whose clock is an hour behind: loaded before the others (LD_PRELOAD). */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *ret_moment)
{
    int failed = (int)syscall(SYS_clock_gettime, clock, ret_moment);
    if (failed == 0 && clock == CLOCK_REALTIME)
        ret_moment->tv_sec -= 3600;
    return failed;
}
