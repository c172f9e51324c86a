/* A ring of items under one mutex. Posts take it for one copy, the owner for one batch; the owner
 * is woken only when it sleeps, so a busy inbox costs no system call. */
#include "common/inbox.h"

#include "common/thread.h"

#include <stdbool.h>
#include <string.h>

struct inbox {
    const struct inbox_limits limits;
    struct thread_cond posted;
    struct thread_mutex mutex; /* guards everything below */
    size_t first;              /* the oldest item's place */
    size_t count;
    bool owner_waits;
    bool closed;
    uint8_t items[]; /* limits.items_max of limits.item_bytes */
};

enum err inbox_new(struct inbox_limits limits, struct inbox **ret_inbox)
{
    check(limits.item_bytes > 0);
    check(limits.items_max > 0);
    size_t bytes;
    if (__builtin_mul_overflow(limits.item_bytes, limits.items_max, &bytes) ||
        __builtin_add_overflow(bytes, sizeof(struct inbox), &bytes))
        return ERR_NOMEM;
    struct inbox *inbox = malloc(bytes);
    if (inbox == NULL)
        return ERR_NOMEM;
    memcpy(inbox, &(struct inbox){.limits = limits}, sizeof *inbox);
    thread_cond_init(&inbox->posted);
    thread_mutex_init(&inbox->mutex);
    *ret_inbox = inbox;
    return ERR_OK;
}

void inbox_free(struct inbox *inbox)
{
    if (inbox == NULL)
        return;
    thread_cond_release(&inbox->posted);
    thread_mutex_release(&inbox->mutex);
    free(inbox);
}

static uint8_t *place(struct inbox *inbox, size_t index)
{
    return inbox->items + index % inbox->limits.items_max * inbox->limits.item_bytes;
}

static enum err post_locked(struct inbox *inbox, const void *item, size_t items_max)
{
    if (inbox->closed)
        return ERR_CANCELLED;
    if (inbox->count >= items_max)
        return ERR_BUSY;
    memcpy(place(inbox, inbox->first + inbox->count), item, inbox->limits.item_bytes);
    inbox->count++;
    return ERR_OK;
}

enum err inbox_post_below(struct inbox *inbox, const void *item, size_t items_max)
{
    check(items_max <= inbox->limits.items_max);
    thread_lock(&inbox->mutex);
    enum err err = post_locked(inbox, item, items_max);
    bool wake = err == ERR_OK && inbox->owner_waits;
    inbox->owner_waits = inbox->owner_waits && !wake; /* one wake-up is enough */
    thread_unlock(&inbox->mutex);
    if (wake)
        thread_wake_one(&inbox->posted);
    return err;
}

enum err inbox_post(struct inbox *inbox, const void *item)
{
    return inbox_post_below(inbox, item, inbox->limits.items_max);
}

/* Until there is an item, or no hope of one. */
static enum err wait_locked(struct inbox *inbox, uint64_t deadline_ns)
{
    while (inbox->count == 0) {
        if (inbox->closed)
            return ERR_CANCELLED;
        if (deadline_ns == 0)
            return ERR_DEADLINE;
        inbox->owner_waits = true;
        enum err err = thread_wait_locked(&inbox->posted, &inbox->mutex, deadline_ns);
        inbox->owner_waits = false;
        if (err != ERR_OK)
            deadline_ns = 0; /* one more look */
    }
    return ERR_OK;
}

/* The ring may wrap inside the batch: at most two copies. */
static size_t take_locked(struct inbox *inbox, size_t items_max, uint8_t *items)
{
    size_t taken = 0;
    while (taken < items_max && inbox->count > 0) {
        size_t run = inbox->limits.items_max - inbox->first;
        run = run < inbox->count ? run : inbox->count;
        run = run < items_max - taken ? run : items_max - taken;
        memcpy(items + taken * inbox->limits.item_bytes, place(inbox, inbox->first),
               run * inbox->limits.item_bytes);
        inbox->first = (inbox->first + run) % inbox->limits.items_max;
        inbox->count -= run;
        taken += run;
    }
    return taken;
}

enum err inbox_take(struct inbox *inbox, uint64_t deadline_ns, size_t items_max, void *items,
                    size_t *ret_count)
{
    check(items_max > 0);
    thread_lock(&inbox->mutex);
    enum err err = wait_locked(inbox, deadline_ns);
    if (err == ERR_OK)
        *ret_count = take_locked(inbox, items_max, items);
    thread_unlock(&inbox->mutex);
    return err;
}

void inbox_close(struct inbox *inbox)
{
    thread_lock(&inbox->mutex);
    inbox->closed = true;
    thread_unlock(&inbox->mutex);
    thread_wake_all(&inbox->posted);
}
