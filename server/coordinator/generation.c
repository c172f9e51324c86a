/* Generations: who takes part, from which cut, and who has lost what. */
#include "server/coordinator/generation.h"

#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/owners.h"
#include "server/coordinator/phase.h"
#include "server/coordinator/said.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/window.h"

#include <string.h>

enum { AGAIN_MS = 1000, AGAIN_DOUBLINGS_MAX = 5 /* until the store is asked again */ };

/* A cut numbers its servers without gaps. */
static void number_files(struct coordinator *coordinator, struct cut_record *record)
{
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server == NULL)
            continue;
        servers_number_file(server, WIRE_FILE_NONE);
        if (server->state == SERVER_IS_NEW)
            continue; /* the newcomer's chunks come after the cut */
        servers_number_file(server, record->server_count++);
        memcpy(record->servers[server->file].name, server->name, sizeof server->name);
    }
}

/* P9: of a fresh run version 0 is recorded by its seed. A file with initial weights may change or
 * go, so what was read of it is written. */
static bool begins_by_seed(const struct run *run)
{
    const char *restore = run->settings.restore;
    return run->cuts.newest.name.generation == 0 && (restore == NULL || restore[0] == 0);
}

/* `map`: a copy of the run's, which is given away. */
static void order_cut(struct coordinator *coordinator, uint64_t version, struct map *map)
{
    struct run *run = &coordinator->run;
    struct cut_record record = {
        .name = {run->generation, version},
        .counters = run->steps.counters,
        .by_seed = begins_by_seed(run),
    };
    number_files(coordinator, &record);
    for (uint32_t i = 0; i < map->range_count; i++) {
        map->ranges[i].server = servers_active(&coordinator->servers, map->ranges[i].server)->file;
        check(map->ranges[i].server < record.server_count); /* P9: each chunk is in a file */
    }
    cuts_order(&run->cuts, &record, map);
}

enum err generation_order_cut(struct coordinator *coordinator, uint64_t version)
{
    struct map map;
    TRY(map_copy(&coordinator->run.map, &map));
    order_cut(coordinator, version, &map);
    return ERR_OK;
}

bool generation_lacks_first_cut(const struct run *run)
{
    struct cut_name first = {run->generation, run->steps.version};
    return run->moves.change == CHANGE_BEGUN && !cuts_complete(&run->cuts, first);
}

bool generation_may_go_back(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    return generation_lacks_first_cut(run) && run->cuts.map.range_count > 0;
}

static void send_part(struct coordinator *coordinator, struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    struct server_command *command = send_prepare(coordinator, server);
    check(run->cuts.newest.name.generation <= run->generation);
    check(run->cuts.newest.name.version <= run->steps.version);
    command->prepare.from_cut = run->cuts.newest.name.generation > 0;
    command->prepare.cut = run->cuts.newest.name;
    command->prepare.cuts =
        generation_lacks_first_cut(run) || (!command->prepare.from_cut && !begins_by_seed(run));
    command->prepare.restore = run->settings.restore;
    command->prepare.server = server->map_index;
    command->prepare.range_count = run->map.range_count;
    command->prepare.ranges = run->map.ranges;
}

void generation_prepare_part(struct coordinator *coordinator, struct server_entry *server)
{
    servers_prepare(server);
    send_part(coordinator, server);
}

void generation_prepare_again(struct coordinator *coordinator, struct server_entry *server)
{
    servers_prepare_again(server);
    send_part(coordinator, server);
}

/* Above every generation that anybody has seen, the store's included. A server remembers those that
 * it has prepared: its threads and files may still be busy with one of a store that is lost. */
static uint64_t next_generation(const struct coordinator *coordinator)
{
    uint64_t highest = coordinator->run.generation;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        if (server->held_generation > highest)
            highest = server->held_generation;
        if (server->prepared_generation > highest)
            highest = server->prepared_generation;
    }
    return highest + 1;
}

/* P2: the old generation is fenced. All members join again, each in its own place, or lapse. */
static void expel_all(struct coordinator *coordinator)
{
    struct members *members = &coordinator->members;
    send_answer_all(coordinator, ERR_OLD_GENERATION, NULL);
    for (uint32_t i = members->count; i-- > 0;)
        effects_add(&coordinator->effects, EFFECT_EXPEL)->member = members->list[i]->id;
}

/* P12: async, from a cut that does not name exactly the servers of the run. */
static bool differs_from_cut(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    const struct cut_record *cut = &run->cuts.newest;
    if (!run->settings.async || cut->name.generation == 0)
        return false;
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_of_map(&coordinator->servers, i);
        if (server != NULL && cuts_file(cut, server->name) == WIRE_SERVERS_MAX)
            return true;
    }
    return coordinator->servers.chosen_count != cut->server_count;
}

/* Nothing of the present generation is granted, counted or recorded any more, and the next one is
 * for the store (P10). All servers are connected. */
static void end_generation(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    check(!cuts_are_written(&run->cuts));
    if (run->succession.obstacle != NULL)
        effects_log(&coordinator->effects, false,
                    "coordinator cannot adopt  generation=%llu next=rewind reason=\"%s\"",
                    (unsigned long long)run->generation, run->succession.obstacle);
    succession_release(&run->succession);
    tickets_open(&run->tickets, (struct tickets_open){0});
    validation_stop(&run->validation);
    moves_begin(&run->moves, differs_from_cut(coordinator));
    cuts_forget(&run->cuts);
    /* in PHASE_STEPS servers change, and the pause counts */
    run->next = (struct next_generation){.pause_counts = run->phase == PHASE_STEPS};
    phase_enter(run, PHASE_STORE);
}

/* A new generation: from the newest recorded cut, or from nothing. The store has it. */
static enum err begin_generation(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    bool writes_cut = run->moves.change == CHANGE_BEGUN || run->cuts.newest.name.generation == 0;
    struct map map = {0};
    check(!cuts_are_written(&run->cuts));
    if (writes_cut)
        TRY(map_copy(&run->map, &map));
    check(run->next.asked > run->generation);
    run->generation = run->next.asked;
    convictions_undone(&coordinator->convictions);
    steps_rewind(run, &run->cuts.newest);
    if (!run->next.pause_counts)
        steps_time(run, now_ms);
    run->next = (struct next_generation){0};
    if (run->next_map == NEXT_MAP_WITHOUT)
        /* P10: a rewind restores the cut's map, but this one names a server that is gone: the
         * new map stays */
        map_release(&run->cuts.map);
    run->next_map = NEXT_MAP_PRESENT;
    window_forget(run);
    tickets_drop_all(&run->tickets, now_ms);
    audits_forget(coordinator);
    said_forget(run);
    moves_forget(coordinator);
    owners_count_change(run);
    expel_all(coordinator);
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        struct server_entry *server = servers_of_map(&coordinator->servers, i);
        /* A free place: its server has drained. One that is emptied may be gone, and one that is
         * lost since the store was asked gets its PREPARE when it says hello. */
        if (server != NULL && server->link != 0)
            generation_prepare_part(coordinator, server);
        else if (server != NULL)
            servers_acknowledge(server); /* P6: no commit of this generation is sent yet */
    }
    if (writes_cut)
        order_cut(coordinator, run->steps.version, &map);
    phase_enter(run, PHASE_PREPARE);
    effects_log(&coordinator->effects, false,
                "generation begins  generation=%llu version=%llu servers=%u",
                (unsigned long long)run->generation, (unsigned long long)run->steps.version,
                coordinator->servers.chosen_count);
    return ERR_OK;
}

void generation_ask(struct coordinator *coordinator, uint64_t now_ms)
{
    struct next_generation *next = &coordinator->run.next;
    if (coordinator->run.phase != PHASE_STORE || next->asked > 0 ||
        !servers_connected(&coordinator->servers))
        return;
    if (next->again_ms > now_ms) {
        run_due(coordinator, next->again_ms);
        return;
    }
    next->asked = next_generation(coordinator);
    effects_add(&coordinator->effects, EFFECT_STORE_REWIND)->generation = next->asked;
}

enum err generation_stored(struct coordinator *coordinator, uint64_t now_ms, uint64_t generation,
                           enum err err)
{
    struct next_generation *next = &coordinator->run.next;
    if (coordinator->run.phase != PHASE_STORE || next->asked != generation)
        return ERR_OK;
    if (err == ERR_OK)
        return begin_generation(coordinator, now_ms);
    uint32_t doublings = next->fails < AGAIN_DOUBLINGS_MAX ? next->fails : AGAIN_DOUBLINGS_MAX;
    next->asked = 0;
    next->fails++;
    next->again_ms = now_ms + ((uint64_t)AGAIN_MS << doublings);
    effects_log(&coordinator->effects, true, "rewind not stored  generation=%llu err=%s next=again",
                (unsigned long long)generation, err_name(err));
    return ERR_OK;
}

/* P12: one of the newest cut's servers, alive without us, may go on acknowledging what a successor
 * of its chunks never hears of. So a restart of an async run waits for all of them. An operator who
 * resumes it answers for those that are gone. */
static bool awaits_cut_servers(const struct run *run)
{
    return run->settings.restarts && run->settings.async && !cuts_is_nameless(&run->cuts.newest);
}

/* P12: a successor of an async run begins on exactly the servers of the newest cut, which it waits
 * for, also on those that drain. The map is a function of their names, so each has the chunks that
 * it had, and nobody reads a journal that another one still adds to; whoever has come or is to go
 * changes the servers afterwards (moves.h). */
static bool begins_on_cut(const struct run *run)
{
    return awaits_cut_servers(run) && run->cuts.newest.server_count > 0;
}

static void want_cut_servers(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    const struct cut_record *cut = &coordinator->run.cuts.newest;
    for (uint32_t i = 0; i < servers->count; i++)
        servers_want(&servers->list[i], cuts_file(cut, servers->list[i].name) != WIRE_SERVERS_MAX);
}

static enum err choose_servers(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    bool on_cut = begins_on_cut(run);
    if (on_cut)
        want_cut_servers(coordinator);
    uint32_t count = on_cut ? servers_choose_wanted(&coordinator->servers)
                            : servers_choose(&coordinator->servers);
    struct map map;
    TRY(map_build(run->settings.parameters, run->settings.parameter_count, count,
                  run->settings.parameter_bytes_max, &map));
    owners_take(run, &map);
    return ERR_OK;
}

/* P10: a rewind restores the cut's chunk map, and its servers. Both stay as they are when another
 * start recorded the cut, or there is none. */
static enum err restore_map(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    const struct cut_record *cut = &run->cuts.newest;
    struct map map;
    if (cut->name.generation == 0 || run->cuts.map.range_count == 0)
        return ERR_OK;
    TRY(map_copy(&run->cuts.map, &map));
    servers_unchoose(&coordinator->servers);
    for (uint32_t i = 0; i < cut->server_count; i++) {
        struct server_entry *server = servers_named(&coordinator->servers, cut->servers[i].name);
        bool chosen = server != NULL && servers_choose_one(&coordinator->servers, server);
        check(chosen); /* names of this start are kept while a cut needs them */
    }
    owners_take(run, &map);
    /* The map may be between two moves. */
    if (!run->settings.async)
        moves_note_uneven(&run->moves);
    return ERR_OK;
}

uint32_t generation_servers_min(const struct coordinator_run *settings,
                                const struct cut_record *cut)
{
    bool fewer =
        settings->restarts && cut->server_count > 0 && cut->server_count < settings->servers_min;
    return fewer ? cut->server_count : settings->servers_min;
}

const char *generation_awaits(const struct coordinator *coordinator)
{
    return awaits_cut_servers(&coordinator->run) ? succession_missing(coordinator) : NULL;
}

static bool enough_servers(const struct coordinator *coordinator,
                           const struct server_entry *without)
{
    uint32_t wanted = coordinator->run.settings.servers_min;
    uint32_t gone = servers_given_up(&coordinator->servers);
    wanted = wanted > gone ? wanted - gone : 1;
    if (begins_on_cut(&coordinator->run))
        return generation_awaits(coordinator) == NULL;
    return servers_available(&coordinator->servers, without) >= wanted;
}

bool generation_can_begin_without(const struct coordinator *coordinator,
                                  const struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    bool waits = run->phase == PHASE_GATHER && coordinator->servers.chosen_count == 0;
    return !waits || begins_on_cut(run) || enough_servers(coordinator, server);
}

/* No servers are chosen yet. */
static enum err gather_anew(struct coordinator *coordinator, uint64_t now_ms,
                            enum gathering *ret_gathering)
{
    struct run *run = &coordinator->run;
    enum succession_outcome outcome;
    TRY(succession_try(coordinator, now_ms, &outcome));
    *ret_gathering = outcome == SUCCESSION_GOES_ON ? GATHER_GOES_ON : GATHER_WAITS;
    if (outcome != SUCCESSION_REWINDS)
        return ERR_OK;
    if (run_ends(run) && succession_may_hear(coordinator, now_ms))
        return ERR_OK;
    if (run_ends(run)) /* the answers have come; a run that ends needs no rewind */
        succession_release(&run->succession);
    else if (enough_servers(coordinator, NULL))
        return choose_servers(coordinator);
    return ERR_OK;
}

enum err generation_gather(struct coordinator *coordinator, uint64_t now_ms,
                           enum gathering *ret_gathering)
{
    struct run *run = &coordinator->run;
    *ret_gathering = GATHER_WAITS;
    if (cuts_are_written(&run->cuts))
        /* P10: a rewind goes to the newest recorded cut, which will soon be another one */
        return ERR_OK;
    if (audit_rewind_waits(coordinator))
        return ERR_OK;
    if (run_ends(run) && !succession_is_open(run))
        return ERR_OK; /* the newest cut is old enough, and a run that ends needs no rewind */
    if (coordinator->servers.chosen_count == 0) {
        TRY(gather_anew(coordinator, now_ms, ret_gathering));
    } else if (run->next_map == NEXT_MAP_OF_CUT) {
        /* once more: a cut may have been recorded while servers were awaited */
        TRY(restore_map(coordinator));
    }
    if (*ret_gathering == GATHER_GOES_ON || !servers_connected(&coordinator->servers))
        return ERR_OK;
    *ret_gathering = GATHER_BEGINS;
    end_generation(coordinator);
    return ERR_OK;
}

/* ---- other servers ---- */

/* `next`: the new map; `chosen_before`: who had which index in the old one. */
static void count_chunks(const struct coordinator *coordinator, const struct map *next,
                         const uint32_t *chosen_before, struct move_status *changes)
{
    const struct run *run = &coordinator->run;
    for (uint32_t i = 0; i < run->settings.parameter_count; i++) {
        const struct map_parameter *parameter = &run->settings.parameters[i];
        uint64_t left = parameter->bytes;
        for (uint32_t c = 0; c < parameter->chunk_count; c++) {
            uint64_t bytes = parameter->chunk_bytes < left ? parameter->chunk_bytes : left;
            uint32_t chunk = parameter->chunk_first + c;
            left -= bytes;
            if (chosen_before[map_server(&run->map, chunk)] ==
                coordinator->servers.chosen[map_server(next, chunk)])
                continue;
            changes->chunks++;
            changes->bytes += bytes;
        }
    }
}

/* Counts the servers that come and those that go. */
static void count_servers(struct coordinator *coordinator, struct move_status *changes)
{
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        bool had = server->map_index != SERVERS_NONE;
        changes->servers_added += server->wanted && !had ? 1 : 0;
        changes->servers_drained += !server->wanted && had ? 1 : 0;
    }
}

/* The run's servers are those that are wanted, with an even map. */
static enum err take_wanted(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    struct servers *servers = &coordinator->servers;
    struct move_status changes = {.commits = 1};
    uint32_t count = 0, chosen_before[WIRE_SERVERS_MAX];
    struct map next;
    for (uint32_t i = 0; i < servers->count; i++)
        count += servers->list[i].wanted ? 1 : 0;
    TRY(map_build(run->settings.parameters, run->settings.parameter_count, count,
                  run->settings.parameter_bytes_max, &next));
    memcpy(chosen_before, servers->chosen, sizeof chosen_before);
    count_servers(coordinator, &changes);
    servers_choose_wanted(servers);
    count_chunks(coordinator, &next, chosen_before, &changes);
    owners_take(run, &next);
    moves_plan_change(&run->moves, &changes);
    effects_log(&coordinator->effects, false,
                "chunks move  version=%llu chunks=%llu bytes=%llu added=%llu drained=%llu",
                (unsigned long long)run->steps.version, (unsigned long long)changes.chunks,
                (unsigned long long)changes.bytes, (unsigned long long)changes.servers_added,
                (unsigned long long)changes.servers_drained);
    return ERR_OK;
}

void generation_change(struct coordinator *coordinator)
{
    if (take_wanted(coordinator) == ERR_OK) /* otherwise it is tried again later */
        end_generation(coordinator);
}

/* Back to GATHER: nothing of this generation is granted or counted any more. */
static void leave_steps(struct run *run)
{
    tickets_open(&run->tickets, (struct tickets_open){0});
    validation_stop(&run->validation);
    phase_enter(run, PHASE_GATHER);
}

enum err generation_without(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    TRY(take_wanted(coordinator));
    cuts_forget(&run->cuts);
    run->next_map = NEXT_MAP_WITHOUT;
    cuts_ask(&run->cuts);
    leave_steps(run);
    return ERR_OK;
}

void generation_go_back(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    leave_steps(run);
    if (run->moves.change == CHANGE_BEGUN)
        cuts_forget(&run->cuts); /* the first cut of the generation that is undone */
    moves_undo_change(&run->moves);
    if (run->next_map != NEXT_MAP_WITHOUT) /* an operator's word, for the next generation */
        run->next_map = NEXT_MAP_OF_CUT;
}

void generation_look_again(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct run *run = &coordinator->run;
    const struct unready *unready = &run->unready;
    if (run->phase != PHASE_PREPARE || unready->generation != run->generation ||
        unready->again_ms == 0)
        return;
    if (unready->again_ms <= now_ms)
        generation_go_back(coordinator);
    else
        run_due(coordinator, unready->again_ms);
}

enum err generation_first_cut_again(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    check(run->phase == PHASE_FIRST_CUT);
    if (!begins_by_seed(run)) {
        cuts_forget(&run->cuts);
        leave_steps(run);
        return ERR_OK;
    }
    TRY(generation_order_cut(coordinator, run->steps.version));
    cuts_try_again(&run->cuts);
    const struct cut_name first = {run->generation, run->steps.version};
    effects_add(&coordinator->effects, EFFECT_STORE_CUT)->cut = cuts_by_seed(&run->cuts, first);
    return ERR_OK;
}

void generation_server_lost(struct coordinator *coordinator, const struct server_entry *server)
{
    const struct cut_record *cut = &coordinator->run.cuts.newest;
    if (server->map_index == SERVERS_NONE || !generation_may_go_back(coordinator) ||
        cuts_file(cut, server->name) != WIRE_SERVERS_MAX)
        return;
    effects_log(&coordinator->effects, true, "server not added  server=%s next=without it",
                server->name);
    generation_go_back(coordinator);
}
