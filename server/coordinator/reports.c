/* What servers report about the run. */
#include "server/coordinator/reports.h"
#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"

#include "server/coordinator/advance.h"
#include "server/coordinator/commit.h"
#include "server/coordinator/ending.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/leaving.h"
#include "server/coordinator/missing.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/phase.h"
#include "server/coordinator/send.h"
#include "server/coordinator/steps.h"
#include "server/coordinator/succession.h"
#include "server/coordinator/window.h"
#include "server/coordinator/wrong_bits.h"

#include <string.h>

static void begin_training(struct coordinator *coordinator)
{
    phase_enter_state(&coordinator->run, RUN_TRAINING);
    send_state(coordinator);
    audits_announce(coordinator);
    commit_open_version(coordinator);
}

static bool prepares_cut(const struct run *run)
{
    return run->phase == PHASE_PREPARE && run->cuts.newest.name.generation > 0;
}

/* Whether the cut that a rewind goes to may be damaged. An async run would lose what its journal
 * has beside that cut, so it goes back further only when an operator says so. */
static bool may_be_damaged(const struct run *run, enum err code)
{
    return (code == ERR_CORRUPT || code == ERR_NOT_FOUND) && prepares_cut(run) &&
           !run->settings.async;
}

/* Whether the cut may be there later: a file system is not mounted yet, or is not well. */
static bool may_come(const struct run *run, enum err code)
{
    return (code == ERR_NOT_FOUND || code == ERR_DENIED || code == ERR_IO) && prepares_cut(run);
}

/* Files that are there all the same are read by the next generation: servers try each one once. */
static void wait_for_files(struct coordinator *coordinator, uint64_t now_ms)
{
    struct unready *unready = &coordinator->run.unready;
    unready->again_ms = now_ms + coordinator->settings.lease_ms;
    run_due(coordinator, unready->again_ms);
}

static void note_unready(struct coordinator *coordinator, enum err code, const char *text)
{
    struct run *run = &coordinator->run;
    if (strcmp(run->unready.text, text) != 0)
        effects_log(&coordinator->effects, true, "%s", text);
    run->unready = (struct unready){.generation = run->generation, .code = code};
    snprintf(run->unready.text, sizeof run->unready.text, "%s", text);
}

/* The server cannot hold the chunks of its command. */
static void not_ready(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                      const struct server_report *report)
{
    struct run *run = &coordinator->run;
    enum err code = report->ready.code;
    char text[COORDINATOR_TEXT_BYTES];
    if (server->state == SERVER_IS_EMPTIED) { /* P11: it has no chunk, and leaves */
        effects_log(&coordinator->effects, true,
                    "server cannot prepare  server=%s err=%s next=without it reason=\"%.120s\"",
                    server->name, err_name(code), report->ready.text);
        return;
    }
    if (generation_may_go_back(coordinator)) {
        moves_not_taken(coordinator, server, report);
        generation_go_back(coordinator);
        return;
    }
    const char *why = report->ready.text;
    snprintf(text, sizeof text, "server %s cannot prepare: %.150s", server->name,
             why[0] != 0 ? why : err_text(code));
    if (!may_be_damaged(run, code) && !may_come(run, code)) {
        ending_over(coordinator, RUN_FAILED, text);
        return;
    }
    note_unready(coordinator, code, text);
    if (!may_be_damaged(run, code)) {
        wait_for_files(coordinator, now_ms);
        return;
    }
    run->unready.searching = true;
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_FIND_CUT);
    effect->find.version_max = UINT64_MAX;
    memcpy(effect->find.unready, text, sizeof text);
}

bool reports_want_cut(const struct run *run)
{
    const struct unready *unready = &run->unready;
    return prepares_cut(run) && unready->searching && unready->generation == run->generation;
}

void reports_cut_found(struct coordinator *coordinator, uint64_t now_ms,
                       const struct cut_record *whole, const char *unready)
{
    struct run *run = &coordinator->run;
    struct cut_name newest = run->cuts.newest.name;
    if (run_active(run) && audit_rewind_searches(run)) {
        audit_rewind_found(coordinator, whole);
        leaving_keep(coordinator);
        advance_run(coordinator, now_ms);
        return;
    }
    if (!reports_want_cut(run))
        return;
    run->unready.searching = false;
    /* P7: a newer one is of a coordinator that took this one's place; the store says so. */
    bool taken = whole != NULL && cuts_is_newer(whole->name, newest);
    bool older = whole != NULL && cuts_is_newer(newest, whole->name);
    if (!older && !taken && may_come(run, run->unready.code)) {
        wait_for_files(coordinator, now_ms);
        return;
    }
    if (!older) {
        ending_over(coordinator, RUN_FAILED, unready);
        return;
    }
    effects_log(&coordinator->effects, true,
                "checkpoint damaged  generation=%llu version=%llu steps_lost=%llu next=go back to "
                "version %llu reason=\"%.120s\"",
                (unsigned long long)newest.generation, (unsigned long long)newest.version,
                (unsigned long long)(newest.version - whole->name.version),
                (unsigned long long)whole->name.version, unready);
    cuts_go_back(&run->cuts, whole);
    leaving_keep(coordinator);
    generation_go_back(coordinator);
    advance_run(coordinator, now_ms);
}

/* P12: the other servers went on when this one lost its memory, and it is back. */
static void ready_again(struct coordinator *coordinator, struct server_entry *server)
{
    struct run *run = &coordinator->run;
    window_open(run);
    if (!run->steps.committed)
        return;
    servers_tell_commit(server);
    send_commit(coordinator, server);
}

static void all_ready(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    phase_enter(run, PHASE_FIRST_CUT);
    struct cut_name first = {run->generation, run->steps.version};
    const struct cut_record *record = cuts_by_seed(&run->cuts, first);
    if (record != NULL)
        effects_add(&coordinator->effects, EFFECT_STORE_CUT)->cut = record;
    if (run->cuts.newest.name.generation > 0 && run->moves.change != CHANGE_BEGUN)
        begin_training(coordinator);
}

static enum err ready(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                      const struct server_report *report)
{
    struct run *run = &coordinator->run;
    if (report->ready.cut.generation != run->generation)
        return ERR_OLD_GENERATION;
    if (report->ready.code != ERR_OK && run->phase == PHASE_GATHER)
        return ERR_OK; /* that generation is given up, and the next one has a PREPARE of its own */
    if (report->ready.code != ERR_OK) {
        not_ready(coordinator, now_ms, server, report);
        advance_run(coordinator, now_ms);
        return ERR_OK;
    }
    if (report->ready.cut.version != run->steps.version && run->phase == PHASE_PREPARE)
        return ERR_OLD_TERM; /* P7: another coordinator goes on in this generation */
    if (!servers_was_told(server))
        return ERR_OK; /* it will be, with the next generation */
    if (run->settings.async && server->state != SERVER_SERVES)
        TRY(window_meet(run, report));
    /* P11: a server that has given all its chunks away prepares without chunks, and the run has not
     * waited for it. */
    bool again = server->state == SERVER_PREPARES && run->phase == PHASE_STEPS;
    servers_note_ready(server);
    if (again)
        ready_again(coordinator, server);
    else if (run->phase == PHASE_PREPARE && servers_ready(&coordinator->servers))
        all_ready(coordinator);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

static enum err held(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                     const struct server_held *held)
{
    TRY(succession_answer(coordinator, server, held));
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

static enum err reduced(struct coordinator *coordinator, uint64_t now_ms,
                        const struct server_entry *server, const struct reduced *reduced)
{
    struct run *run = &coordinator->run;
    if (reduced->generation != run->generation)
        return ERR_OLD_GENERATION; /* P2: reports of another generation are fenced */
    /* async: shards that redid their journals may be through a step before the run goes on. */
    if (reduced->step < run->steps.version || (run->phase != PHASE_STEPS && !run->settings.async))
        return ERR_OK;
    if (reduced->step - run->steps.version > run->settings.delay)
        return ERR_OLD_TERM;
    for (uint32_t i = 0; i < reduced->seal_count; i++)
        if (reduced->seals[i].chunk >= run->chunk_count)
            return ERR_MALFORMED;
    /* P7: a successor in this generation may have left the chunk with the server that had it. */
    for (uint32_t i = 0; i < reduced->seal_count; i++)
        if (map_server(&run->map, reduced->seals[i].chunk) != server->map_index)
            return ERR_OLD_TERM;
    TRY(steps_reduced(run, reduced));
    if (seal_complete(run_seal(run, reduced->step)))
        advance_run(coordinator, now_ms);
    return ERR_OK;
}

static enum err committed(struct coordinator *coordinator, uint64_t now_ms,
                          struct server_entry *server, const struct server_report *report)
{
    struct run *run = &coordinator->run;
    if (report->committed.generation != run->generation)
        return ERR_OLD_GENERATION;
    if (!run->steps.committed || report->committed.step > run->steps.commit.step)
        return ERR_OLD_TERM;
    if (report->committed.step < run->steps.commit.step)
        return ERR_OK;
    check(run->steps.commit.step + 1 == run->steps.version); /* P6: nothing later is decided */
    servers_acknowledge(server);
    advance_run(coordinator, now_ms);
    return ERR_OK;
}

static void cut_recorded(struct coordinator *coordinator)
{
    struct run *run = &coordinator->run;
    check(run->cuts.newest.name.generation <= run->generation);
    check(run->cuts.newest.name.version <= run->steps.version);
    for (uint32_t i = 0; i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && server->link != 0)
            send_command(coordinator, server, SERVER_RECORDED)->recorded = (struct recorded_cut){
                run->cuts.newest.name.generation, run->cuts.newest.name.version, {0}};
    }
    if (run->moves.change == CHANGE_BEGUN)
        moves_changed(coordinator);
    effects_log(&coordinator->effects, false, "checkpoint recorded  generation=%llu version=%llu",
                (unsigned long long)run->cuts.newest.name.generation,
                (unsigned long long)run->cuts.newest.name.version);
    if (run->phase == PHASE_FIRST_CUT)
        begin_training(coordinator);
}

/* Whether the run begins or ends with this cut, for which a disk had no room, or for whose chunks a
 * server had none, as its disk is slow. A daemon that ends cannot wait: its successor goes on. */
static bool waits_for_room(const struct run *run, bool needed, enum err code)
{
    bool full = code == ERR_NO_SPACE || code == ERR_BUSY;
    return needed && full && run->ending.kind != ENDING_PAUSE;
}

/* Training goes on without the cut, except where it needs that cut. The run's first cut and its
 * last wait for room. */
static void cut_failed(struct coordinator *coordinator, uint64_t now_ms, const char *who,
                       struct cut_name cut, enum err code)
{
    struct run *run = &coordinator->run;
    const struct cut_failure failure = {who, code, run->settings.cut_bytes};
    cuts_note_error(&run->cuts, cut, &failure);
    char text[COORDINATOR_TEXT_BYTES];
    snprintf(text, sizeof text, "%.160s; the newest recorded checkpoint is of version %llu",
             run->cuts.error, (unsigned long long)run->cuts.newest.name.version);
    bool first = run->cuts.newest.name.generation == 0;
    bool last = run->phase == PHASE_LAST && cut.version == run->steps.version;
    bool begun = run->moves.change == CHANGE_BEGUN && !generation_may_go_back(coordinator);
    bool waits = waits_for_room(run, first || last || begun, code);
    effects_log(&coordinator->effects, true,
                "checkpoint failed  at=\"%s\" version=%llu err=%s needed_bytes=%llu next=%s", who,
                (unsigned long long)cut.version, err_name(code),
                (unsigned long long)run->settings.cut_bytes,
                waits                    ? "again"
                : first || last || begun ? "end"
                                         : "go on");
    if (waits) {
        cuts_wait(&run->cuts, cut, now_ms);
        run_due(coordinator, run->cuts.again_ms);
    } else if (first)
        ending_over(coordinator, RUN_FAILED, run->cuts.error);
    else if (last)
        ending_over(coordinator, run_ends(run) ? RUN_STOPPED : RUN_FAILED, text);
    else if (generation_may_go_back(coordinator)) /* training goes on where it was before */
        generation_go_back(coordinator);
    else if (begun)
        ending_over(coordinator, RUN_FAILED, text);
}

void reports_cut_stored(struct coordinator *coordinator, uint64_t now_ms, struct cut_name name,
                        enum err err)
{
    struct cuts *cuts = &coordinator->run.cuts;
    if (!run_active(&coordinator->run))
        return;
    if (err == ERR_OK && cuts_recorded(cuts, name))
        cut_recorded(coordinator);
    else if (err != ERR_OK && cuts_fail(cuts, name))
        cut_failed(coordinator, now_ms, "the coordinator", name, err);
    advance_run(coordinator, now_ms);
}

static enum err manifest(struct coordinator *coordinator, uint64_t now_ms,
                         const struct server_entry *server, const struct server_report *report)
{
    struct run *run = &coordinator->run;
    struct cut_name cut = report->manifest.cut;
    if (cut.generation != run->generation)
        return ERR_OLD_GENERATION;
    if (report->manifest.attempt != cuts_attempt(&run->cuts, cut))
        return ERR_OK; /* an earlier attempt's, again */
    if (report->manifest.code != ERR_OK) {
        char who[80];
        snprintf(who, sizeof who, "server %s", server->name);
        if (cuts_fail(&run->cuts, cut))
            cut_failed(coordinator, now_ms, who, cut, report->manifest.code);
        advance_run(coordinator, now_ms);
        return ERR_OK;
    }
    const struct cut_record *record =
        cuts_manifest(&run->cuts, cut, server->name, report->manifest.digest);
    if (record != NULL)
        effects_add(&coordinator->effects, EFFECT_STORE_CUT)->cut = record;
    return ERR_OK;
}

/* The report of a daemon that has to end. When nobody can take its chunks, it may end all the same:
 * the run waits for it, as for any lost server. */
static void drain(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server)
{
    struct reason reason;
    enum err err = leaving_drain(coordinator, server, true, &reason);
    if (err == ERR_OK) {
        advance_run(coordinator, now_ms);
        return;
    }
    effects_log(&coordinator->effects, true,
                "server cannot drain  server=%s err=%s next=it ends reason=\"%.120s\"",
                server->name, err_name(err), reason.text);
    send_command(coordinator, server, SERVER_LEAVE);
}

/* P2: while the store is asked for the next generation, nothing of the present one counts. A server
 * may know more of it than this coordinator. */
static bool counts(const struct run *run, enum server_report_kind kind)
{
    bool always = kind == SERVER_HELD || kind == SERVER_WRONG_BITS;
    return run_active(run) && (run->phase != PHASE_STORE || always);
}

enum err reports_take(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                      const struct server_report *report)
{
    if (report->kind == SERVER_STATISTICS) {
        server->pushed_bytes = report->statistics.pushed_bytes;
        server->spared_bytes = report->statistics.spared_bytes;
        server->pulled_bytes = report->statistics.pulled_bytes;
        server->duplicates = report->statistics.duplicates;
        server->audited = report->statistics.audited;
        server->open_nodes_max = report->statistics.open_nodes_max;
        server->journal_full = report->statistics.journal_full;
        return ERR_OK;
    }
    if (report->kind == SERVER_DRAIN) {
        drain(coordinator, now_ms, server);
        return ERR_OK;
    }
    if (!counts(&coordinator->run, report->kind))
        return ERR_OLD_GENERATION;
    if (report->kind == SERVER_HELD)
        return held(coordinator, now_ms, server, &report->held);
    if (report->kind == SERVER_READY && server->map_index == SERVERS_NONE) {
        moves_ready(coordinator, server, report);
        advance_run(coordinator, now_ms);
        return ERR_OK;
    }
    if (server->map_index == SERVERS_NONE)
        return ERR_OLD_GENERATION;
    switch (report->kind) {
    case SERVER_READY:
        return ready(coordinator, now_ms, server, report);
    case SERVER_REDUCED:
        return reduced(coordinator, now_ms, server, &report->reduced);
    case SERVER_COMMITTED:
        return committed(coordinator, now_ms, server, report);
    case SERVER_MANIFEST:
        return manifest(coordinator, now_ms, server, report);
    case SERVER_MISSING:
        return missing_report(coordinator, now_ms, server, report);
    case SERVER_WRONG_BITS:
        wrong_bits_report(coordinator, now_ms, server, report);
        return ERR_OK;
    default:
        return ERR_MALFORMED;
    }
}
