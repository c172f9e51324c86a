/* Watches are a list. Messages are sent under the lock, so that the newest state is sent last. */
#include "server/health.h"

#include "common/scoped.h"
#include "proto/standard.h"

#include <stdlib.h>

struct health_watch {
    struct health_watch *next, **place;
    struct health *health;
    struct rpc_stream *stream; /* a reference */
    bool asked;                /* it has named a service that this daemon has */
};

void health_init(struct health *health)
{
    *health = (struct health){0};
    thread_mutex_init(&health->mutex);
}

void health_release(struct health *health)
{
    check(health->watches == NULL);
    thread_mutex_release(&health->mutex);
}

/* Sends the answer to `request`. */
static enum err say_locked(struct health_watch *watch, struct slice request, struct reason *reason)
{
    struct buf response = {0};
    enum err err = standard_health(request, watch->health->serving, &response, reason);
    if (err == ERR_OK)
        return rpc_stream_send(watch->stream, RPC_NORMAL, &response, NULL, 0);
    buf_release(&response);
    return err;
}

void health_set(struct health *health, bool serving)
{
    struct reason reason = {0};
    thread_lock(&health->mutex);
    bool news = health->serving != serving;
    health->serving = serving;
    for (struct health_watch *watch = health->watches; news && watch != NULL; watch = watch->next)
        if (watch->asked && say_locked(watch, (struct slice){0}, &reason) != ERR_OK)
            rpc_stream_cancel(watch->stream); /* the watcher does not read; it will ask again */
    thread_unlock(&health->mutex);
}

void health_check(void *owner, struct rpc_request *request, struct slice bytes)
{
    struct health *health = owner;
    struct reason reason = {0};
    struct buf response = {0};
    thread_lock(&health->mutex);
    bool serving = health->serving;
    thread_unlock(&health->mutex);
    enum err err = standard_health(bytes, serving, &response, &reason);
    if (err == ERR_OK) {
        rpc_reply(request, &response);
        return;
    }
    buf_release(&response);
    rpc_fail(request, err, reason.text);
}

/* ---- Watch ---- */

static enum err watch_open(void *owner, struct rpc_stream *stream, const struct rpc_peer *peer,
                           void **ret_owner, struct reason *reason)
{
    (void)peer;
    struct health *health = owner;
    struct health_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return reason_set(reason, ERR_BUSY, "no memory for another stream");
    watch->health = health;
    watch->stream = rpc_stream_ref(stream);
    thread_lock(&health->mutex);
    watch->next = health->watches;
    watch->place = &health->watches;
    if (watch->next != NULL)
        watch->next->place = &watch->next;
    health->watches = watch;
    thread_unlock(&health->mutex);
    *ret_owner = watch;
    return ERR_OK;
}

static void watch_message(void *owner, struct rpc_stream *stream, struct rpc_message *take_message)
{
    struct health_watch *watch = owner;
    scoped(buf_release) struct buf request = {0};
    struct reason reason = {0};
    enum err err = buf_reserve(&request, take_message->bytes);
    if (err == ERR_OK) {
        rpc_message_copy(take_message, 0, take_message->bytes, request.data);
        request.bytes = take_message->bytes;
        thread_lock(&watch->health->mutex);
        err = say_locked(watch, buf_slice(&request), &reason);
        watch->asked = err == ERR_OK;
        thread_unlock(&watch->health->mutex);
    }
    rpc_message_unref(take_message);
    if (err != ERR_OK)
        rpc_stream_finish(stream, err, reason.text);
}

/* A watcher sends nothing more, and its stream stays open. */
static void watch_ended(void *owner, struct rpc_stream *stream)
{
    (void)owner, (void)stream;
}

static void watch_closed(void *owner, struct rpc_stream *stream, enum err err,
                         const struct reason *reason)
{
    (void)stream, (void)err, (void)reason;
    struct health_watch *watch = owner;
    thread_lock(&watch->health->mutex);
    check(*watch->place == watch); /* it is in the list, once */
    *watch->place = watch->next;
    if (watch->next != NULL)
        watch->next->place = watch->place;
    thread_unlock(&watch->health->mutex);
    rpc_stream_unref(watch->stream);
    free(watch);
}

const struct rpc_stream_events health_watch_events = {
    .open = watch_open, .message = watch_message, .ended = watch_ended, .closed = watch_closed};
