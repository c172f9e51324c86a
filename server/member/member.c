/* A server as its coordinator sees it. */
#include "server/member/member.h"

#include <string.h>

void member_init(struct server_member *member, uint64_t boot, uint32_t thread_count)
{
    check(thread_count <= MEMBER_THREADS_MAX);
    memset(member, 0, sizeof *member);
    member->boot = boot;
    member->thread_count = thread_count;
}

void member_release(struct server_member *member)
{
    holdings_release(&member->holdings);
}

/* ---- effects ---- */

static void clear_effects(struct member_effects *ret_effects)
{
    ret_effects->count = 0;
}

static struct member_effect *add(struct member_effects *effects, enum member_effect_kind kind)
{
    check(effects->count < MEMBER_EFFECTS_MAX);
    struct member_effect *effect = &effects->list[effects->count++];
    *effect = (struct member_effect){.kind = kind};
    return effect;
}

/* P3: every report names this start of the server. */
static struct server_report *add_report(const struct server_member *member,
                                        struct member_effects *effects,
                                        enum server_report_kind kind)
{
    struct server_report *report = &add(effects, MEMBER_REPORT)->report;
    report->kind = kind;
    report->boot = member->boot;
    return report;
}

/* ---- what the threads have done ---- */

static bool all_ready(const struct server_member *member)
{
    for (uint32_t i = 0; i < member->thread_count; i++)
        if (!member->threads[i].ready)
            return false;
    return member->held.generation != 0;
}

static uint64_t committed_by_all(const struct server_member *member)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < member->thread_count; i++)
        if (member->threads[i].committed < least)
            least = member->threads[i].committed;
    return least;
}

/* P6 begins here: a server is ready when all of its threads are. */
static void report_ready(const struct server_member *member, struct member_effects *effects)
{
    if (!all_ready(member))
        return;
    effects->reason = member->prepare_reason;
    struct server_report *report = add_report(member, effects, SERVER_READY);
    report->ready.cut = (struct cut_name){member->held.generation, member->committed};
    report->ready.code = member->prepare_err;
    report->ready.text = effects->reason.text;
    report->ready.invitation = member->invitation;
    if (member->async)
        report->ready.applied_low = member->taken_known ? member->taken.low : UINT64_MAX;
    if (member->taken_known) {
        report->ready.applied_words = applied_words(member->taken.window);
        report->ready.applied = member->taken_sent;
    }
}

static void report_committed(const struct server_member *member, uint64_t step,
                             struct member_effects *effects)
{
    struct server_report *report = add_report(member, effects, SERVER_COMMITTED);
    report->committed.generation = member->held.generation;
    report->committed.step = step;
}

static void report_statistics(const struct server_member *member, struct member_effects *effects)
{
    struct server_report *report = add_report(member, effects, SERVER_STATISTICS);
    for (uint32_t i = 0; i < member->thread_count; i++) {
        const struct shard_statistics *statistics = &member->threads[i].statistics;
        report->statistics.pushed_bytes += statistics->pushed_bytes;
        report->statistics.spared_bytes += statistics->spared_bytes;
        report->statistics.pulled_bytes += statistics->pulled_bytes;
        report->statistics.duplicates += statistics->duplicates;
        report->statistics.audited += statistics->audited;
        report->statistics.open_nodes_max += statistics->open_nodes_max;
    }
    report->statistics.journal_full = member->journal_full;
}

void member_thread_ready(struct server_member *member, const struct member_ready *ready,
                         struct member_effects *ret_effects)
{
    check(ready->thread < member->thread_count);
    clear_effects(ret_effects);
    /* P2: a report of another generation counts for nothing. This thread has prepared an older
     * one. */
    if (ready->generation != member->held.generation)
        return;
    member->threads[ready->thread].ready = true;
    if (member->async && ready->shard != NULL &&
        shard_meet(ready->shard, &member->taken, !member->taken_known)) {
        member->taken_known = true;
        applied_store(&member->taken, member->taken_sent);
    }
    if (ready->err != ERR_OK && member->prepare_err == ERR_OK) {
        member->prepare_err = ready->err;
        member->prepare_reason = *ready->reason;
    }
    if (!all_ready(member))
        return;
    add(ret_effects, MEMBER_SERVE)->generation = ready->generation;
    report_ready(member, ret_effects);
}

void member_thread_reduced(const struct server_member *member, const struct reduced *reduced,
                           struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    add_report(member, ret_effects, SERVER_REDUCED)->reduced = *reduced;
}

void member_thread_committed(struct server_member *member, const struct member_committed *committed,
                             struct member_effects *ret_effects)
{
    check(committed->thread < member->thread_count);
    struct member_thread *thread = &member->threads[committed->thread];
    clear_effects(ret_effects);
    thread->statistics = *committed->statistics;
    /* P2: a step of an older generation counts for nothing. */
    if (committed->generation != member->held.generation)
        return;
    if (thread->committed < committed->step + 1)
        thread->committed = committed->step + 1;
    /* P6: the server acknowledges commit(t) when all of its threads have carried it out. A thread
     * that repeats its acknowledgement repeats the server's. */
    uint64_t all = committed_by_all(member);
    if (all <= committed->step)
        return;
    if (all > member->committed)
        member->committed = all;
    report_statistics(member, ret_effects);
    report_committed(member, committed->step, ret_effects);
}

void member_thread_missing(const struct server_member *member, const struct member_missing *missing,
                           struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    struct server_report *report = add_report(member, ret_effects, SERVER_MISSING);
    report->missing.generation = missing->generation;
    report->missing.step = missing->step;
    report->missing.question = missing->question;
    report->missing.slots = missing->slots;
    report->missing.lack_count = missing->lack_count;
    report->missing.lacks = missing->lacks;
    report->missing.word_count = WIRE_SLOT_WORDS_MAX;
    while (report->missing.word_count > 0 && missing->slots[report->missing.word_count - 1] == 0)
        report->missing.word_count--;
}

void member_wrong_bits(const struct server_member *member, const struct shard_effect *effect,
                       struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    struct server_report *report = add_report(member, ret_effects, SERVER_WRONG_BITS);
    report->wrong_bits.member = effect->wrong_bits.member;
    report->wrong_bits.first_member = effect->wrong_bits.first_member;
    report->wrong_bits.step = effect->wrong_bits.step;
    report->wrong_bits.node = effect->wrong_bits.node;
    report->wrong_bits.chunk = effect->wrong_bits.chunk;
}

void member_cut_written(struct server_member *member, const struct member_cut *cut,
                        struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    /* P2: a cut of an older generation is not reported. Its files are pruned with the others. */
    if (cut->name.generation != member->held.generation)
        return;
    struct server_report *report = add_report(member, ret_effects, SERVER_MANIFEST);
    report->manifest.cut = cut->name;
    report->manifest.attempt = cut->attempt;
    report->manifest.code = cut->err;
    memcpy(report->manifest.digest, cut->manifest, WIRE_DIGEST_BYTES);
    member->manifest = *report;
    member->has_manifest = true;
}

void member_journal_full(struct server_member *member, bool full,
                         struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    member->journal_full = full;
    report_statistics(member, ret_effects);
}

/* ---- commands ---- */

static void take_prepare(struct server_member *member, const struct server_command *command,
                         struct member_effects *effects)
{
    uint64_t generation = command->prepare.generation;
    member->told = true;
    member->term.run = command->prepare.run;
    member->invitation = command->prepare.invitation;
    if (generation == member->held.generation)
        report_ready(member, effects); /* asked again: reported again */
    if (generation <= member->held.generation)
        return;
    if (generation > member->prepared)
        member->prepared = generation;
    bool goes_on = command->prepare.from_cut || command->prepare.joins;
    uint64_t version = goes_on ? command->prepare.cut.version : 0;
    member->held = (struct cut_name){generation, version};
    member->prepare_err = ERR_OK;
    member->prepare_reason = (struct reason){{0}};
    member->committed = version;
    member->has_manifest = false;
    memset(member->threads, 0, sizeof member->threads);
    holdings_prepare(&member->holdings, command);
    add(effects, MEMBER_PREPARE);
}

void member_prepared(struct server_member *member, const struct shard_async *async)
{
    member->async = async->on;
    member->taken_known = false;
    member->taken = (struct applied){0, applied_window(async->window), member->taken_words};
}

void member_prepare_failed(struct server_member *member, enum err err, const struct reason *reason,
                           struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    member->prepare_err = err;
    member->prepare_reason = *reason;
    for (uint32_t i = 0; i < member->thread_count; i++)
        member->threads[i].ready = true; /* no thread will report it */
    report_ready(member, ret_effects);
}

static void take_commit(struct server_member *member, const struct server_command *command,
                        struct member_effects *effects)
{
    /* A later attempt at the cut needs no other part of the journal than the first one. */
    if (member->async && command->commit.cut && command->attempt == 0)
        add(effects, MEMBER_JOURNAL_CUT)->version = command->commit.step + 1;
    holdings_commit(&member->holdings, command);
    add(effects, MEMBER_COMMIT);
}

void member_moves_lost(struct server_member *member)
{
    holdings_end(&member->holdings);
}

static void take_recorded(const struct server_member *member, const struct server_command *command,
                          struct member_effects *effects)
{
    add(effects, MEMBER_PRUNE)->recorded = command->recorded;
    if (member->async)
        add(effects, MEMBER_JOURNAL_PRUNE)->recorded = command->recorded;
}

static void end_run(struct server_member *member, struct member_effects *effects)
{
    holdings_end(&member->holdings);
    member->told = true;
    member->term.run = 0;
    member->held = (struct cut_name){0, 0};
    member->invitation = 0;
    member->committed = 0;
    member->has_manifest = false;
    memset(member->threads, 0, sizeof member->threads);
    add(effects, MEMBER_SERVE)->generation = 0;
    add(effects, MEMBER_END);
}

static void report_all(const struct server_member *member, struct member_effects *effects)
{
    report_ready(member, effects);
    if (member->draining)
        add_report(member, effects, SERVER_DRAIN);
    if (member->journal_full)
        report_statistics(member, effects);
    if (member->committed > member->held.version)
        report_committed(member, member->committed - 1, effects);
    if (member->has_manifest)
        add(effects, MEMBER_REPORT)->report = member->manifest;
    add(effects, MEMBER_REPORT_REDUCED);
}

/* P7: the coordinator's term is adopted by now, so nobody else's decisions are taken any more. */
static void answer_successor(const struct server_member *member, struct member_effects *effects)
{
    struct server_report *report = add_report(member, effects, SERVER_HELD);
    if (all_ready(member) && member->prepare_err == ERR_OK)
        report->held = holdings_answer(&member->holdings, member->committed);
    report_all(member, effects);
}

/* P7: a newer term is adopted before anything is answered, and with it the key of its proofs. */
static void adopt_term(struct server_member *member, const struct server_command *command)
{
    member->term.term = command->term;
    memcpy(member->term.key, command->key, sizeof member->term.key);
}

static bool same_term(const struct admission_term *a, const struct admission_term *b)
{
    return a->term == b->term && a->run == b->run && memcmp(a->key, b->key, sizeof a->key) == 0;
}

/* Carries the command out in the core. */
static void take_command(struct server_member *member, const struct server_command *command,
                         struct member_effects *ret_effects)
{
    switch (command->kind) {
    case SERVER_PREPARE:
        take_prepare(member, command, ret_effects);
        break;
    case SERVER_COMMIT:
        take_commit(member, command, ret_effects);
        break;
    case SERVER_RECORDED:
        take_recorded(member, command, ret_effects);
        break;
    case SERVER_END:
        end_run(member, ret_effects);
        break;
    case SERVER_LEAVE:
        end_run(member, ret_effects);
        member->may_leave = true;
        break;
    case SERVER_ENDED:
        add(ret_effects, MEMBER_ENDED);
        break;
    case SERVER_ASK_MISSING:
        add(ret_effects, MEMBER_ASK_MISSING);
        break;
    case SERVER_ASK:
        answer_successor(member, ret_effects);
        break;
    }
}

/* It asked to end, and may: the daemon ends as soon as it looks. */
static bool ends(const struct server_member *member)
{
    return member->draining && member->may_leave;
}

void member_command(struct server_member *member, const struct server_command *command,
                    struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    /* P3: commands name the boot they are for. P7: those of an older term are dropped. */
    if (command->boot != member->boot || command->term < member->term.term)
        return;
    /* A PREPARE that was sent again would have it begin anew in the generation that it was let go
     * from, and report that it is ready. */
    if (ends(member))
        return;
    struct admission_term before = member->term;
    adopt_term(member, command);
    take_command(member, command, ret_effects);
    if (!same_term(&before, &member->term))
        add(ret_effects, MEMBER_ADMIT)->admit = member->term;
}

void member_drain(struct server_member *member, struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    member->draining = true;
    add_report(member, ret_effects, SERVER_DRAIN);
}

void member_report_again(const struct server_member *member, struct member_effects *ret_effects)
{
    clear_effects(ret_effects);
    report_all(member, ret_effects);
}

/* ---- questions ---- */

bool member_loaded(const struct server_member *member)
{
    bool nothing = member->held.generation == 0;
    return member->told && member->prepare_err == ERR_OK && (nothing || all_ready(member));
}

struct cut_name member_held(const struct server_member *member)
{
    return (struct cut_name){member->held.generation, member->committed};
}

uint64_t member_prepared_generation(const struct server_member *member)
{
    return member->prepared;
}

void member_check(const struct server_member *member)
{
    check(member->thread_count > 0 && member->thread_count <= MEMBER_THREADS_MAX);
    check(member->holdings.told.generation == 0 ||
          member->holdings.told.generation == member->held.generation);
    if (member->held.generation == 0) { /* 1 */
        check(!member->has_manifest);
        check(member->committed == 0);
        for (uint32_t i = 0; i < member->thread_count; i++)
            check(!member->threads[i].ready && member->threads[i].committed == 0);
    }
    check(member->committed >= member->held.version); /* 2 */
    check(member->committed == member->held.version ||
          committed_by_all(member) == member->committed);
    if (member->has_manifest) { /* 3 */
        check(member->manifest.kind == SERVER_MANIFEST);
        check(member->manifest.manifest.cut.generation == member->held.generation);
        check(member->manifest.manifest.cut.version <= member->committed + 1);
    }
    check(!member->taken_known || member->async);       /* 4 */
    check(member->held.generation <= member->prepared); /* 5 */
}

void member_describe(const void *object, char *text, size_t bytes)
{
    const struct server_member *member = object;
    snprintf(text, bytes,
             "boot=%llu term=%llu generation=%llu version=%llu committed=%llu told=%llu threads=%u "
             "manifest=%d draining=%d may_leave=%d async=%d",
             (unsigned long long)member->boot, (unsigned long long)member->term.term,
             (unsigned long long)member->held.generation, (unsigned long long)member->held.version,
             (unsigned long long)member->committed,
             (unsigned long long)member->holdings.told.generation, member->thread_count,
             member->has_manifest, member->draining, member->may_leave, member->async);
}
