/* What a server tells a new coordinator. */
#include "server/held.h"

#include "common/digest.h"

#include <stdlib.h>
#include <string.h>

void held_release(struct held *held)
{
    free(held->ranges);
    *held = (struct held){0};
}

static uint64_t digest_of(const char *text)
{
    return digest_fast64((struct slice){(const uint8_t *)text, strlen(text)});
}

uint64_t held_spec(const char *spec, const char *checkpoint_dir)
{
    const uint64_t both[] = {digest_of(spec), digest_of(checkpoint_dir)};
    return digest_fast64((struct slice){(const uint8_t *)both, sizeof both});
}

void held_prepare(struct held *held, const struct server_command *command)
{
    held_release(held);
    if (command->prepare.joins)
        return;
    held->ranges = calloc(command->prepare.range_count + 1, sizeof *held->ranges);
    if (held->ranges == NULL)
        return;
    uint32_t count = 0;
    for (uint32_t i = 0; i < command->prepare.range_count; i++)
        if (command->prepare.ranges[i].server == command->prepare.server)
            held->ranges[count++] = command->prepare.ranges[i];
    held->answer = (struct server_held){
        .run = command->prepare.run,
        .generation = command->prepare.generation,
        .version = command->prepare.from_cut ? command->prepare.cut.version : 0,
        .spec = held_spec(command->prepare.spec, command->prepare.checkpoint_dir),
        .range_count = count,
        .ranges = held->ranges,
    };
}

void held_commit(struct held *held, const struct server_command *command)
{
    struct server_held *answer = &held->answer;
    const struct commit *commit = &command->commit;
    if (commit->generation != answer->generation || answer->generation == 0)
        return;
    if (command->move_count > 0) {
        held_release(held);
        return;
    }
    if (!answer->has_decision || commit->step > answer->decision.step) {
        answer->has_decision = true;
        answer->decision = *commit;
    }
}

void held_end(struct held *held)
{
    held_release(held);
}

bool held_same_decision(const struct commit *a, const struct commit *b)
{
    return a->step == b->step && a->apply == b->apply &&
           memcmp(&a->scale, &b->scale, sizeof a->scale) == 0 &&
           memcmp(&a->lr, &b->lr, sizeof a->lr) == 0 &&
           memcmp(&a->bias1, &b->bias1, sizeof a->bias1) == 0 &&
           memcmp(&a->bias2, &b->bias2, sizeof a->bias2) == 0 && a->samples == b->samples &&
           a->applied == b->applied && a->skips_in_row == b->skips_in_row;
}
