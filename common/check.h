/* check(): a condition that only our own bug can break. It stays on in production and ends the
 * process; nothing that a peer, a user or a disk can cause may reach it (return an `enum err`). */
#ifndef ROOST_COMMON_CHECK_H
#define ROOST_COMMON_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_index)                                                     \
    __attribute__((format(printf, format_index, first_index)))

#define check(condition)                                                                           \
    ((condition) ? (void)0 : check_failed(#condition, __FILE__, __LINE__, __func__))

/* For the place behind a switch over all values of an enum. */
#define check_unreachable(text) check_failed(text, __FILE__, __LINE__, __func__)

/* Prints what the thread was doing, and may end the process otherwise than with SIGABRT (scene.c).
 * Programs that are linked without scene.c do without. */
__attribute__((weak)) void check_print(void);
__attribute__((weak)) void check_end(void);

__attribute__((noreturn, cold)) static inline void
check_failed(const char *condition, const char *file, int line, const char *function)
{
    fprintf(stderr, "check failed: %s at %s:%d in %s\n", condition, file, line, function);
    if (check_print != NULL)
        check_print();
    if (check_end != NULL)
        check_end();
    abort();
}

#endif
