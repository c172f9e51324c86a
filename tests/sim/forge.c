#include "tests/sim/forge.h"

#include "server/coordinator/coordinator.h"
#include "server/member/admission.h"
#include "tests/sim/sim.h"

enum { RARELY = 4 /* beside one real call in so many */ };

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

REAL(enum err, coordinator_complete, struct coordinator *core, uint64_t now_ms,
     const struct complete_request *request);
REAL(enum err, admission_member, struct admission *admission, uint64_t member,
     const struct proof *secret);
REAL(enum err, admission_push, struct admission *admission, uint64_t member, struct push *push);
REAL(void, admission_end, struct admission *admission, const struct server_command *command);

static bool comes(struct sim *sim)
{
    return rand_below(&sim->keys, RARELY) == 0;
}

static void expect(enum err answer, enum err wanted, const char *what)
{
    if (answer != wanted)
        sim_violated(world.sim, 17, "%s: %s, wanted %s", what, err_name(answer), err_name(wanted));
}

static void refused(enum err answer, const char *what)
{
    if (answer == ERR_OK)
        sim_violated(world.sim, 17, "%s is taken", what);
}

/* ---- the coordinator ---- */

void forge_complete(struct sim *sim, struct coordinator *core, uint64_t now_ms,
                    const struct complete_request *seen)
{
    if (!comes(sim))
        return;
    struct complete_request forged = *seen;
    forged.secret.bytes[rand_below(&sim->keys, WIRE_PROOF_BYTES)] ^= 1;
    expect(__real_coordinator_complete(core, now_ms, &forged), ERR_UNKNOWN_MEMBER,
           "a complete with a guessed secret");
    forged = *seen;
    forged.member++;
    expect(__real_coordinator_complete(core, now_ms, &forged), ERR_UNKNOWN_MEMBER,
           "a complete in the name of another");
    const struct leave_request leave = {seen->member + 1, seen->secret, "forged"};
    expect(coordinator_leave(core, now_ms, &leave), ERR_UNKNOWN_MEMBER,
           "a leave in the name of another");
    forged = *seen;
    forged.ticket.node.index ^= 1;
    refused(__real_coordinator_complete(core, now_ms, &forged), "a complete of another slot");
    forged = *seen;
    forged.ticket.attempt++;
    refused(__real_coordinator_complete(core, now_ms, &forged), "a complete of another attempt");
}

/* ---- servers ---- */

enum err __wrap_admission_member(struct admission *admission, uint64_t member,
                                 const struct proof *secret)
{
    struct sim *sim = world.sim;
    if (life_acts() && comes(sim)) {
        uint64_t later = proof_member_number(admission->term + 1, (uint32_t)member);
        refused(__real_admission_member(admission, member + 1, secret), "another's secret");
        expect(__real_admission_member(admission, later, secret), ERR_BEHIND,
               "a member of a term that is not known yet");
    }
    return __real_admission_member(admission, member, secret);
}

/* What the member was granted, brought as something else. */
static void forge_push(struct admission *admission, uint64_t member, const struct push *seen)
{
    struct push forged = *seen;
    struct ticket ticket = seen->tickets[0];
    forged.tickets = &ticket;
    forged.ticket_count = 1;
    forged.node = ticket.node;
    forged.node.index ^= 1;
    refused(__real_admission_push(admission, member, &forged), "a push beside its ticket");
    ticket.node = forged.node;
    refused(__real_admission_push(admission, member, &forged), "a push of a changed ticket");
    forged.node = seen->node;
    ticket = seen->tickets[0];
    forged.step = ++ticket.step;
    refused(__real_admission_push(admission, member, &forged), "a push to another step");
    forged.step = seen->step;
    ticket = seen->tickets[0];
    ticket.member++;
    refused(__real_admission_push(admission, member + 1, &forged), "a push by another's grant");
    forged.ticket_count = 0;
    refused(__real_admission_push(admission, member, &forged), "a push without a grant");
}

enum err __wrap_admission_push(struct admission *admission, uint64_t member, struct push *push)
{
    if (life_acts() && push->ticket_count > 0 && comes(world.sim))
        forge_push(admission, member, push);
    return __real_admission_push(admission, member, push);
}

/* Who is named has a secret still, and tries it. */
void __wrap_admission_end(struct admission *admission, const struct server_command *command)
{
    __real_admission_end(admission, command);
    for (uint32_t i = 0; life_acts() && i < command->ended.member_count; i++) {
        uint64_t member = command->ended.members[i];
        struct proof secret = proof_member(&admission->key, admission->run, member);
        if (command->ended.generation == admission->ended.generation)
            refused(__real_admission_member(admission, member, &secret),
                    "the secret of a member that has ended");
    }
}
