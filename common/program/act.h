/* The acts of a program: one table of which arrays each act reads and writes.
 *
 * The validator plays the table, the planner of memory takes the life of each array from it, the
 * text form takes its words, and the executor adds what an act runs. A new act is a line in
 * ACT_LIST, a row of the table and a function in the executor.
 *
 *   act   text          meaning
 *   LOAD  LOAD          the samples of the slot are in place
 *   ZERO  ZERO          the gradients of all units are zero
 *   CLEAR 2CLEAR        those of unit 2 are
 *   ASK   2ASK          the weights of unit 2 may come: there is a place for them
 *   PULL  2UNSHARD      they are in place when this row ends, asked for or not
 *   FORGET 2RESHARD     they are not needed until they are pulled again
 *   OWN   2OWN          the slot has its own copy of them, and new optimizer state
 *   F     2F0           forward of unit 2, microbatch 0
 *   E     2E0           forward alone: nothing is kept for a backward
 *   DROP  2DROP0        its activations are forgotten, its input is kept
 *   RC    2RC0          its activations again, from its input, after DROP
 *   B     2B0           backward: gradient of its input and of its weights
 *   I     2I0           of these the gradient of its input, and of norms' few weights
 *   W     2W0           and the gradient of its other weights, after I
 *   SUM   3SUM          the losses of the loaded samples are added to the slot's
 *   STEP  STEP          the slot's own weights take a step along the gradients
 *   DIFF  2DIFF         pulled minus own weights are the unit's gradients
 *   LOSS  3LOSS         the slot's losses are the gradient of the loss parameter
 *   PUSH  2REDUCE_GRAD  the unit's gradients are final for the slot
 *   FREE  2FREE         the servers have them: their memory is another unit's
 *
 *   Acts between places. A value stays with who sent it until the lease is over.
 *   SEND_F  2SEND_F0    the unit's result may be asked for
 *   SEND_E  2SEND_E0    likewise, after E: nobody here needs it any more
 *   RECV_F  2RECV_F0    the unit's input is here, from the place of the unit before
 *   SEND_B  2SEND_B0    the gradient of the unit's input may be asked for
 *   RECV_B  2RECV_B0    the gradient of its result is here, from the place of the next unit
 *   OFF_OUT 2OFF_OUT0   its activations go to the host's memory
 *   OFF_IN  2OFF_IN0    and come back
 *
 * Acts on a slot end with its number, which is left out for slot 0: `2REDUCE_GRAD1`, `LOAD1`.
 *
 * What the last unit's forward does. It is fused with the backward of the classifier
 * (worker/model/unit.h): F of the last unit also begins the gradient of its input and adds to its
 * own gradients; B of the last unit does what remains. */
#ifndef ROOST_COMMON_PROGRAM_ACT_H
#define ROOST_COMMON_PROGRAM_ACT_H

#include "common/check.h"

#include <stdbool.h>
#include <stdint.h>

#define ACT_LIST(X)                                                                                \
    X(LOAD, load)                                                                                  \
    X(ZERO, zero)                                                                                  \
    X(ASK, ask)                                                                                    \
    X(PULL, pull)                                                                                  \
    X(FORGET, forget)                                                                              \
    X(OWN, own)                                                                                    \
    X(F, forward)                                                                                  \
    X(E, evaluate)                                                                                 \
    X(DROP, drop)                                                                                  \
    X(RC, recompute)                                                                               \
    X(B, backward)                                                                                 \
    X(SUM, sum)                                                                                    \
    X(STEP, step)                                                                                  \
    X(DIFF, diff)                                                                                  \
    X(LOSS, loss)                                                                                  \
    X(PUSH, push)                                                                                  \
    X(FREE, free)                                                                                  \
    X(CLEAR, clear)                                                                                \
    X(I, input)                                                                                    \
    X(W, weights)                                                                                  \
    X(SEND_F, send_forward)                                                                        \
    X(SEND_E, send_evaluated)                                                                      \
    X(RECV_F, receive_forward)                                                                     \
    X(SEND_B, send_backward)                                                                       \
    X(RECV_B, receive_backward)                                                                    \
    X(OFF_OUT, off_out)                                                                            \
    X(OFF_IN, off_in)

#define ACT_NAME(NAME, name) ACT_##NAME,
enum act { ACT_LIST(ACT_NAME) ACT_COUNT };
#undef ACT_NAME

/* What a row of the act names. One that names no unit is about all units of its place. */
enum act_scope { ACT_OF_ALL, ACT_OF_SLOT, ACT_OF_UNIT, ACT_OF_UNIT_SLOT, ACT_OF_MICROBATCH };

/* Arrays as an act sees them. OUTPUT to SENT_DINPUT exist for each unit and microbatch (longer
 * lives first), those from SAMPLES on for each unit and slot, ASKED to OWN for each unit of a
 * place. The last ones are other names of these. */
enum array {
    ARRAY_OUTPUT,   /* the unit's result, the next unit's input */
    ARRAY_ARRIVED,  /* the unit's input, when another place has the unit before */
    ARRAY_DINPUT,   /* gradient of the unit's input */
    ARRAY_RETURNED, /* gradient of its result, when another place has the next unit */
    ARRAY_SAVED,    /* what its forward leaves for its backward */
    ARRAY_LEFT,     /* what I leaves for W: the gradients of what its linears made */
    ARRAY_HOSTED,   /* SAVED in the host's memory */
    ARRAY_SENT_OUTPUT,
    ARRAY_SENT_DINPUT,
    ARRAY_SAMPLES,
    ARRAY_GRADIENTS, /* what backwards add up */
    ARRAY_NORMS,     /* of them, what comes with the gradient of an input: weights of norms */
    ARRAY_HEAD,      /* the gradients that the last unit's forwards add up */
    ARRAY_LOSSES,    /* of each prediction of the slot's samples */
    ARRAY_SLOT_LOSS, /* their sum over the slot */
    ARRAY_LOSS,      /* the gradient of the loss parameter */
    ARRAY_PUSHED,
    ARRAY_FREED,
    ARRAY_ASKED,        /* a place for weights */
    ARRAY_PULLED,       /* weights */
    ARRAY_OWN,          /* weights of the slot and their optimizer state, between pull and push */
    ARRAY_INPUT,        /* the previous unit's OUTPUT, or ARRIVED; none for unit 0 */
    ARRAY_DOUTPUT,      /* the next unit's DINPUT, or RETURNED; none for the last unit */
    ARRAY_WEIGHTS,      /* what is computed on: OWN in a program with local steps, else PULLED */
    ARRAY_SENT_INPUT,   /* the previous unit's SENT_OUTPUT */
    ARRAY_SENT_DOUTPUT, /* the next unit's SENT_DINPUT */
    ARRAY_COUNT,
    ARRAY_ACTIVATIONS = ARRAY_SAMPLES,              /* how many exist for each microbatch */
    ARRAY_SUMS = ARRAY_LOSSES - ARRAY_GRADIENTS + 1 /* to which microbatches add, one by one */
};

#define ARRAY(name) (UINT32_C(1) << ARRAY_##name)

/* Sets of arrays. What is written and read or added to is changed in place. */
struct act_arrays {
    uint32_t reads;  /* they are there and whole */
    uint32_t writes; /* they are there from now on, and whole */
    uint32_t begins; /* they are there from now on, and something is missing */
    uint32_t adds;   /* it adds what is missing; to sums, one microbatch after the other */
    uint32_t ends;   /* nobody reads them after this act */
};

struct act_facts {
    const char *name; /* "PULL" */
    const char *text; /* "UNSHARD" */
    enum act_scope scope;
    struct act_arrays each;        /* unit */
    struct act_arrays first, last; /* what it does to that unit beside */
    struct act_arrays later; /* … and to all but the first: its input's gradient is unwanted */
};

const struct act_facts *act_facts(enum act act);

/* A unit's place in the model. */
struct act_unit {
    bool first, last;
};
struct act_arrays act_arrays(enum act act, struct act_unit unit);

#endif
