/* A worker joins: whether it may, and which of its memberships ends. */
#include "server/coordinator/advance.h"
#include "server/coordinator/audits.h"
#include "server/coordinator/ended.h"
#include "server/coordinator/places.h"
#include "server/coordinator/run.h"
#include "server/coordinator/send.h"
#include "server/coordinator/suspects.h"
#include "server/member/proof.h"

#include <string.h>

/* Who was expelled from the run and starts anew, perhaps under another coordinator. */
static enum err judge_convicted(const struct coordinator *coordinator,
                                const struct join_request *request, struct reason *reason)
{
    const struct conviction *found = convictions_find(&coordinator->convictions, request);
    if (found == NULL)
        return ERR_OK;
    return reason_set(
        reason, ERR_EXPELLED,
        "worker %s was expelled from run %llu as member %llu at step %llu: %s; when it "
        "is mended, it may join with a new certificate%s",
        found->name, (unsigned long long)coordinator->run.settings.run,
        (unsigned long long)found->member, (unsigned long long)found->step, found->reason,
        found->by_certificate ? "" : " or another name");
}

static enum err judge_join(struct coordinator *coordinator, uint64_t now_ms,
                           const struct join_request *request, struct reason *reason)
{
    const struct run *run = &coordinator->run;
    const struct members_demands demands = {
        .fingerprint =
            run->has_fingerprint && !run->settings.numerics_any ? run->fingerprint : NULL,
        .data_digest = run->settings.data_digest,
        .data_served = run->settings.data_served,
    };
    if (!run_active(run) || run_gathers(run))
        return reason_set(reason, ERR_NO_RUN, "no run can be joined now");
    enum err err = members_judge(&demands, request, reason);
    enum member_state before = members_end(&coordinator->members, request->previous_member);
    if (err == ERR_OK && before == MEMBER_FALSE_COMPLETE)
        err = reason_set(reason, ERR_EXPELLED,
                         "worker %s called tickets complete that it had not pushed", request->name);
    if (err == ERR_OK && before == MEMBER_WRONG_BITS)
        err = reason_set(reason, ERR_WRONG_BITS, "worker %s computes other bits than two others do",
                         request->name);
    if (err == ERR_OK)
        err = judge_convicted(coordinator, request, reason);
    if (err != ERR_OK) {
        members_refused(&coordinator->members, now_ms, request, reason->text);
        effects_log(&coordinator->effects, true,
                    "join refused  worker=%s err=%s next=none reason=\"%.120s\"", request->name,
                    err_name(err), reason->text);
    }
    return err;
}

/* The process joins again while its earlier membership is still there: the earlier one ends. */
static void end_previous(struct coordinator *coordinator, uint64_t now_ms, uint64_t previous)
{
    struct member *member = members_find(&coordinator->members, previous);
    if (member == NULL)
        return;
    tickets_drop_member(&coordinator->run.tickets, now_ms, previous);
    places_lost(coordinator, now_ms, member, false);
    audits_lost(&coordinator->run, previous, 0);
    if (member->parked)
        send_answer(coordinator, member, ERR_UNKNOWN_MEMBER, NULL);
    effects_add(&coordinator->effects, EFFECT_EXPEL)->member = previous;
    ended_add(coordinator, previous, false);
}

/* The stages that have a bit, as 0,2 */
static void put_stages(uint64_t stages, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (uint32_t stage = 0; stage < WIRE_PLACES_MAX; stage++)
        if (stages >> stage & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", used > 0 ? "," : "", stage);
}

/* S7: who was killed twice in a stage gets no place there, and may wait although slots are free. */
static void note_small(struct coordinator *coordinator, struct member *member)
{
    char stages[4 * WIRE_PLACES_MAX];
    if (coordinator->run.gangs.seats == 0)
        return;
    suspects_note_small(&coordinator->members, member, coordinator->run.gangs.ranks);
    put_stages(member->small, stages, sizeof stages);
    if (member->small != 0)
        effects_log(&coordinator->effects, true,
                    "worker was killed twice in a stage  worker=%s member=%llu stages=%s "
                    "next=give it no place there",
                    member->own.name, (unsigned long long)member->id, stages);
}

/* The first worker's fingerprint is the run's. Nothing is granted before the store has it. */
static void adopt_fingerprint(struct coordinator *coordinator, const struct join_request *request)
{
    struct run *run = &coordinator->run;
    if (run->has_fingerprint)
        return;
    run->has_fingerprint = run->fingerprint_late = true;
    memcpy(run->fingerprint, request->fingerprint, sizeof run->fingerprint);
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_STORE_FINGERPRINT);
    memcpy(effect->fingerprint, request->fingerprint, sizeof effect->fingerprint);
}

enum err coordinator_join(struct coordinator *coordinator, uint64_t now_ms,
                          const struct join_request *request, struct join_reply *ret_reply,
                          struct reason *reason)
{
    struct member *member;
    struct reason unread;
    reason = reason != NULL ? reason : &unread;
    TRY(judge_join(coordinator, now_ms, request, reason));
    struct join_request proved = *request;
    if (members_prove(&coordinator->members, request->previous_member, &request->previous_secret) ==
        NULL)
        proved.previous_member = 0; /* nobody ends another's membership */
    end_previous(coordinator, now_ms, proved.previous_member);
    enum err err = members_add(&coordinator->members, now_ms, &proved, &member);
    if (proved.previous_member != 0)
        places_renamed(&coordinator->run, proved.previous_member, err == ERR_OK ? member->id : 0);
    if (err == ERR_NOMEM)
        return reason_set(reason, err, "no memory for a worker");
    if (err != ERR_OK)
        return reason_set(reason, err,
                          coordinator->members.count == MEMBERS_MAX
                              ? "there are as many workers as there can be: %u"
                              : "there are as many workers with this certificate as there may be: "
                                "%u (certificate_members_max)",
                          coordinator->members.count == MEMBERS_MAX
                              ? (unsigned)MEMBERS_MAX
                              : coordinator->members.certificate_max);
    suspects_joined(&coordinator->members, member);
    member->secret = proof_member(&coordinator->key, coordinator->run.settings.run, member->id);
    adopt_fingerprint(coordinator, request);
    run_due(coordinator, now_ms + coordinator->settings.lease_ms);
    *ret_reply = (struct join_reply){
        .member = member->id,
        .secret = member->secret,
        .run = coordinator->run.settings.run,
        .generation = coordinator->run.generation,
        .heartbeat_ms = coordinator->settings.heartbeat_ms,
        .lease_ms = coordinator->settings.lease_ms,
    };
    effects_log(&coordinator->effects, false,
                "worker joined  worker=%s member=%llu device=\"%s\" workers=%u", member->own.name,
                (unsigned long long)member->id, member->device, coordinator->members.count);
    note_small(coordinator, member);
    audits_members_changed(coordinator);
    ended_tell(coordinator); /* its membership before */
    advance_run(coordinator, now_ms);
    return ERR_OK;
}
