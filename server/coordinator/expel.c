/* A member is convicted. */
#include "server/coordinator/expel.h"

#include "server/coordinator/advance.h"

#include <string.h>

/* The store has it before anybody hears of it: who starts anew may ask the next coordinator. */
static void convict(struct coordinator *coordinator, const struct member *member,
                    enum member_state state, uint64_t step, const char *why)
{
    struct conviction conviction = {
        .member = member->id,
        .certificate = member->own.certificate,
        .several = members_have_another(&coordinator->members, member->own.certificate),
        .step = step,
        .wrong_bits = state == MEMBER_WRONG_BITS,
        .undo = coordinator->run.rewind.wanted,
        .undo_from = coordinator->run.rewind.version_max,
    };
    memcpy(conviction.name, member->own.name, sizeof conviction.name);
    memcpy(conviction.host, member->own.host, sizeof conviction.host);
    snprintf(conviction.reason, sizeof conviction.reason, "%s", why);
    convictions_add(&coordinator->convictions, &conviction);
    effects_add(&coordinator->effects, EFFECT_STORE_CONVICTION)->conviction = conviction;
}

void expel_member(struct coordinator *coordinator, uint64_t now_ms, struct member *take_member,
                  enum member_state state, uint64_t step, const char *why)
{
    convict(coordinator, take_member, state, step, why);
    effects_add(&coordinator->effects, EFFECT_EXPEL)->member = take_member->id;
    advance_member_gone(coordinator, now_ms, take_member, state, why);
}
