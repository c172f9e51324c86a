/* A ring of bits behind a low-water mark. */
#include "server/shard/applied.h"

#include <string.h>

static bool bit(const struct applied *applied, uint64_t ticket)
{
    uint32_t at = (uint32_t)(ticket % applied->window);
    return applied->words[at / 64] >> at % 64 & 1;
}

static void set(struct applied *applied, uint64_t ticket, bool taken)
{
    uint32_t at = (uint32_t)(ticket % applied->window);
    uint64_t mask = UINT64_C(1) << at % 64;
    applied->words[at / 64] =
        taken ? applied->words[at / 64] | mask : applied->words[at / 64] & ~mask;
}

/* A place that leaves the window at its lower end is the next one's at its upper end. */
static void settle(struct applied *applied)
{
    while (bit(applied, applied->low)) {
        set(applied, applied->low, false);
        applied->low++;
    }
}

enum applied_place applied_find(const struct applied *applied, uint64_t ticket)
{
    if (ticket < applied->low)
        return APPLIED_TAKEN;
    if (ticket - applied->low >= applied->window)
        return APPLIED_BEYOND;
    return bit(applied, ticket) ? APPLIED_TAKEN : APPLIED_NEW;
}

void applied_add(struct applied *applied, uint64_t ticket)
{
    check(applied_find(applied, ticket) == APPLIED_NEW);
    set(applied, ticket, true);
    settle(applied);
}

void applied_undo(struct applied *applied, uint64_t ticket)
{
    uint64_t end =
        applied->low < ticket + applied->window ? applied->low : ticket + applied->window;
    if (applied_find(applied, ticket) != APPLIED_TAKEN)
        return;
    for (uint64_t before = ticket; before < end; before++)
        set(applied, before, true);
    set(applied, ticket, false);
    applied->low = ticket < applied->low ? ticket : applied->low;
}

void applied_reset(struct applied *applied, uint64_t low)
{
    applied->low = low;
    memset(applied->words, 0, applied_words(applied->window) * sizeof *applied->words);
}

void applied_meet(struct applied *applied, const struct applied *other)
{
    check(applied->window == other->window);
    size_t bytes = applied_words(applied->window) * sizeof *applied->words;
    if (applied->low == other->low && memcmp(applied->words, other->words, bytes) == 0)
        return;
    uint64_t low = applied->low < other->low ? applied->low : other->low;
    uint64_t words[APPLIED_WINDOW_MAX / 64] = {0};
    struct applied both = {low, applied->window, words};
    for (uint64_t ticket = low; ticket < low + applied->window; ticket++)
        if (applied_find(applied, ticket) == APPLIED_TAKEN &&
            applied_find(other, ticket) == APPLIED_TAKEN)
            set(&both, ticket, true);
    memcpy(applied->words, words, applied_words(applied->window) * sizeof *words);
    applied->low = low;
    settle(applied);
}

enum err applied_load(struct applied *applied, uint64_t low, const uint64_t *words, uint32_t count)
{
    if (count > applied_words(applied->window) || (count > 0 && (words[0] & 1) != 0) ||
        low > UINT64_MAX - applied->window)
        return ERR_MALFORMED;
    applied_reset(applied, low);
    for (uint32_t i = 0; i < count * 64; i++)
        set(applied, low + i, words[i / 64] >> i % 64 & 1);
    return ERR_OK;
}

void applied_store(const struct applied *applied, uint64_t *ret_words)
{
    memset(ret_words, 0, applied_words(applied->window) * sizeof *ret_words);
    for (uint32_t i = 0; i < applied->window; i++)
        if (bit(applied, applied->low + i))
            ret_words[i / 64] |= UINT64_C(1) << i % 64;
}

void applied_check(const struct applied *applied)
{
    check(applied->window > 0 && applied->window % 64 == 0);
    check(applied->window <= APPLIED_WINDOW_MAX);
    check(!bit(applied, applied->low));
}
