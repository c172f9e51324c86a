/* A member is convicted. */
#include "server/coordinator/expel.h"

#include "server/coordinator/advance.h"
#include "server/coordinator/suspects.h"

#include <string.h>

/* Whether nobody else has, or had, its certificate, as far as members are remembered: to refuse the
 * certificate of a fleet would end the run. */
static bool is_alone(const struct members *members, const struct member *member)
{
    uint64_t certificate = member->own.certificate;
    bool alone = certificate != 0 && !suspects_shared(members, certificate);
    const struct member *other;
    for (uint32_t i = 0; alone && (other = members_at(members, i)) != NULL; i++)
        alone = other->own.certificate != certificate ||
                (strcmp(other->own.name, member->own.name) == 0 &&
                 strcmp(other->own.host, member->own.host) == 0);
    return alone;
}

/* The store has it before anybody hears of it: who starts anew may ask the next coordinator. */
static void convict(struct coordinator *coordinator, const struct member *member,
                    enum member_state state, uint64_t step, const char *why)
{
    struct conviction conviction = {
        .member = member->id,
        .certificate = member->own.certificate,
        .by_certificate = is_alone(&coordinator->members, member),
        .step = step,
        .wrong_bits = state == MEMBER_WRONG_BITS,
        .undo = coordinator->run.rewind.wanted,
        .undo_from = coordinator->run.rewind.version_max,
    };
    memcpy(conviction.name, member->own.name, sizeof conviction.name);
    memcpy(conviction.host, member->own.host, sizeof conviction.host);
    snprintf(conviction.reason, sizeof conviction.reason, "%s", why);
    effects_add(&coordinator->effects, EFFECT_STORE_CONVICTION)->conviction =
        *convictions_add(&coordinator->convictions, &conviction);
}

void expel_member(struct coordinator *coordinator, uint64_t now_ms, struct member *take_member,
                  enum member_state state, uint64_t step, const char *why)
{
    convict(coordinator, take_member, state, step, why);
    effects_add(&coordinator->effects, EFFECT_EXPEL)->member = take_member->id;
    advance_member_gone(coordinator, now_ms, take_member, state, why);
}
