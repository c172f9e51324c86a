/* Events that other threads send to the daemon's main thread. */
#include "server/events.h"

#include "server/connection.h"

#include <stdlib.h>

static void call_free(struct call *call)
{
    arena_release(&call->arena);
    free(call);
}

void call_reply(struct call *take_call, struct buf *take_response)
{
    rpc_reply(take_call->request, take_response);
    call_free(take_call);
}

void call_fail(struct call *take_call, enum err err, const char *text)
{
    rpc_fail(take_call->request, err, text);
    call_free(take_call);
}

void event_release(struct event *event)
{
    if (event->call != NULL)
        call_fail(event->call, ERR_CANCELLED, "the daemon stops");
    connection_unref(event->connection);
    rpc_message_unref(event->message);
    *event = (struct event){0};
}
