/* What an executor has around it: samples, the protocol, its neighbours. */
#ifndef ROOST_WORKER_EXECUTOR_HOOKS_H
#define ROOST_WORKER_EXECUTOR_HOOKS_H

#include "common/program/program.h"
#include "proto/wire.h"

/* The source of samples: `count` samples at `first`, a place in the training stream (ticket ×
 * slot_samples, …) or in the held-out set. Inputs and targets of one after another: gpt: int32
 * tokens, sample_tokens each of both; mlp: sizes[0] floats and one int32 class each. */
struct executor_samples {
    void *context;
    enum err (*read)(void *context, enum ticket_kind kind, uint64_t first, uint32_t count,
                     void *ret_inputs, int32_t *ret_targets);
    uint64_t held_out; /* samples to validate on */
};

/* What passes between places: an activation on its way up, or its gradient on its way down. The
 * name decides the bits, whoever computes them. */
enum executor_way { EXECUTOR_FORWARD, EXECUTOR_BACKWARD };
struct executor_value {
    enum executor_way way;
    uint32_t boundary;   /* the unit whose input it is, or whose input's gradient */
    uint32_t slot;       /* of the ticket's node */
    uint32_t microbatch; /* of the slot */
    size_t bytes;        /* elements of the device */
};

/* A part of a collective of the members of a place: what a member gives in a round of it. The
 * collectives of a ticket are numbered from 1 on, the same at each member. */
struct executor_part {
    uint32_t sequence;
    uint32_t round;
    uint32_t rank; /* who gives it */
};

/* Each may be NULL: then there is nothing to do. */
struct executor_hooks {
    void *context;
    /* Returns when all weights of the unit are in place (executor_decode), or with the error.
     * Called once a unit and run, in forward order; where weights are streamed, before each use. */
    enum err (*pull)(void *context, uint32_t unit);
    /* Streamed: the unit's weights may come now; pull follows, before another unit that shares
     * parameters with it is asked for. */
    enum err (*ask)(void *context, uint32_t unit);
    /* The gradients of the unit's uses (model->uses) are final for the node, as executor_encode
     * sees them, and stay until they are acknowledged, or the next ticket begins. The node is the
     * ticket's, or the half of it that the place computes of this unit. Called once a unit and
     * ticket, in the program's order: last unit first. An error ends the run. */
    enum err (*push)(void *context, uint32_t unit, struct node node);
    /* Returns when the servers have acknowledged all of the unit's gradients: their memory is
     * another unit's then, and nobody reads them any more. NULL: a push is acknowledged when it
     * returns. */
    enum err (*acknowledged)(void *context, uint32_t unit);
    /* Asked between rows; true ends the run with ERR_CANCELLED. */
    bool (*cancelled)(void *context);
    /* Between places; an executor of one place calls neither. send: other places may ask for the
     * value, `memory` is the device's and changes after the return. receive: puts the value there;
     * ERR_BEHIND: it was not sent yet, executor_advance() returns that and is called again. */
    enum err (*send)(void *context, const struct executor_value *value, const void *memory);
    enum err (*receive)(void *context, const struct executor_value *value, void *memory);
    /* Between the members of a place (worker/exchange.h), within an act: this one gives its part, which
     * is copied; waits for another's. */
    enum err (*give_part)(void *context, uint32_t sequence, uint32_t round, const void *bytes,
                          size_t count);
    enum err (*take_part)(void *context, const struct executor_part *part, void *ret_bytes,
                          size_t count);
    /* The same, where the bytes may stay as they came, until the next call: *ret_bytes is there, or
     * `scratch`. NULL: they are taken. */
    enum err (*lend_part)(void *context, const struct executor_part *part, void *scratch,
                          size_t count, const void **ret_bytes);
    /* It will be taken: whoever brings it may ask for it by now. NULL: nobody does. */
    void (*expect_part)(void *context, const struct executor_part *part, size_t count);
    /* Before and after each row, for who measures. After: the row was carried out, or given to the
     * device. */
    void (*row_begins)(void *context, const struct program_row *row);
    void (*row_ends)(void *context, const struct program_row *row);
};

struct executor_loss {
    double loss_sum; /* over samples, of the mean loss of the sample's predictions */
    uint64_t samples;
    uint64_t correct; /* predictions; samples × model->sample_tokens were made */
};

#endif
