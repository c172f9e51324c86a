/* The coordinator's calls: each checks who may send it. advance.c does what follows. */
#include "server/coordinator/coordinator.h"

#include "server/coordinator/advance.h"
#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/ended.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/hello.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/places.h"
#include "server/coordinator/reports.h"
#include "server/coordinator/rivals.h"
#include "server/coordinator/run.h"
#include "server/coordinator/send.h"
#include "server/coordinator/start.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/suspects.h"
#include "server/coordinator/window.h"
#include "server/coordinator/wrong_bits.h"
#include "server/member/proof.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)MEMBERS_MAX == (int)COORDINATOR_MEMBERS_MAX, "one limit, two names");

struct coordinator *coordinator_new(const struct coordinator_settings *settings)
{
    struct coordinator *coordinator = calloc(1, sizeof *coordinator);
    if (coordinator == NULL)
        return NULL;
    coordinator->settings = *settings;
    coordinator->due_ms = UINT64_MAX;
    enum err effects = effects_init(&coordinator->effects);
    enum err members = members_init(&coordinator->members, settings->term, settings->lease_ms);
    coordinator->members.certificate_max = settings->certificate_members_max;
    enum err servers = servers_init(&coordinator->servers);
    enum err key = digest_mac_init(&coordinator->key);
    enum err ended = ended_init(&coordinator->ended);
    if (effects != ERR_OK || members != ERR_OK || servers != ERR_OK || key != ERR_OK ||
        ended != ERR_OK) {
        coordinator_free(coordinator);
        return NULL;
    }
    digest_mac_set_key(&coordinator->key, settings->key);
    return coordinator;
}

void coordinator_free(struct coordinator *coordinator)
{
    if (coordinator == NULL)
        return;
    start_release(&coordinator->run);
    digest_mac_release(&coordinator->key);
    ended_release(&coordinator->ended);
    servers_release(&coordinator->servers);
    members_release(&coordinator->members);
    effects_release(&coordinator->effects);
    free(coordinator);
}

const struct effect *coordinator_effects(const struct coordinator *coordinator, size_t *ret_count)
{
    *ret_count = coordinator->effects.count;
    return coordinator->effects.items;
}

void coordinator_effects_clear(struct coordinator *coordinator)
{
    coordinator->effects.count = 0;
}

/* ---- the run ---- */

enum err coordinator_may_start_any(const struct coordinator *coordinator, struct reason *reason)
{
    return start_judge_any(&coordinator->run, reason);
}

enum err coordinator_may_start(const struct coordinator *coordinator,
                               const struct coordinator_run *run,
                               const struct coordinator_past *past, struct reason *reason)
{
    uint32_t chunk_count;
    return start_judge(&coordinator->run, run, past, &chunk_count, reason);
}

enum err coordinator_start(struct coordinator *coordinator, uint64_t now_ms,
                           const struct coordinator_run *run, const struct coordinator_past *past,
                           struct reason *reason)
{
    TRY(start_run(coordinator, now_ms, run, past, reason));
    coordinator_expect_run(coordinator, false);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

void coordinator_expect_run(struct coordinator *coordinator, bool expected)
{
    coordinator->expects_run = expected;
}

enum err coordinator_stop(struct coordinator *coordinator, uint64_t now_ms, const char *why)
{
    if (!run_active(&coordinator->run))
        return ERR_NO_RUN;
    ending_stop(coordinator, now_ms, why);
    if (run_active(&coordinator->run))
        advance_run(coordinator, now_ms);
    return ERR_OK;
}

enum err coordinator_pause(struct coordinator *coordinator, uint64_t now_ms, const char *why)
{
    if (!run_active(&coordinator->run))
        return ERR_NO_RUN;
    ending_begin(coordinator, now_ms, ENDING_PAUSE, why);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

enum err coordinator_checkpoint(struct coordinator *coordinator)
{
    if (!run_active(&coordinator->run))
        return ERR_NO_RUN;
    struct cuts *cuts = &coordinator->run.cuts;
    uint64_t next = coordinator->run.steps.version + 1;
    if (cuts->asked_at > next) /* before a rewind, by somebody who waits for that version */
        cuts_ask(cuts);
    cuts_ask_at(cuts, next);
    return ERR_OK;
}

/* ---- servers ---- */

uint64_t coordinator_term_for(const struct coordinator *coordinator,
                              const struct server_report *hello)
{
    bool newer = hello->kind == SERVER_HELLO && hello->hello.term > coordinator->settings.term;
    return newer ? hello->hello.term + 1 : coordinator->settings.term;
}

void coordinator_take_term(struct coordinator *coordinator, const struct server_report *hello)
{
    uint64_t older = coordinator->settings.term;
    coordinator->settings.term = coordinator_term_for(coordinator, hello);
    if (coordinator->settings.term == older)
        return;
    members_raise_term(&coordinator->members, coordinator->settings.term);
    leases_number_above(&coordinator->run.tickets.leases, coordinator->settings.term << 32);
    steps_raise_term(&coordinator->run, coordinator->settings.term);
    effects_log(&coordinator->effects, true,
                "server has obeyed a newer term  server=%s theirs=%llu ours=%llu next=term %llu",
                hello->hello.name, (unsigned long long)hello->hello.term, (unsigned long long)older,
                (unsigned long long)coordinator->settings.term);
}

static enum err judge_wire(struct coordinator *coordinator, const struct server_report *hello,
                           struct reason *reason)
{
    uint32_t oldest = hello->hello.wire_version_min, newest = hello->hello.wire_version;
    if (wire_speaks(oldest, newest))
        return ERR_OK;
    effects_log(&coordinator->effects, true,
                "server refused  server=%s address=%s err=%s next=it ends", hello->hello.name,
                hello->hello.address, err_name(ERR_WIRE_VERSION));
    return reason_set(reason, ERR_WIRE_VERSION,
                      "server %s speaks the wire versions %u to %u, the coordinator %u to %u: "
                      "install the same roost on both",
                      hello->hello.name, oldest, newest, (unsigned)WIRE_VERSION_MIN,
                      (unsigned)WIRE_VERSION);
}

/* Machines that come and go have a new name each time: one that is gone gives way to another. */
static enum err know_server(struct coordinator *coordinator, const char *name,
                            struct server_entry **ret_server)
{
    struct servers *servers = &coordinator->servers;
    enum err err = servers_make(servers, name, ret_server);
    for (uint32_t i = 0; i < servers->count && err == ERR_BUSY; i++) {
        struct server_entry *server = &servers->list[i];
        if (!cuts_need(&coordinator->run.cuts, server->name) && servers_forget_gone(server))
            err = servers_make(servers, name, ret_server);
    }
    return err;
}

enum err coordinator_server_hello(struct coordinator *coordinator, uint64_t now_ms,
                                  const struct server_report *hello, uint64_t *ret_link,
                                  struct reason *reason)
{
    struct server_entry *server;
    if (hello->kind != SERVER_HELLO || hello->hello.name[0] == 0)
        return reason_set(reason, ERR_MALFORMED, "a server's first report must be its hello");
    check(hello->hello.term <= coordinator->settings.term); /* P7: coordinator_take_term() */
    uint64_t older;
    TRY(judge_wire(coordinator, hello, reason));
    TRY(rivals_judge(coordinator, now_ms, hello, reason));
    if (know_server(coordinator, hello->hello.name, &server) != ERR_OK)
        return reason_set(reason, ERR_BUSY, "server %s is one too many: %u are known",
                          hello->hello.name, (unsigned)WIRE_SERVERS_MAX);
    TRY(servers_hello(&coordinator->servers, hello, &server, &older));
    *ret_link = server->link;
    if (older != 0)
        effects_add(&coordinator->effects, EFFECT_UNLINK)->link = older;
    effects_log(&coordinator->effects, false,
                "server connected  server=%s address=%s boot=%llu generation=%llu version=%llu",
                server->name, server->address, (unsigned long long)server->boot,
                (unsigned long long)hello->hello.generation,
                (unsigned long long)hello->hello.version);
    hello_answer(coordinator, server);
    ended_tell_again(coordinator, server);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

enum err coordinator_server_report(struct coordinator *coordinator, uint64_t now_ms, uint64_t link,
                                   const struct server_report *report)
{
    struct server_entry *server = servers_find(&coordinator->servers, link);
    if (server == NULL)
        return ERR_NOT_FOUND;
    if (report->boot != server->boot)
        return ERR_OLD_BOOT; /* P3 */
    if (report->kind == SERVER_HELD)
        rivals_note_answer(server);
    enum err err = reports_take(coordinator, now_ms, server, report);
    ended_tell(coordinator); /* it may show that a worker computes wrongly */
    return err;
}

void coordinator_server_lost(struct coordinator *coordinator, uint64_t now_ms, uint64_t link)
{
    struct server_entry *server = servers_find(&coordinator->servers, link);
    if (server == NULL)
        return;
    servers_lost(server);
    bool ours = server->map_index != SERVERS_NONE && server->state != SERVER_IS_EMPTIED &&
                run_active(&coordinator->run);
    effects_log(&coordinator->effects, ours, "server lost  server=%s next=%s", server->name,
                ours ? "wait for it" : "go on");
    if (ours)
        generation_server_lost(coordinator, server);
    advance_run(coordinator, now_ms);
}

enum err coordinator_drain(struct coordinator *coordinator, uint64_t now_ms, const char *name,
                           struct coordinator_drained *ret_drained, struct reason *reason)
{
    struct server_entry *server = servers_named(&coordinator->servers, name);
    if (server == NULL)
        return reason_set(reason, ERR_NOT_FOUND, "no server %.64s is known", name);
    TRY(leaving_drain(coordinator, server, false, reason));
    advance_run(coordinator, now_ms);
    const struct run *run = &coordinator->run;
    *ret_drained = (struct coordinator_drained){
        .drained = server->leaving == SERVER_HAS_LEFT,
        .chunks_left =
            server->map_index == SERVERS_NONE ? 0 : map_chunks(&run->map, server->map_index),
    };
    return ERR_OK;
}

enum err coordinator_give_up(struct coordinator *coordinator, uint64_t now_ms, const char *name,
                             struct reason *reason)
{
    TRY(leaving_may_be_asked(coordinator, reason));
    struct server_entry *server = servers_named(&coordinator->servers, name);
    /* A new coordinator has not met a server that died before. Of a nameless cut all names are "". */
    if (server == NULL && name[0] != 0 &&
        cuts_file(&coordinator->run.cuts.newest, name) != WIRE_SERVERS_MAX &&
        know_server(coordinator, name, &server) != ERR_OK)
        server = NULL;
    if (server == NULL)
        return reason_set(reason, ERR_NOT_FOUND, "no server %.64s is known", name);
    TRY(leaving_give_up(coordinator, server, reason));
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

void coordinator_cut_stored(struct coordinator *coordinator, uint64_t now_ms, struct cut_name name,
                            enum err err)
{
    reports_cut_stored(coordinator, now_ms, name, err);
}

void coordinator_rewind_stored(struct coordinator *coordinator, uint64_t now_ms,
                               uint64_t generation, enum err err)
{
    if (run_active(&coordinator->run))
        advance_generation_stored(coordinator, now_ms, generation, err);
}

void coordinator_fingerprint_stored(struct coordinator *coordinator, uint64_t now_ms)
{
    coordinator->run.fingerprint_late = false;
    if (run_active(&coordinator->run))
        advance_run(coordinator, now_ms);
}

void coordinator_state_stored(struct coordinator *coordinator)
{
    ending_stored(coordinator);
}

bool coordinator_wants_cut(const struct coordinator *coordinator)
{
    const struct run *run = &coordinator->run;
    return run_active(run) && (audit_rewind_searches(run) || reports_want_cut(run));
}

void coordinator_cut_found(struct coordinator *coordinator, uint64_t now_ms,
                           const struct cut_record *whole, const char *unready)
{
    reports_cut_found(coordinator, now_ms, whole, unready);
}

/* ---- members ---- */

enum err coordinator_heartbeat(struct coordinator *coordinator, uint64_t now_ms, uint64_t member)
{
    struct member *found = members_find(&coordinator->members, member);
    if (found == NULL)
        return ERR_UNKNOWN_MEMBER;
    found->seen_ms = now_ms;
    if (run_end_is_told(&coordinator->run))
        send_over(coordinator, member); /* the member's stream may be newer than the first notice */
    return ERR_OK;
}

enum err coordinator_member_report(struct coordinator *coordinator, uint64_t now_ms,
                                   uint64_t member, const struct member_report *report)
{
    TRY(coordinator_heartbeat(coordinator, now_ms, member));
    struct member *found = members_find(&coordinator->members, member);
    found->kept_bytes = report->kept_bytes;
    if (places_report(coordinator, now_ms, found, report))
        advance_run(coordinator, now_ms);
    return ERR_OK;
}

enum err coordinator_member_hello(struct coordinator *coordinator, uint64_t now_ms,
                                  const struct member_report *report)
{
    const struct member *member =
        members_prove(&coordinator->members, report->member, &report->secret);
    if (member == NULL)
        return ERR_UNKNOWN_MEMBER;
    places_tell(coordinator, member); /* its stream may be newer than a notice */
    return coordinator_heartbeat(coordinator, now_ms, report->member);
}

void coordinator_member_lost(struct coordinator *coordinator, uint64_t now_ms, uint64_t member,
                             const char *why)
{
    struct member *found = members_find(&coordinator->members, member);
    if (found == NULL)
        return;
    found->killed = places_computes(&coordinator->run, found);
    bool twice = found->killed &&
                 suspects_killed_before(&coordinator->members, found, coordinator->run.gangs.ranks);
    if (run_active(&coordinator->run) && twice)
        advance_member_gone(coordinator, now_ms, found, MEMBER_KILLED_TWICE,
                            "its stream broke twice in a stage: has it memory enough?");
    else if (run_active(&coordinator->run))
        advance_member_gone(coordinator, now_ms, found, MEMBER_ERROR, why);
    else
        advance_member_gone(coordinator, now_ms, found, MEMBER_LEFT, "the run is over");
    ended_tell(coordinator);
}

/* What the reason begins with. */
static enum member_state state_of_leave(const char *reason)
{
    static const enum member_state states[] = {MEMBER_PREEMPTED, MEMBER_TOO_SMALL};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        const char *name = member_state_name(states[i]);
        if (strncmp(reason, name, strlen(name)) == 0)
            return states[i];
    }
    return MEMBER_LEFT;
}

enum err coordinator_leave(struct coordinator *coordinator, uint64_t now_ms,
                           const struct leave_request *request)
{
    struct member *member = members_prove(&coordinator->members, request->member, &request->secret);
    if (member == NULL)
        return ERR_UNKNOWN_MEMBER;
    effects_add(&coordinator->effects, EFFECT_EXPEL)->member = member->id;
    advance_member_gone(coordinator, now_ms, member, state_of_leave(request->reason),
                        request->reason);
    ended_tell(coordinator);
    return ERR_OK;
}

/* P2: acquire and complete of another generation than the run's are refused. */
static enum err fence(const struct coordinator *coordinator, uint64_t generation)
{
    if (generation < coordinator->run.generation)
        return ERR_OLD_GENERATION;
    return generation > coordinator->run.generation ? ERR_MALFORMED : ERR_OK;
}

/* Its newest ticket. */
static bool still_holds(const struct run *run, const struct member *member)
{
    return run->gangs.seats > 0 ? places_hold(run, member)
                                : tickets_find(&run->tickets, member->ticket.attempt) != NULL;
}

enum err coordinator_acquire(struct coordinator *coordinator, uint64_t now_ms,
                             const struct acquire_request *request)
{
    const struct acquire_reply wait = {.result = ACQUIRE_WAIT};
    struct run *run = &coordinator->run;
    struct member *member = members_prove(&coordinator->members, request->member, &request->secret);
    if (member == NULL)
        return ERR_UNKNOWN_MEMBER;
    member->seen_ms = now_ms;
    TRY(fence(coordinator, request->generation));
    if (request->sequence < member->sequence)
        return ERR_TOO_LATE;
    bool again = request->sequence == member->sequence;
    if (!again && tickets_held(&run->tickets, member->id) >= COORDINATOR_LEASES_MAX)
        return ERR_BUSY;
    member->sequence = request->sequence;
    if (run_end_is_told(run)) {
        send_answer(coordinator, member, ERR_OK, &(struct acquire_reply){.result = ACQUIRE_END});
        return ERR_OK;
    }
    if (again && still_holds(run, member)) {
        /* P1: acquire asked again returns the lease already given. */
        send_ticket(coordinator, member);
        return ERR_OK;
    }
    if (again && places_late(run, member->ticket.attempt))
        places_leave(coordinator, now_ms, member, member->ticket.attempt);
    member->ticket.attempt = 0;
    members_park(&coordinator->members, member, now_ms + request->wait_ms);
    run_due(coordinator, member->parked_until_ms);
    advance_run(coordinator, now_ms);
    if (member->parked && request->wait_ms == 0)
        send_answer(coordinator, member, ERR_OK, &wait);
    return ERR_OK;
}

/* P1: a lease may have lapsed; what was granted once may be completed. */
static bool was_granted(struct coordinator *coordinator, const struct complete_request *request)
{
    const struct ticket *ticket = &request->ticket;
    bool audited;
    return ticket->member == request->member &&
           proof_granted(&coordinator->key, coordinator->run.settings.run, ticket, &audited);
}

/* Whether a held-out piece can have brought that. */
static bool result_fits(const struct coordinator_run *settings,
                        const struct complete_request *request)
{
    uint64_t first = (uint64_t)request->ticket.node.index * settings->slot_samples;
    uint64_t left = settings->validation_samples - first;
    uint64_t samples = left < settings->slot_samples ? left : settings->slot_samples;
    return !(request->loss_sum < 0) && request->sample_count == samples &&
           request->correct_count <= samples * settings->seal.sample_predictions;
}

/* What stage and rank say is the worker's word: of a pair that no place has, the sum may still be a
 * seat's number. */
static bool place_valid(const struct gangs *gangs, const struct place *place)
{
    return gangs->seats == 0 ||
           (place->rank < gangs->ranks && place->stage < gangs->seats / gangs->ranks);
}

static enum err ticket_valid(const struct run *run, const struct complete_request *request)
{
    const struct ticket *ticket = &request->ticket;
    uint32_t pieces = run->validation.piece_count;
    bool train = ticket->kind == TICKET_TRAIN;
    uint64_t ahead = !train                ? 0
                     : run->settings.async ? window_steps(&run->settings) + 1
                                           : run->settings.delay;
    if (!place_valid(&run->gangs, &request->place))
        return ERR_MALFORMED;
    if (ticket->step > run->steps.version + ahead)
        return ERR_MALFORMED;
    if (train && run->settings.async && ticket->node.level != 0)
        return ERR_MALFORMED;
    if (train)
        return node_valid(ticket->node, run->settings.slots) ? ERR_OK : ERR_MALFORMED;
    if (ticket->node.level != 0 || ticket->node.index >= pieces)
        return ERR_MALFORMED;
    bool brings =
        request->outcome == ERR_OK && /* the place that has the last unit */
        (run->gangs.seats == 0 || request->place.stage == run->gangs.seats / run->gangs.ranks - 1);
    return brings && !result_fits(&run->settings, request) ? ERR_MALFORMED : ERR_OK;
}

/* A version whose held-out loss is not finite has no row of validation; nobody waits for one.
 * Whether it may have one still. */
static bool add_result(struct coordinator *coordinator, const struct ticket *ticket,
                       const struct validation_result *result)
{
    struct run *run = &coordinator->run;
    if (validation_add(&run->validation, ticket->node.index, result))
        return true;
    commit_stop_validation(run);
    effects_log(&coordinator->effects, true,
                "validation not finite  worker=%s version=%llu next=none of this version",
                members_name(&coordinator->members, result->member),
                (unsigned long long)ticket->version);
    return false;
}

/* The ticket is done. Returns the slots that this made done. */
static uint32_t take_done(struct coordinator *coordinator, uint64_t now_ms,
                          const struct ticket *ticket, const struct validation_result *result)
{
    struct run *run = &coordinator->run;
    bool train = ticket->kind == TICKET_TRAIN;
    bool open = train ? run->phase == PHASE_STEPS : run->validation.running;
    if (!open || (!train && !add_result(coordinator, ticket, result)))
        return 0;
    uint32_t done = tickets_done(&run->tickets, now_ms, ticket);
    if (train && run->settings.async && done > 0)
        window_done(run, ticket);
    return done;
}

static void drop(struct run *run, uint64_t now_ms, const struct member *member,
                 const struct complete_request *request)
{
    const struct ticket *ticket = &request->ticket;
    bool train = ticket->kind == TICKET_TRAIN, full = request->outcome == ERR_BUSY;
    if (train && full && !run->settings.async)
        tickets_refused(&run->tickets, now_ms, ticket->attempt, member->id);
    else
        tickets_drop(&run->tickets, now_ms, ticket->attempt, member->id);
    if (train)
        audits_lost(run, member->id, ticket->attempt);
    if (train && run->settings.async && request->outcome == ERR_BEYOND)
        window_refused(run);
}

static void complete_whole(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                           const struct complete_request *request)
{
    const struct validation_result result = {request->loss_sum, request->sample_count,
                                             request->correct_count, member->id};
    member->slots_done += take_done(coordinator, now_ms, &request->ticket, &result);
}

static void complete_place(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                           const struct complete_request *request)
{
    struct ticket ticket;
    struct validation_result result;
    const struct gang *gang = places_completes(&coordinator->run, member, request);
    if (gang != NULL)
        wrong_bits_said(coordinator, now_ms, gang, member->seat, request);
    member = members_find(&coordinator->members, request->member);
    if (member == NULL) /* it was expelled just now */
        return;
    if (!places_complete(coordinator, now_ms, member, request, &ticket, &result))
        return;
    if (ticket.kind == TICKET_TRAIN)
        audits_done(&coordinator->run, &ticket);
    uint32_t done = take_done(coordinator, now_ms, &ticket, &result);
    places_done(coordinator, now_ms, &ticket, done);
}

enum err coordinator_complete(struct coordinator *coordinator, uint64_t now_ms,
                              const struct complete_request *request)
{
    struct run *run = &coordinator->run;
    const struct ticket *ticket = &request->ticket;
    struct member *member = members_prove(&coordinator->members, request->member, &request->secret);
    if (member == NULL)
        return ERR_UNKNOWN_MEMBER;
    member->seen_ms = now_ms;
    TRY(fence(coordinator, ticket->generation));
    TRY(ticket_valid(run, request));
    if (!was_granted(coordinator, request))
        return ERR_NO_GRANT;
    bool train = ticket->kind == TICKET_TRAIN, async = train && run->settings.async;
    if (train && request->outcome == ERR_OK && run->gangs.seats == 0)
        audits_done(run, ticket);
    bool late = !async && ticket->step < run->steps.version;
    if (!run_active(run) || (late && !places_late(run, ticket->attempt)))
        return ERR_OK; /* the step was committed without it */
    if (request->again)
        tickets_untimed(&run->tickets, ticket->attempt);
    if (run->gangs.seats > 0)
        complete_place(coordinator, now_ms, member, request);
    else if (request->outcome == ERR_OK &&
             (!async || window_boots_hold(coordinator, request))) /* P12 */
        complete_whole(coordinator, now_ms, member, request);
    else
        drop(run, now_ms, member, request);
    if (tickets_all_done(&run->tickets, TICKET_TRAIN))
        run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    if (run->window.refused)
        run_due(coordinator, now_ms);
    advance_run(coordinator, now_ms);
    ended_tell(coordinator); /* it may show that a worker computes wrongly */
    return ERR_OK;
}

/* ---- time ---- */

uint64_t coordinator_next_ms(const struct coordinator *coordinator)
{
    return coordinator->due_ms;
}

/* The caller stood still: what members said meanwhile is on its way. Once in a lease, so that who is
 * always late finds out who is gone. */
static void spare_members(struct coordinator *coordinator, uint64_t now_ms, uint64_t late_ms)
{
    const struct coordinator_settings *settings = &coordinator->settings;
    struct members *members = &coordinator->members;
    if (late_ms > settings->heartbeat_ms && now_ms >= members->spared_until_ms + settings->lease_ms)
        members->spared_until_ms = now_ms + 2 * (uint64_t)settings->heartbeat_ms;
}

static void tick_members(struct coordinator *coordinator, uint64_t now_ms)
{
    const struct acquire_reply wait = {.result = ACQUIRE_WAIT};
    struct member *member;
    uint32_t lost = 0;
    while (lost < EFFECTS_LOST_MAX &&
           (member = members_find_due(&coordinator->members, now_ms)) != NULL) {
        if (members_lapse_ms(&coordinator->members, member) > now_ms) {
            send_answer(coordinator, member, ERR_OK, &wait);
            continue;
        }
        char why[MEMBERS_REASON_BYTES];
        snprintf(why, sizeof why, "silent for %llu ms",
                 (unsigned long long)(now_ms - member->seen_ms));
        effects_add(&coordinator->effects, EFFECT_EXPEL)->member = member->id;
        advance_member_gone(coordinator, now_ms, member, MEMBER_TIMED_OUT, why);
        lost++;
    }
    run_due(coordinator, members_due_ms(&coordinator->members));
}

void coordinator_tick(struct coordinator *coordinator, uint64_t now_ms)
{
    uint64_t run_due_ms;
    uint64_t late_ms = now_ms > coordinator->due_ms ? now_ms - coordinator->due_ms : 0;
    coordinator->due_ms = UINT64_MAX;
    spare_members(coordinator, now_ms, late_ms);
    tick_members(coordinator, now_ms);
    ended_tell(coordinator);
    advance_tick(coordinator, now_ms, &run_due_ms);
    run_due(coordinator, run_due_ms);
}
