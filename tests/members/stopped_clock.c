/* A clock that the worker cannot read: loaded before the others (LD_PRELOAD), it fails a check of
 * the worker's own. Libraries read the right one. */
#include <dlfcn.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *ret_moment)
{
    Dl_info caller;
    if (clock == CLOCK_MONOTONIC && dladdr(__builtin_return_address(0), &caller) != 0 &&
        strstr(caller.dli_fname, "roost-worker") != NULL)
        return -1;
    return (int)syscall(SYS_clock_gettime, clock, ret_moment);
}
