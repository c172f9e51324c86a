/* A program on a fake clock: how long it takes, and what it keeps and sends.
 *
 * Every place walks its rows; an act takes what it costs, and a place waits at a receive until the
 * value is there. No clock, no threads: the same costs give the same result. */
#ifndef ROOST_WORKER_PROGRAM_SIMULATE_H
#define ROOST_WORKER_PROGRAM_SIMULATE_H

#include "worker/program/memory.h"

/* Of a unit, for one microbatch, in ticks. B takes input + weights. */
struct simulate_cost {
    uint64_t forward; /* of F and RC */
    uint64_t input, weights;
};

/* What an act costs; 0: it computes nothing. */
uint64_t simulate_act(const struct simulate_cost *cost, enum act act);

struct simulate_options {
    const struct simulate_cost *costs; /* (units) */
    const struct program_sizes *sizes; /* (units) */
    /* A value is there so much later than it is sent; values do not hinder each other. */
    uint64_t link_bytes; /* that take link_ticks; 0: at once */
    uint64_t link_ticks;
};

/* Values that were sent: so many moments, each 1 + when the value is there; 0: it is not sent. */
size_t simulate_mail_count(const struct program *program);
/* What a row sends or receives. */
struct simulate_parcel {
    uint64_t *there; /* in the mail; NULL: it is no such row */
    bool received;
    uint64_t bytes, ticks; /* on its way */
};
struct simulate_parcel simulate_parcel(const struct program *program,
                                       const struct simulate_options *options, uint64_t *mail,
                                       struct program_row row);

/* When a row is under way, in ticks. */
struct simulate_span {
    uint64_t begin, end;
};

struct simulate_place {
    struct simulate_span *rows; /* owned; one a row */
    uint64_t busy;
    uint32_t stored;          /* most microbatches kept at once, of its runs together */
    uint64_t arena_bytes;     /* of activations (program_memory_plan) */
    uint64_t hosted_bytes;    /* most activations that are offloaded at once */
    uint64_t weights_bytes;   /* streamed; 0: they are not */
    uint64_t gradients_bytes; /* freed when they are acknowledged; 0: they are not */
    uint64_t outbox_bytes;    /* sent, and kept until the lease is over */
    uint64_t arrived_bytes;   /* received */
};

struct simulate_result {
    uint64_t time;
    uint32_t places_count;
    struct simulate_place *places; /* owned */
};

/* The program is valid. ERR_NOMEM. */
enum err simulate_program(const struct program *program, const struct simulate_options *options,
                          struct simulate_result *ret_result) MUST_USE;
void simulate_release(struct simulate_result *result);

/* The share of all places' time, from the program's first act to its last, in which nothing is
 * computed. */
double simulate_idle_share(const struct simulate_result *result);
/* Between places; forward and back. */
uint64_t simulate_peer_bytes(const struct simulate_result *result);

/* The most slots' gradients of a unit that exist at once in its place: those under way, and sums of
 * slots in the tree of common/tree.h (a binary counter, as executor_sums.h has it). (units) of them
 * for the place; 0: it has not the unit. ERR_NOMEM. */
enum err simulate_gradient_sets(const struct program *program, uint32_t place,
                                uint32_t *ret_sets) MUST_USE;

#endif
