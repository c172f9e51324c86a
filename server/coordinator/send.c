/* What the coordinator sends. */
#include "server/coordinator/send.h"

#include <string.h>

struct server_command *send_command(struct coordinator *coordinator,
                                    const struct server_entry *server,
                                    enum server_command_kind kind)
{
    check(server->link != 0);
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_COMMAND);
    effect->command.link = server->link;
    effect->command.command = (struct server_command){
        .kind = kind,
        .term = coordinator->settings.term,
        .boot = server->boot,
    };
    memcpy(effect->command.command.key, coordinator->settings.key, DIGEST_KEY_BYTES);
    return &effect->command.command;
}

struct server_command *send_prepare(struct coordinator *coordinator,
                                    const struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    check(run_active(run));
    check(run->generation > 0); /* P10: the store has it */
    struct server_command *command = send_command(coordinator, server, SERVER_PREPARE);
    command->prepare.run = run->settings.run;
    command->prepare.generation = run->generation;
    command->prepare.spec = run->settings.spec;
    command->prepare.checkpoint_dir = run->settings.checkpoint_dir;
    return command;
}

void send_commit(struct coordinator *coordinator, const struct server_entry *server)
{
    const struct run *run = &coordinator->run;
    const struct moves *moves = &run->moves;
    check(run->steps.committed);
    check(run->steps.commit.generation == run->generation); /* P2 */
    check(!server->acknowledged);                           /* P6: reports.c takes that back */
    check(server->map_index < coordinator->servers.chosen_count);
    struct server_command *command = send_command(coordinator, server, SERVER_COMMIT);
    command->commit = run->steps.commit;
    command->commit.cut = run->steps.commit.cut && !server->past_cut;
    command->file = run->steps.commit.cut ? server->file : WIRE_FILE_NONE;
    command->attempt =
        cuts_attempt(&run->cuts, (struct cut_name){run->generation, run->steps.commit.step + 1});
    if (moves->count == 0)
        return;
    command->move_count = moves->said_count[server->map_index];
    command->moves = moves->said + moves->said_first[server->map_index];
}

void send_answer(struct coordinator *coordinator, struct member *member, enum err err,
                 const struct acquire_reply *reply)
{
    members_unpark(&coordinator->members, member);
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_ANSWER);
    effect->answer.member = member->id;
    effect->answer.sequence = member->sequence;
    effect->answer.err = err;
    if (reply != NULL)
        effect->answer.reply = *reply;
}

void send_answer_all(struct coordinator *coordinator, enum err err,
                     const struct acquire_reply *reply)
{
    struct member *member;
    while ((member = members_first_parked(&coordinator->members)) != NULL)
        send_answer(coordinator, member, err, reply);
}

void send_ticket(struct coordinator *coordinator, struct member *member)
{
    const struct run *run = &coordinator->run;
    const struct ticket *ticket = &member->ticket;
    check(ticket->attempt != 0);
    check(ticket->generation == run->generation); /* P2 */
    if (!run->settings.async) {                   /* nobody waits for a version, and P5: it stays */
        check(ticket->version <= run->steps.version);
        check(ticket->version + run->settings.delay >= run->steps.version);
    }
    struct acquire_reply reply = {
        .result = ACQUIRE_TICKET, .ticket = *ticket, .map_number = coordinator->run.map_number};
    const struct gang *gang = gangs_find(&run->gangs, ticket->attempt);
    if (gang != NULL) {
        uint32_t ranks = run->gangs.ranks;
        reply.place = (struct place){.stage = member->seat / ranks,
                                     .stages = run->gangs.seats / ranks,
                                     .rank = member->seat % ranks,
                                     .ranks = ranks,
                                     .try_number = gang->seats[member->seat].try_number};
        reply.places.attempt = ticket->attempt;
    }
    send_answer(coordinator, member, ERR_OK, &reply);
}

void send_over(struct coordinator *coordinator, uint64_t to)
{
    check(run_is_over(&coordinator->run));
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_NOTICE);
    effect->notice_to = to;
    effect->notice =
        (struct member_notice){.kind = NOTICE_RUN_OVER, .text = coordinator->run.reason};
}

void send_state(struct coordinator *coordinator)
{
    struct effect *effect = effects_add(&coordinator->effects, EFFECT_STORE_STATE);
    effect->state.state = coordinator->run.state;
    memcpy(effect->state.reason, coordinator->run.reason, sizeof effect->state.reason);
}
