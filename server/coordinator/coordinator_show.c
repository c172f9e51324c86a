/* What people see of a run, its servers and its members. */
#include "server/coordinator/audits.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/places.h"
#include "server/coordinator/run.h"
#include "server/coordinator/standstill.h"
#include "server/coordinator/window.h"

#include <string.h>

/* A server of the newest cut that a restart waits for, and that may be gone for good, by a drain
 * which nobody remembers; NULL: none, or none is there at all. */
static const char *maybe_gone(const struct coordinator *coordinator, uint32_t there)
{
    const struct cut_record *cut = &coordinator->run.cuts.newest;
    bool asks = coordinator->run.settings.restarts && there > 0 && !cuts_is_nameless(cut);
    for (uint32_t i = 0; asks && i < cut->server_count; i++) {
        struct server_entry *server = servers_named(&coordinator->servers, cut->servers[i].name);
        if (server == NULL || (server->link == 0 && !server->given_up))
            return cut->servers[i].name;
    }
    return NULL;
}

/* In PHASE_GATHER. */
static void put_awaited(const struct coordinator *coordinator, char *ret_text, size_t text_bytes)
{
    const struct run *run = &coordinator->run;
    const char *awaited = generation_awaits(coordinator);
    uint32_t there = servers_available(&coordinator->servers, NULL);
    const char *gone = maybe_gone(coordinator, there);
    if (awaited != NULL)
        snprintf(ret_text, text_bytes,
                 "server %s of the newest checkpoint is awaited; if it never comes, `roost stop`, "
                 "then `roost run DIR/run.yaml --resume --directory DIR` goes on without it",
                 awaited);
    else if (run->succession.owners != NULL && there >= run->settings.servers_min)
        snprintf(ret_text, text_bytes, "servers that hold generation %llu are awaited",
                 (unsigned long long)run->generation);
    else if (gone != NULL && there < run->settings.servers_min)
        snprintf(ret_text, text_bytes,
                 "servers connected: %u of %u; if %s of the newest checkpoint never comes, "
                 "`roost drain %s --lost` goes on without it",
                 there, run->settings.servers_min, gone, gone);
    else
        snprintf(ret_text, text_bytes, "servers connected: %u of %u", there,
                 run->settings.servers_min);
}

/* What the run cannot go on without found no room on a full disk. */
static bool waits_for_room(const struct coordinator *coordinator, char *ret_text, size_t text_bytes)
{
    const struct run *run = &coordinator->run;
    const struct server_entry *full = servers_journal_full(&coordinator->servers);
    if (run->phase == PHASE_STORE && run->next.fails > 0)
        snprintf(ret_text, text_bytes,
                 "it waits for room: the coordinator could not store generation %llu: %s",
                 (unsigned long long)run->generation + 1, err_text(ERR_NO_SPACE));
    else if (ending_waits_for_room(run) && run->cuts.error[0] != 0)
        snprintf(ret_text, text_bytes, "it waits for room: %.220s", run->cuts.error);
    else if (run->fingerprint_late)
        snprintf(ret_text, text_bytes,
                 "it waits for room: the coordinator could not store the workers' fingerprint: %s",
                 err_text(ERR_NO_SPACE));
    else if (full != NULL)
        snprintf(ret_text, text_bytes,
                 "it waits for room: server %s could not write its journal of gradients: %s",
                 full->name, err_text(ERR_NO_SPACE));
    else
        return false;
    return true;
}

/* Why an active run does not move; "" when it does. */
static void waiting_for(const struct coordinator *coordinator, char *ret_text, size_t text_bytes)
{
    const struct run *run = &coordinator->run;
    const struct servers *servers = &coordinator->servers;
    ret_text[0] = 0;
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        if (server != NULL && server->link == 0) {
            snprintf(ret_text, text_bytes, "server %s is lost; waiting for it", server->name);
            return;
        }
    }
    if (run->phase == PHASE_GATHER)
        put_awaited(coordinator, ret_text, text_bytes);
    else if (waits_for_room(coordinator, ret_text, text_bytes))
        return;
    else if (run->phase == PHASE_PREPARE && run->unready.generation == run->generation)
        snprintf(ret_text, text_bytes, "%.200s; %s", run->unready.text,
                 run->unready.searching ? "an older checkpoint is looked for"
                                        : "it is asked again");
    else if (run->phase == PHASE_PREPARE)
        snprintf(ret_text, text_bytes, "servers prepare version %llu",
                 (unsigned long long)run->steps.version);
    else if (run->phase == PHASE_FIRST_CUT)
        snprintf(ret_text, text_bytes, "the checkpoint of version %llu is being written",
                 (unsigned long long)run->steps.version);
    else if (run->phase == PHASE_LAST)
        snprintf(ret_text, text_bytes, "the last checkpoint is being written");
    else if (coordinator->members.count == 0)
        snprintf(ret_text, text_bytes, "no worker is there");
    else if (run->phase == PHASE_STEPS) {
        places_wait_for(coordinator, ret_text, text_bytes);
        if (ret_text[0] == 0)
            snprintf(ret_text, text_bytes, "%s", standstill_reason(run));
    }
}

void coordinator_status(const struct coordinator *coordinator,
                        struct coordinator_status *ret_status)
{
    const struct run *run = &coordinator->run;
    *ret_status = (struct coordinator_status){
        .state = run->state,
        .end_late = run->end_late,
        .paused = run_paused(run),
        .stops = run_active(run) && run_ends(run),
        .run = run->settings.run,
        .term = coordinator->settings.term,
        .generation = run->generation,
        .version = run->steps.version,
        .steps = run->settings.steps,
        .counters = run->steps.counters,
        .read_again = window_taken_steps(run) * run->settings.slots * run->settings.slot_samples,
        .cut = run->cuts.newest.name,
        .last_step = run->steps.last_step,
        .last_validation = run->last_validation,
        .member_count = coordinator->members.count,
        .members_joined = coordinator->members.joined_count,
        .members_lost = coordinator->members.lost_count,
        .member_ms = members_present_ms(&coordinator->members),
        .useful_ms = run->tickets.useful_ms,
        .wasted_ms = run->tickets.wasted_ms,
        .redone = run->tickets.redone,
        .speculative = run->tickets.speculative,
        .skipped = run->steps.skipped,
        .audits = audits_status(coordinator),
        .map_number = run->map_number,
        .moves = run->moves.status,
    };
    memcpy(ret_status->reason, run->reason, sizeof ret_status->reason);
    memcpy(ret_status->cut_error, run->cuts.error, sizeof ret_status->cut_error);
    if (run_active(run))
        waiting_for(coordinator, ret_status->reason, sizeof ret_status->reason);
}

const struct conviction *coordinator_conviction(const struct coordinator *coordinator, uint32_t i)
{
    return i < coordinator->convictions.count ? &coordinator->convictions.list[i] : NULL;
}

/* The i-th of those that are not in the list of former members as well. */
static const struct conviction *convicted_before(const struct coordinator *coordinator, uint32_t i)
{
    const struct conviction *conviction;
    for (uint32_t k = 0; (conviction = coordinator_conviction(coordinator, k)) != NULL; k++)
        if (members_end(&coordinator->members, conviction->member) == MEMBER_JOINED && i-- == 0)
            return conviction;
    return NULL;
}

static bool convicted_member(const struct conviction *conviction,
                             struct coordinator_member *ret_member)
{
    if (conviction == NULL)
        return false;
    *ret_member = (struct coordinator_member){
        .member = conviction->member,
        .state =
            member_state_name(conviction->wrong_bits ? MEMBER_WRONG_BITS : MEMBER_FALSE_COMPLETE),
    };
    memcpy(ret_member->name, conviction->name, sizeof ret_member->name);
    memcpy(ret_member->reason, conviction->reason, sizeof ret_member->reason);
    return true;
}

bool coordinator_member(const struct coordinator *coordinator, uint32_t i,
                        struct coordinator_member *ret_member)
{
    const struct member *member = members_at(&coordinator->members, i);
    if (member == NULL)
        return convicted_member(
            convicted_before(coordinator, i - members_listed(&coordinator->members)), ret_member);
    *ret_member = (struct coordinator_member){
        .member = member->id,
        .state = member_state_name(member->state),
        .slots_done = member->slots_done,
        .wrong_bits = member->wrong_bits,
        .seen_ms = member->seen_ms,
        .kept_bytes = member->kept_bytes,
    };
    memcpy(ret_member->name, member->own.name, sizeof ret_member->name);
    memcpy(ret_member->device, member->device, sizeof ret_member->device);
    memcpy(ret_member->reason, member->reason, sizeof ret_member->reason);
    return true;
}

bool coordinator_server(const struct coordinator *coordinator, uint32_t i,
                        struct coordinator_server *ret_server)
{
    if (i >= coordinator->servers.count)
        return false;
    const struct server_entry *server = &coordinator->servers.list[i];
    *ret_server = (struct coordinator_server){
        .boot = server->boot,
        .link = server->link,
        .connected = server->link != 0,
        .chunk_count = map_chunks(&coordinator->run.map, server->map_index),
        .has_left = server->leaving == SERVER_HAS_LEFT,
        .state = moves_state(coordinator, server),
        .pushed_bytes = server->pushed_bytes,
        .spared_bytes = server->spared_bytes,
        .pulled_bytes = server->pulled_bytes,
        .duplicates = server->duplicates,
        .audited = server->audited,
        .open_nodes_max = server->open_nodes_max,
    };
    memcpy(ret_server->name, server->name, sizeof ret_server->name);
    memcpy(ret_server->address, server->address, sizeof ret_server->address);
    return true;
}

const struct map *coordinator_map(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    return coordinator->servers.chosen_count > 0 && !run_gathers(run) ? &run->map : NULL;
}

bool coordinator_map_server(const struct coordinator *coordinator, uint32_t server,
                            struct coordinator_server *ret_server)
{
    const struct servers *servers = &coordinator->servers;
    if (server >= servers->chosen_count)
        return false;
    *ret_server = (struct coordinator_server){.state = ""};
    return servers->chosen[server] == SERVERS_NONE ||
           coordinator_server(coordinator, servers->chosen[server], ret_server);
}
