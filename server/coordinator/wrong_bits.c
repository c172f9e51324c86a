/* Which worker computes wrongly. */
#include "server/coordinator/wrong_bits.h"

#include "server/coordinator/audit_rewind.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/expel.h"
#include "server/coordinator/generation.h"

#include <string.h>

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

static const char *or_gone(const struct side *side)
{
    return side->own.name[0] != 0 ? side->own.name : "that is gone";
}

/* Whether another worker than `other` had contradicted it before. */
static bool contradicted_before(const struct members *members, const struct side *side,
                                const struct side *other)
{
    return side->member != NULL && side->member->contradicted_by.name[0] != 0 &&
           other->own.name[0] != 0 &&
           !members_one_opinion(members, &side->member->contradicted_by, &other->own);
}

/* Notes the contradiction. Returns whether it is news. */
static bool contradict(struct side *side, const struct side *other,
                       const struct server_report *report)
{
    if (side->member == NULL)
        return false;
    side->member->wrong_bits++;
    if (side->member->reason[0] != 0)
        return false;
    side->member->contradicted_by = other->own;
    snprintf(side->member->reason, sizeof side->member->reason,
             "other bits than worker %.40s: step %llu chunk %u; one of the two is wrong",
             or_gone(other), (unsigned long long)report->wrong_bits.step, report->wrong_bits.chunk);
    return true;
}

static void clear_of(struct coordinator *coordinator, const struct opinion *guilty)
{
    struct members *members = &coordinator->members;
    for (uint32_t i = 0; i < members->count; i++) {
        struct member *member = members->list[i];
        if (member->contradicted_by.certificate != guilty->certificate ||
            strcmp(member->contradicted_by.name, guilty->name) != 0)
            continue;
        member->contradicted_by = (struct opinion){0};
        member->reason[0] = 0;
        member->wrong_bits = 0;
        member->watched = 0;
    }
}

enum { RANGES_IN_LINE = 4 }; /* a log line holds them */

/* Lists the steps of which the wrong one had tickets; those before `confirmed` were right as far as
 * the newest audit that agreed. */
static void list_brought(struct coordinator *coordinator, const struct member *member)
{
    const struct brought *brought = &member->brought;
    for (uint32_t i = 0; i < brought->count; i += RANGES_IN_LINE) {
        char steps[RANGES_IN_LINE * 44] = "";
        size_t used = 0;
        for (uint32_t k = i; k < brought->count && k < i + RANGES_IN_LINE; k++)
            used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%llu-%llu",
                                     k > i ? "," : "", (unsigned long long)brought->ranges[k].first,
                                     (unsigned long long)brought->ranges[k].last);
        effects_log(&coordinator->effects, true,
                    "worker was wrong  worker=%.40s confirmed_below=%llu steps=%s",
                    member->own.name, (unsigned long long)member->confirmed, steps);
    }
}

static void expel(struct coordinator *coordinator, uint64_t now_ms, struct member *member,
                  uint64_t step, const char *why)
{
    list_brought(coordinator, member);
    if (audit_rewind_begin(coordinator, member))
        generation_go_back(coordinator);
    clear_of(coordinator, &member->own);
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
                               const struct server_report *report)
{
    struct member *member = members_find(&coordinator->members, report->wrong_bits.member);
    char why[MEMBERS_REASON_BYTES];
    if (member == NULL)
        return;
    snprintf(why, sizeof why, "other bits than it brought before: step %llu chunk %u",
             (unsigned long long)report->wrong_bits.step, report->wrong_bits.chunk);
    expel(coordinator, now_ms, member, report->wrong_bits.step, why);
}

void wrong_bits_report(struct coordinator *coordinator, uint64_t now_ms,
                       const struct server_entry *server, const struct server_report *report)
{
    struct members *members = &coordinator->members;
    if (coordinator->run.settings.numerics_any ||
        members_end(members, report->wrong_bits.member) == MEMBER_WRONG_BITS ||
        members_end(members, report->wrong_bits.first_member) == MEMBER_WRONG_BITS)
        return; /* one of the two is known to be wrong already */
    if (report->wrong_bits.member == report->wrong_bits.first_member) {
        contradicts_itself(coordinator, now_ms, report);
        return;
    }
    audits_differ(&coordinator->run, report->wrong_bits.step, report->wrong_bits.node);
    struct side second = side_of(coordinator, report->wrong_bits.member);
    struct side first = side_of(coordinator, report->wrong_bits.first_member);
    bool second_before = contradicted_before(members, &second, &first);
    bool first_before = contradicted_before(members, &first, &second);
    bool second_news = contradict(&second, &first, report);
    bool first_news = contradict(&first, &second, report);
    if (second_news || first_news)
        effects_log(
            &coordinator->effects, true,
            "bits differ  worker=\"%s\" counted=\"%s\" server=%s step=%llu chunk=%u err=WRONG_BITS "
            "next=watch both",
            or_gone(&second), or_gone(&first), server->name,
            (unsigned long long)report->wrong_bits.step, report->wrong_bits.chunk);
    if (second_before != first_before)
        find_guilty(coordinator, now_ms, second_before ? &second : &first,
                    second_before ? &first : &second, report->wrong_bits.step);
}
