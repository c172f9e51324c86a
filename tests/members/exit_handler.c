/* Says when a program registers an exit handler of OpenSSL's library, which frees what OpenSSL has:
 * loaded before the others (LD_PRELOAD). */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

typedef int register_fn(void (*handler)(void *), void *argument, void *library);
register_fn __cxa_atexit; /* what atexit() calls; no header has it */

__attribute__((constructor)) static void begin(void)
{
    fprintf(stderr, "exit handlers are looked at\n");
}

int __cxa_atexit(void (*handler)(void *), void *argument, void *library)
{
    register_fn *next;
    void *symbol = dlsym(RTLD_NEXT, "__cxa_atexit"), *address;
    memcpy(&next, &symbol, sizeof next);
    memcpy(&address, &handler, sizeof address);
    Dl_info where;
    if (dladdr(address, &where) != 0 && strstr(where.dli_fname, "libcrypto") != NULL)
        fprintf(stderr, "OpenSSL ends when this program exits\n");
    return next(handler, argument, library);
}
