/* Calls that are answered later. */
#include "server/control/waiting.h"

#include <stdlib.h>

enum err waiting_init(struct waiting *waiting)
{
    *waiting = (struct waiting){0};
    waiting->list = calloc(WAITING_MAX, sizeof *waiting->list);
    enum err by_number = id_table_init(&waiting->by_number, WAITING_MAX);
    enum err by_member = id_table_init(&waiting->by_member, WAITING_MAX);
    return waiting->list == NULL || by_number != ERR_OK ? ERR_NOMEM : by_member;
}

void waiting_release(struct waiting *waiting)
{
    while (waiting->count > 0)
        call_fail(waiting_take(waiting, waiting->count - 1), ERR_CANCELLED,
                  "the coordinator stops");
    id_table_release(&waiting->by_number);
    id_table_release(&waiting->by_member);
    free(waiting->list);
    *waiting = (struct waiting){0};
}

void waiting_add(struct waiting *waiting, const struct waiting_call *take_call)
{
    struct call *call = take_call->call;
    if (waiting->count == WAITING_MAX) {
        call_fail(call, ERR_BUSY, "too many calls wait");
        return;
    }
    call->place = waiting->count;
    waiting->list[waiting->count++] = *take_call;
    id_table_add(&waiting->by_number, call->number, call);
    if (call->kind == CALL_ACQUIRE)
        id_table_add(&waiting->by_member, call->acquire.member, call);
    else
        waiting->checkpoint_count++;
}

struct call *waiting_take(struct waiting *waiting, size_t i)
{
    check(i < waiting->count);
    struct call *call = waiting->list[i].call;
    check(call->place == i);
    waiting->list[i] = waiting->list[--waiting->count];
    waiting->list[i].call->place = i;
    id_table_take(&waiting->by_number, call->number);
    if (call->kind == CALL_ACQUIRE)
        id_table_take(&waiting->by_member, call->acquire.member);
    else
        waiting->checkpoint_count--;
    return call;
}

static struct call *take_found(struct waiting *waiting, const struct call *call)
{
    return call != NULL ? waiting_take(waiting, call->place) : NULL;
}

struct call *waiting_take_acquire(struct waiting *waiting, uint64_t member)
{
    return take_found(waiting, id_table_find(&waiting->by_member, member));
}

struct call *waiting_take_number(struct waiting *waiting, uint64_t number)
{
    return take_found(waiting, id_table_find(&waiting->by_number, number));
}
