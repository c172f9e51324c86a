/* Which worker computes wrongly. */
#include "server/coordinator/wrong_bits.h"

#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/expel.h"
#include "server/coordinator/generation.h"
#include "server/coordinator/said.h"
#include "server/coordinator/suspects.h"

#include <string.h>

/* That two members' bits differ. */
struct difference {
    uint64_t first, second;
    uint64_t step;
    const char *what;   /* "chunk", "boundary", "stage", */
    uint32_t which;     /* its number */
    const char *source; /* " server=…" in the log */
};

/* One side of a difference. */
struct side {
    struct member *member; /* NULL: it is gone */
    struct opinion own;    /* without a name: nobody remembers */
};

static struct side side_of(struct coordinator *coordinator, uint64_t id)
{
    struct side side = {.member = members_find(&coordinator->members, id)};
    const struct member *known = members_known(&coordinator->members, id);
    if (known != NULL)
        side.own = known->own;
    return side;
}

/* Whether another worker than `other` had contradicted it before. */
static bool contradicted_before(const struct members *members, const struct side *side,
                                const struct side *other)
{
    return side->member != NULL && side->member->contradicted_by.name[0] != 0 &&
           other->own.name[0] != 0 &&
           !members_one_opinion(members, &side->member->contradicted_by, &other->own);
}

/* Notes the contradiction, unless nobody remembers the other side: an opinion is somebody's.
 * Returns whether it is news. */
static bool contradict(struct members *members, const struct side *side, const struct side *other,
                       const struct difference *difference)
{
    struct member *member = side->member;
    if (member == NULL || other->own.name[0] == 0)
        return false;
    bool news = member->contradicted_by.name[0] == 0;
    member->wrong_bits++;
    if (news) {
        member->contradicted_by = other->own;
        snprintf(member->reason, sizeof member->reason,
                 "other bits than worker %.40s: step %llu %s %u; one of the two is wrong",
                 other->own.name, (unsigned long long)difference->step, difference->what,
                 difference->which);
    }
    suspects_note(members, member);
    return news;
}

enum { RANGES_IN_LINE = 4 }; /* a log line holds them */

/* Lists the steps of which the wrong one had tickets, in all its memberships; those before
 * `confirmed` were right as far as the newest audit that agreed. */
static void list_brought(struct coordinator *coordinator, const struct member *member)
{
    const struct suspects_brought all = suspects_brought(&coordinator->members, member);
    const struct brought *brought = &all.brought;
    for (uint32_t i = 0; i < brought->count; i += RANGES_IN_LINE) {
        char steps[RANGES_IN_LINE * 44] = "";
        size_t used = 0;
        for (uint32_t k = i; k < brought->count && k < i + RANGES_IN_LINE; k++)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%llu-%llu",
                                     k > i ? "," : "", (unsigned long long)brought->ranges[k].first,
                                     (unsigned long long)brought->ranges[k].last);
        effects_log(&coordinator->effects, true,
                    "worker was wrong  worker=%.40s confirmed_below=%llu steps=%s",
                    member->own.name, (unsigned long long)all.confirmed, steps);
    }
}

static void expel(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                  uint64_t step, const char *why)
{
    list_brought(coordinator, member);
    if (audit_rewind_begin(coordinator, member))
        generation_go_back(coordinator);
    suspects_clear(&coordinator->members, member);
    expel_member(coordinator, now_ms, member, MEMBER_WRONG_BITS, step, why);
}

static void find_guilty(struct coordinator *coordinator, uint64_t now_ms, const struct side *side,
                        const struct side *other, uint64_t step)
{
    char why[MEMBERS_REASON_BYTES];
    snprintf(why, sizeof why, "other bits than workers %.40s and %.40s",
             side->member->contradicted_by.name, other->own.name);
    expel(coordinator, now_ms, side->member, step, why);
}

/* One member brought two sums of one name. That is no opinion of anybody else: it is wrong
 * itself. */
static void contradicts_itself(struct coordinator *coordinator, uint64_t now_ms,
                               const struct difference *difference)
{
    struct member *member = members_find(&coordinator->members, difference->second);
    char why[MEMBERS_REASON_BYTES];
    if (member == NULL)
        return;
    snprintf(why, sizeof why, "other bits than it brought before: step %llu %s %u",
             (unsigned long long)difference->step, difference->what, difference->which);
    expel(coordinator, now_ms, member, difference->step, why);
}

/* Whether nobody is to be judged by what differs between the two. */
static bool is_settled(const struct coordinator *coordinator, uint64_t first, uint64_t second)
{
    return coordinator->run.settings.numerics_any ||
           members_end(&coordinator->members, first) == MEMBER_WRONG_BITS ||
           members_end(&coordinator->members, second) == MEMBER_WRONG_BITS;
}

static void judge_two(struct coordinator *coordinator, uint64_t now_ms,
                      const struct difference *difference)
{
    struct members *members = &coordinator->members;
    if (difference->first == difference->second) {
        contradicts_itself(coordinator, now_ms, difference);
        return;
    }
    struct side second = side_of(coordinator, difference->second);
    struct side first = side_of(coordinator, difference->first);
    bool second_before = contradicted_before(members, &second, &first);
    bool first_before = contradicted_before(members, &first, &second);
    bool second_news = contradict(members, &second, &first, difference);
    bool first_news = contradict(members, &first, &second, difference);
    if (second_news || first_news)
        effects_log(&coordinator->effects, true,
                    "bits differ  worker=\"%s\" counted=\"%s\"%s step=%llu %s=%u err=WRONG_BITS "
                    "next=watch both",
                    second.own.name, first.own.name, difference->source,
                    (unsigned long long)difference->step, difference->what, difference->which);
    if (second_before != first_before)
        find_guilty(coordinator, now_ms, second_before ? &second : &first,
                    second_before ? &first : &second, difference->step);
}

/* ---- what servers report ---- */

/* Whether the run has the node and the chunk: the report may be of the run before. */
static bool is_of_run(const struct run *run, const struct server_report *report)
{
    return node_valid(report->wrong_bits.node, run->settings.slots) &&
           report->wrong_bits.chunk < run->chunk_count;
}

/* Who brought other sums of a place may have had other inputs, and be right. */
static bool had_equal_inputs(struct coordinator *coordinator, const struct server_report *report)
{
    const struct said_difference push = {.kind = SAID_PUSHED,
                                         .first = report->wrong_bits.first_member,
                                         .second = report->wrong_bits.member,
                                         .step = report->wrong_bits.step,
                                         .node = report->wrong_bits.node,
                                         .which = report->wrong_bits.chunk};
    return coordinator->run.gangs.seats == 0 || said_pushed(&coordinator->run, &push);
}

void wrong_bits_report(struct coordinator *coordinator, uint64_t now_ms,
                       const struct server_entry *server, const struct server_report *report)
{
    char source[MEMBERS_REASON_BYTES];
    const struct difference difference = {.first = report->wrong_bits.first_member,
                                          .second = report->wrong_bits.member,
                                          .step = report->wrong_bits.step,
                                          .what = "chunk",
                                          .which = report->wrong_bits.chunk,
                                          .source = source};
    if (!is_of_run(&coordinator->run, report))
        return;
    if (is_settled(coordinator, difference.first, difference.second))
        return; /* one of the two is known to be wrong already */
    snprintf(source, sizeof source, " server=%s", server->name);
    if (difference.first != difference.second)
        audits_differ(&coordinator->run, difference.step, report->wrong_bits.node);
    if (coordinator->run.gangs.ranks > 1)
        effects_log(&coordinator->effects, true,
                    "bits differ  server=%s step=%llu chunk=%u err=WRONG_BITS next=nobody is "
                    "expelled: of the members of a place nobody tells which",
                    server->name, (unsigned long long)difference.step, difference.which);
    else if (had_equal_inputs(coordinator, report))
        judge_two(coordinator, now_ms, &difference);
}

/* ---- what places say ---- */

static void judge_said(struct coordinator *coordinator, uint64_t now_ms,
                       const struct said_difference *said)
{
    static const char *const whats[] = {[SAID_COMPUTED] = "boundary",
                                        [SAID_PASSED] = "boundary",
                                        [SAID_MEMBERS] = "stage",
                                        [SAID_PUSHED] = "chunk"};
    const struct difference difference = {
        .first = said->first,
        .second = said->second,
        .step = said->step,
        .what = whats[said->kind],
        .which = said->which,
        .source = said->kind == SAID_PASSED    ? " between=neighbours"
                  : said->kind == SAID_MEMBERS ? " between=members"
                                               : "",
    };
    if (is_settled(coordinator, said->first, said->second))
        return;
    audits_differ(&coordinator->run, said->step, said->node);
    judge_two(coordinator, now_ms, &difference);
}

void wrong_bits_said(struct coordinator *coordinator, uint64_t now_ms, const struct gang *gang,
                     uint32_t seat, const struct complete_request *request)
{
    struct said_difference differences[SAID_DIFFERENCES_MAX];
    uint32_t count = said_add(&coordinator->run, gang, seat, request, differences);
    for (uint32_t i = 0; i < count; i++)
        judge_said(coordinator, now_ms, &differences[i]);
}
