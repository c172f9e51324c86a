#include "server/coordinator/gangs.h"

#include <stdlib.h>
#include <string.h>

#define GANG_IDS (UINT64_C(1) << 63) /* above the numbers of members, whose terms are below 2^31 */

enum err gangs_init(struct gangs *gangs, uint32_t places, uint32_t ranks, uint32_t count_max,
                    uint64_t first)
{
    uint32_t seats = places * ranks;
    *gangs =
        (struct gangs){.seats = seats, .ranks = ranks, .count_max = count_max, .numbers = first};
    if (seats == 0)
        return ERR_OK;
    gangs->list = calloc(count_max, sizeof *gangs->list);
    enum err err = id_table_init(&gangs->by_attempt, count_max);
    if (gangs->list == NULL || err != ERR_OK) {
        gangs_release(gangs);
        return ERR_NOMEM;
    }
    return ERR_OK;
}

void gangs_release(struct gangs *gangs)
{
    for (uint32_t i = 0; i < gangs->count; i++)
        free(gangs->list[i]);
    free(gangs->list);
    id_table_release(&gangs->by_attempt);
    *gangs = (struct gangs){0};
}

uint64_t gangs_next_id(const struct gangs *gangs)
{
    return GANG_IDS + gangs->ids + 1;
}

bool gangs_is_older(const struct gang *a, const struct gang *b)
{
    if (a->copy != b->copy)
        return b->copy;
    return ticket_is_older(&a->ticket, &b->ticket);
}

static void insert(struct gangs *gangs, struct gang *gang)
{
    uint32_t at = gangs->count++;
    for (; at > 0 && gangs_is_older(gang, gangs->list[at - 1]); at--)
        gangs->list[at] = gangs->list[at - 1];
    gangs->list[at] = gang;
}

static void take_out(struct gangs *gangs, const struct gang *gang)
{
    uint32_t at = 0;
    while (gangs->list[at] != gang)
        at++;
    gangs->count--;
    memmove(gangs->list + at, gangs->list + at + 1, (gangs->count - at) * sizeof *gangs->list);
}

struct gang *gangs_add(struct gangs *gangs, const struct lease *lease, uint64_t generation,
                       uint64_t step)
{
    size_t seats_bytes = gangs->seats * sizeof(struct gang_seat);
    struct gang *gang = calloc(1, sizeof *gang + seats_bytes);
    if (gang == NULL)
        return NULL;
    check(gangs->count < gangs->count_max);
    *gang = (struct gang){
        .id = GANG_IDS + ++gangs->ids,
        .ticket = {.kind = lease->kind,
                   .generation = generation,
                   .step = step,
                   .version = lease->version,
                   .node = lease->node,
                   .attempt = lease->attempt},
        .copy = lease->speculative || lease->audit,
        .number = ++gangs->numbers,
        .empty_count = gangs->seats,
        .seats = (struct gang_seat *)(gang + 1),
    };
    for (uint32_t i = 0; i < gangs->seats; i++) {
        gangs->tries += i % gangs->ranks == 0 ? 1 : 0;
        gang->seats[i] = (struct gang_seat){.tries = 1, .try_number = gangs->tries};
    }
    gangs->empty_count += gangs->seats;
    insert(gangs, gang);
    id_table_add(&gangs->by_attempt, lease->attempt, gang);
    return gang;
}

void gangs_remove(struct gangs *gangs, struct gang *gang)
{
    take_out(gangs, gang);
    gangs->late_count -= gang->late ? 1 : 0;
    gangs->empty_count -= gang->empty_count;
    gangs->numbers++; /* its end is a change, newer than all before */
    id_table_take(&gangs->by_attempt, gang->ticket.attempt);
    free(gang);
}

void gangs_make_late(struct gangs *gangs, struct gang *gang)
{
    check(!gang->late && gang->audited);
    take_out(gangs, gang);
    gang->copy = gang->late = true;
    gangs->late_count++;
    insert(gangs, gang);
}

struct gang *gangs_find(const struct gangs *gangs, uint64_t attempt)
{
    return gangs->seats == 0 || attempt == 0 ? NULL : id_table_find(&gangs->by_attempt, attempt);
}

void gangs_seat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t number,
                uint64_t member)
{
    struct gang_seat *seat = &gang->seats[number];
    check(number < gangs->seats && seat->member == 0 && member != 0);
    seat->member = member;
    seat->since_ms = now_ms;
    gang->empty_count--;
    gangs->empty_count--;
    gang->number = ++gangs->numbers;
}

static void unseat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, struct gang_seat *seat)
{
    seat->tries++;
    seat->try_number = gangs->tries;
    if (seat->member == 0)
        return;
    gang->done_count -= seat->done ? 1 : 0;
    gang->empty_count++;
    gangs->empty_count++;
    seat->member = 0;
    seat->since_ms = now_ms;
    seat->done = false;
}

bool gangs_unseat(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint64_t member,
                  struct gang_left *ret_left)
{
    uint32_t number = 0;
    while (number < gangs->seats && gang->seats[number].member != member)
        number++;
    if (number == gangs->seats)
        return false;
    struct gang_seat *place = &gang->seats[number - number % gangs->ranks];
    ret_left->count = 0;
    gangs->tries++;
    for (uint32_t rank = 0; rank < gangs->ranks; rank++) {
        if (place[rank].member != 0 && place[rank].member != member)
            ret_left->members[ret_left->count++] = place[rank].member;
        unseat(gangs, now_ms, gang, &place[rank]);
    }
    gang->number = ++gangs->numbers;
    return true;
}

bool gangs_done(struct gangs *gangs, uint64_t now_ms, struct gang *gang, uint32_t number,
                uint64_t member, uint64_t newest)
{
    struct gang_seat *seat = &gang->seats[number];
    if (seat->member != member || seat->done)
        return false;
    seat->done = true;
    seat->completed = newest;
    gang->done_count++;
    gangs->done_ms = now_ms;
    return true;
}

struct gang *gangs_oldest_empty(const struct gangs *gangs)
{
    for (uint32_t i = 0; gangs->empty_count > 0; i++)
        if (gangs->list[i]->empty_count > 0)
            return gangs->list[i];
    return NULL;
}

static void check_gang(const struct gangs *gangs, const struct gang *gang)
{
    uint32_t empty = 0, done = 0;
    for (uint32_t i = 0; i < gangs->seats; i++) {
        const struct gang_seat *seat = &gang->seats[i];
        check(seat->member != 0 || !seat->done); /* 2 */
        for (uint32_t j = 0; j < i; j++)
            check((seat->try_number == gang->seats[j].try_number) ==
                  (i / gangs->ranks == j / gangs->ranks));
        empty += seat->member == 0 ? 1 : 0;
        done += seat->done ? 1 : 0;
    }
    check(empty == gang->empty_count && done == gang->done_count);
    check(empty < gangs->seats);
    check(gang->number <= gangs->numbers);
    check(!gang->late || (gang->audited && gang->copy)); /* 3 */
    check(gangs_find(gangs, gang->ticket.attempt) == gang);
}

void gangs_check(const struct gangs *gangs)
{
    uint32_t late = 0, empty = 0;
    for (uint32_t i = 0; i < gangs->count; i++) {
        check_gang(gangs, gangs->list[i]);
        late += gangs->list[i]->late ? 1 : 0;
        empty += gangs->list[i]->empty_count;
        check(i == 0 || !gangs_is_older(gangs->list[i], gangs->list[i - 1])); /* 1 */
    }
    check(late == gangs->late_count && empty == gangs->empty_count); /* 3 */
}
