/* Calls that are answered later. */
#include "server/control/waiting.h"

#include <stdlib.h>

enum err waiting_init(struct waiting *waiting)
{
    waiting->count = 0;
    waiting->list = calloc(WAITING_MAX, sizeof *waiting->list);
    return waiting->list == NULL ? ERR_NOMEM : ERR_OK;
}

void waiting_release(struct waiting *waiting)
{
    while (waiting->count > 0)
        call_fail(waiting_take(waiting, 0), ERR_CANCELLED, "the coordinator stops");
    free(waiting->list);
    *waiting = (struct waiting){0};
}

void waiting_add(struct waiting *waiting, const struct waiting_call *take_call)
{
    if (waiting->count == WAITING_MAX)
        call_fail(take_call->call, ERR_BUSY, "too many calls wait");
    else
        waiting->list[waiting->count++] = *take_call;
}

struct call *waiting_take(struct waiting *waiting, size_t i)
{
    struct call *call = waiting->list[i].call;
    waiting->list[i] = waiting->list[--waiting->count];
    return call;
}

struct call *waiting_take_acquire(struct waiting *waiting, uint64_t member)
{
    for (size_t i = 0; i < waiting->count; i++) {
        const struct call *call = waiting->list[i].call;
        if (call->kind == CALL_ACQUIRE && call->acquire.member == member)
            return waiting_take(waiting, i);
    }
    return NULL;
}

struct call *waiting_take_number(struct waiting *waiting, uint64_t number)
{
    for (size_t i = 0; i < waiting->count; i++)
        if (waiting->list[i].call->number == number)
            return waiting_take(waiting, i);
    return NULL;
}
