/* A short list of pairs. */
#include "server/coordinator/unreachable.h"

#include <string.h>

static uint32_t find(const struct unreachable *unreachable, uint64_t a, uint64_t b)
{
    uint64_t low = a < b ? a : b, high = a < b ? b : a;
    uint32_t i = 0;
    while (i < unreachable->count &&
           (unreachable->pairs[i].a != low || unreachable->pairs[i].b != high))
        i++;
    return i;
}

static struct unreachable_pair take_out(struct unreachable *unreachable, uint32_t i)
{
    struct unreachable_pair *pairs = unreachable->pairs;
    const struct unreachable_pair pair = pairs[i];
    unreachable->count--;
    unreachable->apart_count -= pair.times == UNREACHABLE_TIMES_MAX ? 1 : 0;
    memmove(pairs + i, pairs + i + 1, (unreachable->count - i) * sizeof *pairs);
    return pair;
}

static void add(struct unreachable *unreachable, struct unreachable_pair pair)
{
    if (unreachable->count == UNREACHABLE_MAX)
        take_out(unreachable, 0);
    unreachable->pairs[unreachable->count++] = pair;
    unreachable->apart_count += pair.times == UNREACHABLE_TIMES_MAX ? 1 : 0;
}

uint32_t unreachable_note(struct unreachable *unreachable, uint64_t a, uint64_t b)
{
    check(a != b && a != 0 && b != 0);
    struct unreachable_pair pair = {.a = a < b ? a : b, .b = a < b ? b : a};
    uint32_t i = find(unreachable, a, b);
    if (i < unreachable->count)
        pair = take_out(unreachable, i);
    pair.times += pair.times < UNREACHABLE_TIMES_MAX ? 1 : 0;
    add(unreachable, pair);
    return pair.times;
}

bool unreachable_apart(const struct unreachable *unreachable, uint64_t a, uint64_t b)
{
    if (unreachable->apart_count == 0)
        return false;
    uint32_t i = find(unreachable, a, b);
    return i < unreachable->count && unreachable->pairs[i].times == UNREACHABLE_TIMES_MAX;
}

void unreachable_rename(struct unreachable *unreachable, uint64_t from, uint64_t to)
{
    for (uint32_t i = unreachable->count; i-- > 0;) {
        struct unreachable_pair *pair = &unreachable->pairs[i];
        uint64_t other = pair->a == from ? pair->b : pair->a;
        if (pair->a != from && pair->b != from)
            continue;
        if (to == 0) {
            take_out(unreachable, i);
            continue;
        }
        pair->a = other < to ? other : to;
        pair->b = other < to ? to : other;
    }
}

void unreachable_forget(struct unreachable *unreachable)
{
    for (uint32_t i = 0; i < unreachable->count; i++)
        unreachable->pairs[i].times = 0;
    unreachable->apart_count = 0;
}

void unreachable_check(const struct unreachable *unreachable)
{
    uint32_t apart = 0;
    check(unreachable->count <= UNREACHABLE_MAX);
    for (uint32_t i = 0; i < unreachable->count; i++) {
        const struct unreachable_pair *pair = &unreachable->pairs[i];
        check(pair->a != 0 && pair->a < pair->b);
        check(pair->times <= UNREACHABLE_TIMES_MAX);
        check(find(unreachable, pair->a, pair->b) == i);
        apart += pair->times == UNREACHABLE_TIMES_MAX ? 1 : 0;
    }
    check(apart == unreachable->apart_count);
}
