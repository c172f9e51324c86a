#include "common/program/act.h"

static const struct act_facts acts[ACT_COUNT] = {
    [ACT_LOAD] = {"LOAD", "LOAD", ACT_OF_SLOT, .each = {.writes = ARRAY(SAMPLES)},
                  .last = {.begins = ARRAY(LOSSES)}},
    [ACT_ZERO] = {"ZERO", "ZERO", ACT_OF_SLOT, .each = {.begins = ARRAY(GRADIENTS) | ARRAY(NORMS)},
                  .last = {.begins = ARRAY(HEAD)}},
    [ACT_CLEAR] = {"CLEAR", "CLEAR", ACT_OF_UNIT_SLOT,
                   .each = {.begins = ARRAY(GRADIENTS) | ARRAY(NORMS)},
                   .last = {.begins = ARRAY(HEAD)}},
    [ACT_ASK] = {"ASK", "ASK", ACT_OF_UNIT, .each = {.writes = ARRAY(ASKED)}},
    [ACT_PULL] = {"PULL", "UNSHARD", ACT_OF_UNIT,
                  .each = {.writes = ARRAY(PULLED), .ends = ARRAY(ASKED)}},
    [ACT_FORGET] = {"FORGET", "RESHARD", ACT_OF_UNIT,
                    .each = {.reads = ARRAY(PULLED), .ends = ARRAY(PULLED)}},
    [ACT_OWN] = {"OWN", "OWN", ACT_OF_UNIT, .each = {.reads = ARRAY(PULLED), .writes = ARRAY(OWN)}},
    [ACT_F] = {"F", "F", ACT_OF_MICROBATCH,
               .each = {.reads = ARRAY(INPUT) | ARRAY(WEIGHTS),
                        .writes = ARRAY(OUTPUT) | ARRAY(SAVED)},
               .first = {.reads = ARRAY(SAMPLES)},
               .last = {.reads = ARRAY(SAMPLES),
                        .begins = ARRAY(DINPUT),
                        .adds = ARRAY(HEAD) | ARRAY(LOSSES)}},
    [ACT_E] = {"E", "E", ACT_OF_MICROBATCH,
               .each = {.reads = ARRAY(INPUT) | ARRAY(WEIGHTS),
                        .writes = ARRAY(OUTPUT) | ARRAY(SAVED),
                        .ends = ARRAY(INPUT) | ARRAY(SAVED)},
               .first = {.reads = ARRAY(SAMPLES)},
               .last = {.reads = ARRAY(SAMPLES), .adds = ARRAY(LOSSES), .ends = ARRAY(OUTPUT)}},
    [ACT_DROP] = {"DROP", "DROP", ACT_OF_MICROBATCH,
                  .each = {.reads = ARRAY(SAVED), .ends = ARRAY(SAVED)}},
    [ACT_RC] = {"RC", "RC", ACT_OF_MICROBATCH,
                .each = {.reads = ARRAY(INPUT) | ARRAY(WEIGHTS) | ARRAY(OUTPUT),
                         .writes = ARRAY(OUTPUT) | ARRAY(SAVED)},
                .first = {.reads = ARRAY(SAMPLES)},
                .last = {.reads = ARRAY(SAMPLES),
                         .begins = ARRAY(DINPUT),
                         .adds = ARRAY(HEAD) | ARRAY(LOSSES)}},
    [ACT_B] = {"B", "B", ACT_OF_MICROBATCH,
               .each = {.reads = ARRAY(INPUT) | ARRAY(OUTPUT) | ARRAY(SAVED) | ARRAY(DOUTPUT),
                        .writes = ARRAY(DINPUT),
                        .adds = ARRAY(GRADIENTS) | ARRAY(NORMS),
                        .ends = ARRAY(OUTPUT) | ARRAY(SAVED) | ARRAY(DOUTPUT) | ARRAY(ARRIVED)},
               .first = {.reads = ARRAY(SAMPLES), .ends = ARRAY(DINPUT)},
               .last = {.adds = ARRAY(DINPUT)}, .later = {.reads = ARRAY(WEIGHTS)}},
    [ACT_I] = {"I", "I", ACT_OF_MICROBATCH,
               .each = {.reads = ARRAY(INPUT) | ARRAY(OUTPUT) | ARRAY(SAVED) | ARRAY(DOUTPUT),
                        .writes = ARRAY(DINPUT) | ARRAY(LEFT),
                        .adds = ARRAY(NORMS),
                        .ends = ARRAY(DOUTPUT)},
               .first = {.reads = ARRAY(SAMPLES), .ends = ARRAY(DINPUT)},
               .last = {.adds = ARRAY(DINPUT)}, .later = {.reads = ARRAY(WEIGHTS)}},
    [ACT_W] = {"W", "W", ACT_OF_MICROBATCH,
               .each = {.reads = ARRAY(INPUT) | ARRAY(OUTPUT) | ARRAY(SAVED) | ARRAY(LEFT),
                        .adds = ARRAY(GRADIENTS),
                        .ends = ARRAY(OUTPUT) | ARRAY(SAVED) | ARRAY(LEFT) | ARRAY(ARRIVED)},
               .first = {.reads = ARRAY(SAMPLES)}},
    [ACT_SEND_F] = {"SEND_F", "SEND_F", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(OUTPUT), .writes = ARRAY(SENT_OUTPUT)}},
    [ACT_SEND_E] = {"SEND_E", "SEND_E", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(OUTPUT),
                             .writes = ARRAY(SENT_OUTPUT),
                             .ends = ARRAY(OUTPUT)}},
    [ACT_RECV_F] = {"RECV_F", "RECV_F", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(SENT_INPUT),
                             .writes = ARRAY(ARRIVED),
                             .ends = ARRAY(SENT_INPUT)}},
    [ACT_SEND_B] = {"SEND_B", "SEND_B", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(DINPUT),
                             .writes = ARRAY(SENT_DINPUT),
                             .ends = ARRAY(DINPUT)}},
    [ACT_RECV_B] = {"RECV_B", "RECV_B", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(SENT_DOUTPUT),
                             .writes = ARRAY(RETURNED),
                             .ends = ARRAY(SENT_DOUTPUT)}},
    [ACT_OFF_OUT] = {"OFF_OUT", "OFF_OUT", ACT_OF_MICROBATCH,
                     .each = {.reads = ARRAY(SAVED),
                              .writes = ARRAY(HOSTED),
                              .ends = ARRAY(SAVED)}},
    [ACT_OFF_IN] = {"OFF_IN", "OFF_IN", ACT_OF_MICROBATCH,
                    .each = {.reads = ARRAY(HOSTED),
                             .writes = ARRAY(SAVED),
                             .ends = ARRAY(HOSTED)}},
    [ACT_SUM] = {"SUM", "SUM", ACT_OF_UNIT_SLOT,
                 .last = {.reads = ARRAY(LOSSES), .adds = ARRAY(SLOT_LOSS), .ends = ARRAY(LOSSES)}},
    [ACT_STEP] = {"STEP", "STEP", ACT_OF_ALL,
                  .each = {.reads = ARRAY(GRADIENTS) | ARRAY(NORMS) | ARRAY(OWN),
                           .writes = ARRAY(OWN),
                           .ends = ARRAY(GRADIENTS) | ARRAY(NORMS) | ARRAY(SAMPLES)},
                  .last = {.reads = ARRAY(HEAD), .ends = ARRAY(HEAD)}},
    [ACT_DIFF] = {"DIFF", "DIFF", ACT_OF_UNIT,
                  .each = {.reads = ARRAY(PULLED) | ARRAY(OWN),
                           .writes = ARRAY(GRADIENTS) | ARRAY(NORMS),
                           .ends = ARRAY(OWN)},
                  .last = {.writes = ARRAY(HEAD)}},
    [ACT_LOSS] = {"LOSS", "LOSS", ACT_OF_UNIT_SLOT,
                  .last = {.reads = ARRAY(SLOT_LOSS), .writes = ARRAY(LOSS)}},
    [ACT_PUSH] = {"PUSH", "REDUCE_GRAD", ACT_OF_UNIT_SLOT,
                  .each = {.reads = ARRAY(GRADIENTS) | ARRAY(NORMS),
                           .writes = ARRAY(PUSHED),
                           .ends = ARRAY(GRADIENTS) | ARRAY(NORMS)},
                  .last = {.reads = ARRAY(HEAD) | ARRAY(LOSS), .ends = ARRAY(HEAD) | ARRAY(LOSS)}},
    [ACT_FREE] = {"FREE", "FREE", ACT_OF_UNIT_SLOT,
                  .each = {.reads = ARRAY(PUSHED), .writes = ARRAY(FREED)}},
};

const struct act_facts *act_facts(enum act act)
{
    check(act < ACT_COUNT);
    return &acts[act];
}

static void join(struct act_arrays *arrays, const struct act_arrays *more)
{
    arrays->reads |= more->reads;
    arrays->writes |= more->writes;
    arrays->begins |= more->begins;
    arrays->adds |= more->adds;
    arrays->ends |= more->ends;
}

struct act_arrays act_arrays(enum act act, struct act_unit unit)
{
    const struct act_facts *facts = act_facts(act);
    struct act_arrays arrays = facts->each;
    if (unit.first)
        join(&arrays, &facts->first);
    else
        join(&arrays, &facts->later);
    if (unit.last)
        join(&arrays, &facts->last);
    return arrays;
}
