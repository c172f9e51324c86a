/* The window of an async run's tickets. */
#include "server/coordinator/window.h"

#include <stdlib.h>

uint32_t window_steps(const struct coordinator_run *settings)
{
    uint32_t steps = settings->window / settings->slots;
    return steps > 0 ? steps : 1;
}

/* As many tickets as a shard's bitmap has (prepare_config()). */
static uint32_t window_tickets(const struct coordinator_run *settings)
{
    return applied_window(settings->window > settings->slots ? settings->window : settings->slots);
}

enum err window_init(struct run *run)
{
    if (!run->settings.async)
        return ERR_OK;
    run->window.taken.window = window_tickets(&run->settings);
    run->window.taken.words =
        calloc(applied_words(run->window.taken.window), sizeof *run->window.taken.words);
    return run->window.taken.words != NULL ? ERR_OK : ERR_NOMEM;
}

void window_release(struct run *run)
{
    free(run->window.taken.words);
}

void window_forget(struct run *run)
{
    if (!run->settings.async)
        return;
    applied_reset(&run->window.taken, 0);
    run->window.known = run->window.refused = false;
}

enum err window_meet(struct run *run, const struct server_report *ready)
{
    uint64_t words[APPLIED_WINDOW_MAX / 64];
    struct applied said = {0, run->window.taken.window, words};
    uint64_t end = run->settings.steps * run->settings.slots;
    if (ready->ready.applied_words == 0 && ready->ready.applied_low > end)
        return ERR_OK; /* the server has no chunks */
    /* A run that goes on with fewer steps than it had may have granted tickets behind its end. */
    bool beyond = ready->ready.applied_low > end;
    TRY(applied_load(run->window.known ? &said : &run->window.taken,
                     beyond ? end : ready->ready.applied_low, ready->ready.applied,
                     beyond ? 0 : ready->ready.applied_words));
    if (run->window.known)
        applied_meet(&run->window.taken, &said);
    run->window.known = true;
    return ERR_OK;
}

/* Marks the tickets of open steps as done that all chunks have taken. */
static void mark(struct run *run)
{
    struct tickets *tickets = &run->tickets;
    for (uint64_t step = tickets->step; step < tickets->step + tickets->steps; step++)
        for (uint32_t slot = 0; slot < run->settings.slots; slot++) {
            uint64_t ticket = step * run->settings.slots + slot;
            tickets_mark(tickets, step, slot,
                         applied_find(&run->window.taken, ticket) == APPLIED_TAKEN);
        }
}

void window_open(struct run *run)
{
    uint64_t version = run->steps.version, next = run->window.taken.low / run->settings.slots;
    next = next > version ? version + 1 : next; /* to grant tickets of */
    uint64_t end =
        run->moves.step_max < run->settings.steps ? run->moves.step_max + 1 : run->settings.steps;
    uint64_t granted = next + window_steps(&run->settings);
    uint64_t first = next > version ? version : next, last = granted < end ? granted : end;
    tickets_move(&run->tickets, first, last > first ? (uint32_t)(last - first) : 0);
    mark(run);
}

void window_done(struct run *run, const struct ticket *ticket)
{
    uint64_t number = ticket->step * run->settings.slots + ticket->node.index;
    uint64_t first = run->window.taken.low / run->settings.slots;
    if (applied_find(&run->window.taken, number) != APPLIED_NEW)
        return;
    applied_add(&run->window.taken, number);
    if (run->window.taken.low / run->settings.slots > first)
        window_open(run);
}

void window_undo(struct run *run, uint64_t step, uint32_t slot)
{
    applied_undo(&run->window.taken, step * run->settings.slots + slot);
    window_open(run);
}

void window_sealed(struct run *run, uint64_t step)
{
    for (uint64_t end = (step + 1) * run->settings.slots; run->window.taken.low < end;)
        applied_add(&run->window.taken, run->window.taken.low);
}

void window_refused(struct run *run)
{
    run->window.refused = true;
}

void window_asked(struct run *run)
{
    run->window.refused = false;
}

bool window_has(const struct run *run, uint64_t step)
{
    return run->window.taken.low >= (step + 1) * run->settings.slots;
}

uint64_t window_taken_steps(const struct run *run)
{
    uint64_t end = run->settings.async ? run->window.taken.low / run->settings.slots : 0;
    return end > run->steps.version ? end - run->steps.version : 0;
}

void window_doubt(struct run *run)
{
    applied_reset(&run->window.taken, run->steps.version * run->settings.slots);
    window_open(run);
}

bool window_boots_hold(struct coordinator *coordinator, const struct complete_request *request)
{
    const struct run *run = &coordinator->run;
    if (request->boot_count != coordinator->servers.chosen_count)
        return false;
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++)
        if (request->boots[i] != servers_of_map(&coordinator->servers, i)->boot &&
            map_chunks(&run->map, i) > 0) /* a worker need not name a server without chunks */
            return false;
    return true;
}

void window_check(const struct run *run)
{
    applied_check(&run->window.taken);
    check(run->tickets.step <= run->steps.version || run->tickets.steps == 0);
}
