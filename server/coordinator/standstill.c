/* Whom a run waits for that stands still. */
#include "server/coordinator/standstill.h"

#include "server/coordinator/effects.h"
#include "server/coordinator/places.h"

#include <string.h>

enum {
    LEASES = 3,
    LEASES_FIRST = 10, /* of a step before which there was none */
    STEPS = 4,         /* times what the step before took */
    LOG_MS = 60000
};

static uint64_t patience_ms(const struct coordinator *coordinator)
{
    const struct step_row *before = &coordinator->run.steps.last_step;
    uint64_t lease_ms = coordinator->settings.lease_ms;
    if (before->generation == 0)
        return LEASES_FIRST * lease_ms;
    uint64_t steps_ms = STEPS * before->duration_ms;
    return steps_ms > LEASES * lease_ms ? steps_ms : LEASES * lease_ms;
}

/* P6: the server that has not acknowledged the newest commit; NULL: all have. */
static const struct server_entry *find_behind(const struct coordinator *coordinator)
{
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && coordinator->run.steps.committed && !server->acknowledged)
            return server;
    }
    return NULL;
}

/* The first server that has a chunk of which the sum is not reported; NULL: there is none. */
static const struct server_entry *find_unsealed(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    const struct seal *seal = run_seal(run, run->steps.version);
    for (uint32_t chunk = 0; chunk < seal->chunk_count; chunk++)
        if (!seal->sealed[chunk])
            return servers_active(&coordinator->servers, map_server(&run->map, chunk));
    return NULL;
}

/* The seat that a gang waits for: the first that is empty, else the first that is not done. */
static uint32_t find_seat(const struct gangs *gangs, const struct gang *gang)
{
    uint32_t seat = 0;
    if (gang->empty_count > 0)
        while (gang->seats[seat].member != 0)
            seat++;
    else
        while (seat + 1 < gangs->seats && gang->seats[seat].done)
            seat++;
    return seat;
}

/* The place of an empty seat. */
static void put_empty(const struct gangs *gangs, const struct gang *gang, uint32_t seat, char *text,
                      size_t bytes)
{
    uint32_t stage = seat / gangs->ranks, lacks = 0;
    for (uint32_t rank = 0; rank < gangs->ranks; rank++)
        lacks += gang->seats[stage * gangs->ranks + rank].member == 0 ? 1 : 0;
    if (gangs->ranks > 1)
        snprintf(text, bytes, "stage %u, which lacks %u of %u workers,", stage, lacks,
                 gangs->ranks);
    else
        snprintf(text, bytes, "stage %u, which has no worker,", stage);
}

/* Who has the lease; *ret_since_ms: since when. */
static void put_holder(struct coordinator *coordinator, const struct lease *lease, char *text,
                       size_t bytes, uint64_t *ret_since_ms)
{
    const struct gangs *gangs = &coordinator->run.gangs;
    const struct gang *gang = gangs_find(gangs, lease->attempt);
    *ret_since_ms = lease->granted_ms;
    if (gang == NULL) {
        snprintf(text, bytes, "worker %.64s", members_name(&coordinator->members, lease->member));
        return;
    }
    uint32_t seat = find_seat(gangs, gang), stage = seat / gangs->ranks;
    const char *name = members_name(&coordinator->members, gang->seats[seat].member);
    *ret_since_ms = gang->seats[seat].since_ms; /* a lease is granted anew after a loss */
    if (gang->seats[seat].member == 0)
        put_empty(gangs, gang, seat, text, bytes);
    else if (gangs->ranks > 1)
        snprintf(text, bytes, "worker %.64s (stage %u, rank %u)", name, stage, seat % gangs->ranks);
    else
        snprintf(text, bytes, "worker %.64s (stage %u)", name, stage);
}

static void put_lease(struct coordinator *coordinator, uint64_t now_ms, const struct lease *lease,
                      char *text, size_t bytes)
{
    uint32_t first = node_first(lease->node);
    char last[16] = "";
    if (lease->slots > 1)
        snprintf(last, sizeof last, " to %u", first + lease->slots - 1);
    char who[112];
    uint64_t since_ms;
    put_holder(coordinator, lease, who, sizeof who, &since_ms);
    snprintf(text, bytes, "%s has had %s %u%s for %llu s", who,
             lease->kind == TICKET_TRAIN ? "slot" : "held-out piece", first, last,
             (unsigned long long)((now_ms - since_ms) / 1000));
}

/* Nobody has a lease: of a worker that was given a ticket, it may have lapsed. */
static void put_silent(const struct coordinator *coordinator, char *text, size_t bytes)
{
    const struct members *members = &coordinator->members;
    char others[32] = "does";
    if (members->count > 1)
        snprintf(others, sizeof others, "and %u more do", members->count - 1);
    snprintf(text, bytes, "worker %.64s %s not ask for what is free", members->list[0]->own.name,
             others);
}

/* S7: two that failed to reach each other since the newest commit; they may be tried again. */
static void put_unreachable(struct coordinator *coordinator, char *text, size_t bytes)
{
    const struct run *run = &coordinator->run;
    const struct unreachable *unreachable = &run->unreachable;
    if (unreachable->count == 0 || run->unreachable_ms < run->steps.committed_ms)
        return;
    const struct unreachable_pair *pair = &unreachable->pairs[unreachable->count - 1];
    const char *a = members_name(&coordinator->members, pair->a);
    const char *b = members_name(&coordinator->members, pair->b);
    if (a != NULL && b != NULL)
        snprintf(text, bytes, "workers %.64s and %.64s do not reach each other", a, b);
}

/* Behind whom the step waits for: that slots of it took longer than their leases. */
static void put_lapses(const struct tickets *tickets, char *text, size_t bytes)
{
    uint32_t lapses = tickets_lapses(tickets);
    size_t used = strlen(text);
    if (lapses > 0)
        snprintf(text + used, bytes - used, ", after %u lease%s that lapsed", lapses,
                 lapses > 1 ? "s" : "");
}

static void put_cause(struct coordinator *coordinator, uint64_t now_ms, char *text, size_t bytes)
{
    const struct run *run = &coordinator->run;
    const struct server_entry *behind = find_behind(coordinator);
    const struct server_entry *unsealed = find_unsealed(coordinator);
    const struct server_entry *full = servers_journal_full(&coordinator->servers);
    const struct lease *lease = tickets_awaited(&run->tickets);
    bool done = tickets_all_done(&run->tickets, TICKET_TRAIN);
    if (full != NULL)
        snprintf(text, bytes, "server %s has no room on its disk for its journal", full->name);
    else if (behind != NULL)
        snprintf(text, bytes, "server %s has not applied the step before", behind->name);
    else if (done && unsealed != NULL)
        snprintf(text, bytes, "server %s does not report its sums", unsealed->name);
    else
        places_wait_for(coordinator, text, bytes);
    if (text[0] == 0)
        put_unreachable(coordinator, text, bytes);
    if (text[0] != 0)
        return;
    if (lease != NULL)
        put_lease(coordinator, now_ms, lease, text, bytes);
    else
        put_silent(coordinator, text, bytes);
    put_lapses(&run->tickets, text, bytes);
}

void standstill_look(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct standstill *standstill = &run->standstill;
    uint64_t still_ms = now_ms - run->steps.committed_ms;
    bool waits = run->phase == PHASE_STEPS && coordinator->members.count > 0 &&
                 servers_connected(&coordinator->servers);
    if (!waits || still_ms < patience_ms(coordinator)) {
        *standstill = (struct standstill){0};
        return;
    }
    char cause[208] = "";
    put_cause(coordinator, now_ms, cause, sizeof cause);
    bool same = standstill->since_ms == run->steps.committed_ms;
    standstill->since_ms = run->steps.committed_ms;
    snprintf(standstill->reason, sizeof standstill->reason,
             "step %llu is not done after %llu s: %s", (unsigned long long)run->steps.version,
             (unsigned long long)(still_ms / 1000), cause);
    if (same && now_ms - standstill->logged_ms < LOG_MS)
        return;
    standstill->logged_ms = now_ms;
    effects_log(&coordinator->effects, true, "run stands still  step=%llu reason=\"%s\"",
                (unsigned long long)run->steps.version, standstill->reason);
}

const char *standstill_reason(const struct run *run)
{
    const struct standstill *standstill = &run->standstill;
    return standstill->since_ms == run->steps.committed_ms ? standstill->reason : "";
}
