/* Going on where a dead coordinator left off. */
#include "server/coordinator/succession.h"

#include "server/coordinator/audits.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/owners.h"
#include "server/coordinator/phase.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/member/holdings.h"

#include <stdlib.h>
#include <string.h>

void succession_begin(struct coordinator *coordinator, uint64_t now_ms,
                      const struct coordinator_past *past)
{
    struct run *run = &coordinator->run;
    const struct coordinator_run *settings = &run->settings;
    bool possible = past != NULL && past->cut.name.generation > 0 && !settings->async &&
                    !settings->ssp && !run->rewind.wanted &&
                    past->recorded >= past->cut.name.version;
    for (uint32_t i = 0; i < coordinator->servers.count; i++)
        coordinator->servers.list[i].asked_link = coordinator->servers.list[i].answered_link = 0;
    if (!possible)
        return;
    run->succession = (struct succession){
        .recorded = past->recorded,
        .until_ms = now_ms + coordinator->settings.lease_ms,
        .spec = holdings_spec(settings->spec, settings->checkpoint_dir),
        .owners = calloc(run->chunk_count, sizeof *run->succession.owners),
    };
}

void succession_release(struct succession *succession)
{
    free(succession->owners);
    *succession = (struct succession){0};
}

bool succession_is_open(const struct run *run)
{
    return run->phase == PHASE_GATHER && run->succession.owners != NULL;
}

/* ---- questions and answers ---- */

static bool is_asked(const struct server_entry *server)
{
    return server->link != 0 && server->asked_link == server->link;
}

static bool has_answered(const struct server_entry *server)
{
    return server->link != 0 && server->answered_link == server->link;
}

/* Whether the server has answered, and holds a part of the run. */
static bool is_holder(const struct server_entry *server)
{
    return has_answered(server) && server->held.generation > 0;
}

static void ask(struct coordinator *coordinator, struct server_entry *server)
{
    server->asked_link = server->link;
    send_command(coordinator, server, SERVER_ASK);
}

static void ask_all(struct coordinator *coordinator)
{
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->link != 0 && !is_asked(server) &&
            server->held_generation == coordinator->run.generation)
            ask(coordinator, server);
    }
}

/* The server that reports to own the chunk; NULL: none with an answer that counts. */
static struct server_entry *owner_of(const struct coordinator *coordinator, uint32_t chunk)
{
    uint32_t owner = coordinator->run.succession.owners[chunk];
    struct server_entry *server = owner > 0 ? &coordinator->servers.list[owner - 1] : NULL;
    return server != NULL && is_holder(server) ? server : NULL;
}

/* False: another server owns one of them. */
static bool note_chunks(struct coordinator *coordinator, const struct server_entry *server,
                        const struct server_held *held)
{
    uint32_t number = (uint32_t)(server - coordinator->servers.list) + 1;
    for (uint32_t i = 0; i < held->range_count; i++)
        for (uint32_t k = 0; k < held->ranges[i].count; k++) {
            uint32_t chunk = held->ranges[i].first + k;
            const struct server_entry *owner = owner_of(coordinator, chunk);
            if (owner != NULL && owner != server)
                return false;
            coordinator->run.succession.owners[chunk] = number;
        }
    return true;
}

/* P8: nothing is computed from counters that cannot be. */
static bool fits_decision(const struct run *run, const struct server_held *held)
{
    const struct commit *decision = &held->decision;
    return decision->generation == run->generation && decision->step >= held->version &&
           decision->step < run->settings.steps && decision->applied <= decision->step + 1 &&
           decision->skips_in_row <= decision->step + 1;
}

static bool fits(const struct run *run, const struct server_held *held)
{
    return held->run == run->settings.run && held->generation == run->generation &&
           held->spec == run->succession.spec && held->range_count > 0 &&
           (!held->has_decision || fits_decision(run, held));
}

enum err succession_answer(struct coordinator *coordinator, struct server_entry *server,
                           const struct server_held *held)
{
    struct run *run = &coordinator->run;
    if (!succession_is_open(run) || !is_asked(server))
        return ERR_OK; /* a rival's question (rivals.h), or nobody's */
    for (uint32_t i = 0; i < held->range_count; i++)
        if (held->ranges[i].first + held->ranges[i].count > run->chunk_count)
            return ERR_MALFORMED;
    /* Drops its earlier answer, over another link. */
    for (uint32_t c = 0; c < run->chunk_count; c++)
        if (run->succession.owners[c] == (uint32_t)(server - coordinator->servers.list) + 1)
            run->succession.owners[c] = 0;
    server->answered_link = server->link;
    server->held = *held;
    server->held.ranges = NULL; /* they are the message's memory */
    if (!fits(run, held) || !note_chunks(coordinator, server, held))
        server->held.generation = 0;
    return ERR_OK;
}

/* ---- whether it can go on ---- */

static bool all_are_owned(const struct coordinator *coordinator)
{
    for (uint32_t c = 0; c < coordinator->run.chunk_count; c++)
        if (owner_of(coordinator, c) == NULL)
            return false;
    return true;
}

/* The version that the server's newest decision makes. */
static uint64_t reached(const struct server_entry *server)
{
    return server->held.has_decision ? server->held.decision.step + 1 : server->held.version;
}

/* The holder whose newest decision is the newest of all. */
static const struct server_entry *find_newest(const struct coordinator *coordinator)
{
    const struct server_entry *newest = NULL;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        if (is_holder(server) && (newest == NULL || reached(server) > reached(newest)))
            newest = server;
    }
    return newest;
}

/* P6: a server is at most one decision behind the newest; those that are not have the same
 * decision. */
static bool agrees(const struct server_entry *server, const struct server_entry *newest)
{
    if (reached(server) == reached(newest))
        return server->held.has_decision == newest->held.has_decision &&
               (!newest->held.has_decision ||
                seal_same_decision(&server->held.decision, &newest->held.decision));
    return newest->held.has_decision && reached(server) == newest->held.decision.step;
}

/* The number of the holder's file in a cut that this coordinator orders (choose_holders()). */
static uint32_t file_of(const struct coordinator *coordinator, const struct server_entry *holder)
{
    uint32_t below = 0;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        below += is_holder(server) && strcmp(server->name, holder->name) < 0 ? 1 : 0;
    }
    return below;
}

/* P9: the last cut has the name that the dead coordinator gave it, so a server that is still
 * writing for an earlier attempt at it must not write another one's file. */
static bool files_agree(const struct coordinator *coordinator, const struct server_entry *newest)
{
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        if (is_holder(server) && server->held.has_decision && reached(server) == reached(newest) &&
            server->held.file != WIRE_FILE_NONE &&
            server->held.file != file_of(coordinator, server))
            return false;
    }
    return true;
}

/* Whether the run's last version is reached, and no cut of it is recorded. */
static bool lacks_last_cut(const struct run *run, uint64_t version)
{
    return version == run->settings.steps && version > run->cuts.newest.name.version;
}

/* Why the run cannot go on; NULL: it can. */
static const char *find_obstacle(const struct coordinator *coordinator,
                                 const struct server_entry *newest)
{
    const struct run *run = &coordinator->run;
    if (newest == NULL)
        return "no server holds it as it began";
    if (!all_are_owned(coordinator))
        return "nobody holds some of its chunks";
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        if (is_holder(server) && !agrees(server, newest))
            return "servers were told different things";
    }
    uint64_t version = reached(newest), cut = run->cuts.newest.name.version;
    if (version < cut || (!newest->held.has_decision && version > cut))
        return "its servers hold another checkpoint";
    if (lacks_last_cut(run, version) && !files_agree(coordinator, newest))
        return "its last checkpoint has the same servers in another order";
    return version > run->succession.recorded ? "the run's log misses a step" : NULL;
}

/* ---- going on ---- */

static void choose_holders(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++)
        servers_want(&servers->list[i], is_holder(&servers->list[i]));
    servers_choose_wanted(servers);
    for (uint32_t i = 0; i < servers->chosen_count; i++)
        servers_adopt(servers_of_map(servers, i), !run->steps.committed);
}

static enum err build_map(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    uint32_t *indexes = run->succession.owners; /* from here on by map index */
    for (uint32_t c = 0; c < run->chunk_count; c++)
        indexes[c] = owner_of(coordinator, c)->map_index;
    struct map map;
    TRY(map_of(indexes, run->chunk_count, &map));
    owners_take(run, &map);
    return ERR_OK;
}

static void take_decision(struct coordinator *coordinator, const struct server_entry *newest)
{
    struct run *run = &coordinator->run;
    steps_adopt(run, reached(newest), newest->held.has_decision ? &newest->held.decision : NULL,
                coordinator->settings.term);
    if (run->steps.version > run->cuts.newest.name.version)
        cuts_ask(&run->cuts);
}

/* Sends the newest decision to all, also to those that have it; then they report again which steps
 * are reduced. A server without a part in the run forgets what it holds. */
static void tell_all(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    struct servers *servers = &coordinator->servers;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->map_index != SERVERS_NONE && run->steps.committed)
            send_commit(coordinator, server);
        if (server->map_index != SERVERS_NONE)
            ask(coordinator, server);
        else if (server->link != 0)
            send_command(coordinator, server, SERVER_END);
    }
}

/* Whether what it held when this coordinator asked was the run's newest decision. */
static bool held_newest(const struct run *run, const struct server_held *held)
{
    return held->has_decision && held->decision.generation == run->generation &&
           held->decision.step + 1 == run->steps.version;
}

/* Whether it may be writing the newest version's cut into another file than that. */
static bool writes_another(const struct run *run, const struct server_entry *server, uint32_t file)
{
    uint32_t held = held_newest(run, &server->held) ? server->held.file : WIRE_FILE_NONE;
    uint32_t own = run->steps.commit.cut ? server->file : WIRE_FILE_NONE;
    return (held != WIRE_FILE_NONE && held != file) || (own != WIRE_FILE_NONE && own != file);
}

bool succession_files_stay(const struct coordinator *coordinator)
{
    uint32_t file = 0; /* as a cut numbers them */
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && writes_another(&coordinator->run, server, file++))
            return false;
    }
    return true;
}

void succession_cut_newest(struct coordinator *coordinator, uint64_t now_ms)
{
    struct run *run = &coordinator->run;
    struct cut_name newest = {run->generation, run->steps.version};
    uint32_t attempt = 0;
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_of_map(&coordinator->servers, i);
        if (server != NULL && held_newest(run, &server->held) && server->held.attempt > attempt)
            attempt = server->held.attempt;
    }
    cuts_resume(&run->cuts, newest, attempt, now_ms);
    run_due(coordinator, now_ms);
}

/* P9: there is no next commit that could bring a cut. The decision is sent to all without one, and
 * when all have it, again with an attempt that is above every other. */
static void resume_last_cut(struct coordinator *coordinator, uint64_t now_ms)
{
    if (lacks_last_cut(&coordinator->run, coordinator->run.steps.version))
        succession_cut_newest(coordinator, now_ms);
}

static enum err adopt_newest(struct coordinator *coordinator, uint64_t now_ms,
                             const struct server_entry *newest)
{
    struct run *run = &coordinator->run;
    take_decision(coordinator, newest);
    audits_adopt(run);
    check(run->steps.version >= run->cuts.newest.name.version);
    check(run->steps.version <= run->succession.recorded);
    choose_holders(coordinator);
    TRY(build_map(coordinator));
    succession_release(&run->succession);
    owners_adopt(run, coordinator->settings.term);
    moves_note_uneven(&run->moves);
    steps_time(run, now_ms);
    effects_add(&coordinator->effects, EFFECT_ADOPT)->adopted =
        (struct cut_name){run->generation, run->steps.version};
    phase_enter_state(run, RUN_TRAINING);
    send_state(coordinator);
    resume_last_cut(coordinator, now_ms);
    tell_all(coordinator);
    effects_log(&coordinator->effects, false,
                "coordinator adopts  generation=%llu step=%llu servers=%u next=go on",
                (unsigned long long)run->generation, (unsigned long long)run->steps.version,
                coordinator->servers.chosen_count);
    return ERR_OK;
}

const char *succession_missing(const struct coordinator *coordinator)
{
    const struct cut_record *cut = &coordinator->run.cuts.newest;
    for (uint32_t i = 0; i < cut->server_count; i++) {
        const struct server_entry *server =
            servers_named(&coordinator->servers, cut->servers[i].name);
        if (server == NULL || server->link == 0)
            return cut->servers[i].name;
    }
    return NULL;
}

bool succession_may_hear(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct succession *succession = &coordinator->run.succession;
    bool hears = succession->owners != NULL && now_ms < succession->until_ms &&
                 succession_missing(coordinator) != NULL;
    if (hears)
        run_due(coordinator, succession->until_ms);
    return hears;
}

/* A later answer may have a newer decision. */
static bool awaits_more(const struct coordinator *coordinator, uint64_t now_ms,
                        const struct server_entry *newest)
{
    bool unanswered = false;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        unanswered = unanswered || (is_asked(server) && !has_answered(server));
    }
    bool complete =
        newest == NULL || all_are_owned(coordinator) || succession_missing(coordinator) == NULL;
    return now_ms < coordinator->run.succession.until_ms && (unanswered || !complete);
}

enum err succession_try(struct coordinator *coordinator, uint64_t now_ms,
                        enum succession_outcome *ret_outcome)
{
    struct succession *succession = &coordinator->run.succession;
    *ret_outcome = SUCCESSION_REWINDS;
    if (succession->owners == NULL)
        return ERR_OK;
    ask_all(coordinator);
    const struct server_entry *newest = find_newest(coordinator);
    const char *obstacle = find_obstacle(coordinator, newest);
    if (obstacle == NULL) {
        *ret_outcome = SUCCESSION_GOES_ON;
        return adopt_newest(coordinator, now_ms, newest);
    }
    succession->obstacle = obstacle;
    if (awaits_more(coordinator, now_ms, newest)) {
        *ret_outcome = SUCCESSION_WAITS;
        run_due(coordinator, succession->until_ms);
    }
    return ERR_OK;
}
