#include "tests/sim/queue.h"

#include <string.h>

const char *queue_kind_name(enum event_kind kind)
{
#define SIM_EVENT_NAME(name) #name,
    static const char *const names[] = {SIM_EVENTS(SIM_EVENT_NAME)};
#undef SIM_EVENT_NAME
    check(kind < EVENT_KIND_COUNT);
    return names[kind];
}

struct message *message_new(const void *data, size_t bytes)
{
    struct message *message = malloc(sizeof *message + bytes);
    check(message != NULL);
    message->references = 1;
    message->copy_count = 0;
    message->truth = (struct truth){0};
    message->bytes = bytes;
    if (bytes > 0)
        memcpy(message->data, data, bytes);
    return message;
}

void message_unref(struct message *message)
{
    if (message == NULL || --message->references > 0)
        return;
    for (uint32_t i = 0; i < message->copy_count; i++)
        counted_unref(message->copies[i]);
    free(message);
}

size_t message_bytes(const struct message *message)
{
    size_t bytes = message->bytes;
    for (uint32_t i = 0; i < message->copy_count; i++)
        bytes += message->copies[i]->bytes;
    return bytes;
}

uint32_t message_slices(const struct message *message, struct slice *ret_slices)
{
    ret_slices[0] = (struct slice){message->data, message->bytes};
    for (uint32_t i = 0; i < message->copy_count; i++)
        ret_slices[1 + i] = (struct slice){message->copies[i]->data, message->copies[i]->bytes};
    return 1 + message->copy_count;
}

void queue_release(struct queue *queue)
{
    for (size_t i = 0; i < queue->count; i++)
        message_unref(queue->events[i].message);
    free(queue->events);
    *queue = (struct queue){0};
}

static bool before(const struct event *a, const struct event *b)
{
    return a->at_us != b->at_us ? a->at_us < b->at_us : a->sequence < b->sequence;
}

void queue_put(struct queue *queue, struct event take_event)
{
    if (queue->count == queue->capacity) {
        queue->capacity = queue->capacity == 0 ? 256 : 2 * queue->capacity;
        queue->events = realloc(queue->events, queue->capacity * sizeof *queue->events);
        check(queue->events != NULL);
    }
    take_event.sequence = ++queue->sequences;
    size_t i = queue->count++;
    while (i > 0 && before(&take_event, &queue->events[(i - 1) / 2])) {
        queue->events[i] = queue->events[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    queue->events[i] = take_event;
}

bool queue_take(struct queue *queue, struct event *ret_event)
{
    if (queue->count == 0)
        return false;
    *ret_event = queue->events[0];
    struct event last = queue->events[--queue->count];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < queue->count; i = child) {
        if (child + 1 < queue->count && before(&queue->events[child + 1], &queue->events[child]))
            child++;
        if (before(&last, &queue->events[child]))
            break;
        queue->events[i] = queue->events[child];
    }
    queue->events[i] = last;
    return true;
}
