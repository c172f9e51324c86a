/* What an executor owns: for executor*.c. executor_memory.c makes it. */
#ifndef ROOST_WORKER_EXECUTOR_MEMORY_H
#define ROOST_WORKER_EXECUTOR_MEMORY_H

#include "worker/exchange.h"
#include "worker/executor_hooks.h"
#include "worker/executor_options.h"
#include "worker/executor_sums.h"
#include "worker/few_rows.h"
#include "worker/graphs.h"
#include "worker/program/memory.h"

enum { EXECUTOR_FAILURE_BYTES = 256, EXECUTOR_PROGRAMS_MAX = 2 * TREE_LEVEL_MAX + 2 };

/* What crosses between device and host once a slot: arrays of the slots that a program has at once,
 * one slot after the other in steps of `slot_bytes`; on the host those of one. */
struct slot_memory {
    void *inputs;     /* (slot_samples, sample.inputs) */
    int32_t *targets; /* (slot_samples, sample_tokens), likewise the two below */
    float *losses;
    int32_t *correct;
};

/* A program as the executor's place walks it. */
struct executor_program {
    struct program program;
    struct program_memory memory;
    uint32_t *unit_slots;       /* (units) how many slots the place computes gradients of */
    uint32_t load_first, loads; /* the slots that it loads */
    uint64_t entries_first; /* in the executor's graphs: one for each row and set of gradients */
};

/* A ticket under way: the program is walked again and again until the node's slots are done. */
struct executor_walk {
    const struct executor_program *program; /* NULL: no ticket */
    struct ticket ticket;
    struct executor_samples samples;
    struct executor_hooks hooks;
    uint64_t first;            /* the node's first slot, in the whole stream of slots */
    uint32_t slots;            /* of the node */
    uint32_t slot;             /* of the node: the program's slot 0 */
    uint32_t row;              /* that comes next */
    uint32_t local_step;       /* how often the body was walked before */
    struct executor_loss loss; /* of all slots so far */
};

struct executor {
    const struct kernels *k;
    const struct model *model;
    struct spec_train train;
    uint32_t node_slots_max, place;
    bool alone;        /* one place, which has all units */
    uint64_t streamed; /* bytes of weights that are held at once; 0: they are resident */
    uint64_t freed;    /* bytes of gradients that are not acknowledged, at once; 0: sets of all */
    uint32_t slots_max, loads_max; /* that a program has at once, and that the place loads */
    uint32_t trainings_count;
    struct executor_program trainings[EXECUTOR_PROGRAMS_MAX]; /* of different numbers of slots */
    struct executor_program validation;
    struct executor_memory memory;
    uint64_t set_floats;  /* of one gradient set of all units, as far as it is whole */
    uint64_t whole_bytes; /* of all sets, likewise */
    struct model_sample sample;
    struct executor_walk walk;
    struct executor_sums sums;
    struct executor_loss *slot_losses; /* (slots_max) */
    /* Host tables. Arrays of other places are NULL, and streamed weights that are not held. */
    bool *units;                 /* (units) the place has it */
    bool *used;                  /* (parameters) by one of them */
    uint32_t *unit_sets;         /* (units) its gradient sets */
    struct program_sizes *sizes; /* (units) of all places */
    element **parameters;        /* (parameters) whole parameters' weights */
    element **own;               /* (parameters) the same, in its own memory */
    element **use_weights;       /* (uses) the same by use */
    float **gradients;   /* (sets, uses); of freed ones a unit's newest; NULL: in few_sets */
    uint32_t *part_uses; /* (parameters, MODEL_PARTS_MAX) the use of a part */
    /* Device memory: one alloc, and where its pieces lie. */
    void *memory_taken;
    element *weights;
    float *gradient_sets; /* of it, or of what is lent: */
    bool lends;           /* gradients are sent from where they lie */
    struct counted *lent; /* their block, from the pool */
    struct shared_pool *pool;
    struct few_rows few;       /* the shape of a gradient that is not whole */
    uint32_t few_count;        /* sets of it; 0: all are whole */
    struct few_rows *few_sets; /* (few_count) in the alloc */
    uint8_t *arena;
    void *scratch;
    struct local local;
    struct slot_memory device;
    struct slot_memory host;
    uint8_t *hosted; /* activations that wait in the host's memory */
    struct graphs graphs;
    struct exchange exchange; /* of a member of several */
    char failure[EXECUTOR_FAILURE_BYTES];
};

/* The use's gradient of a set, if it is kept by rows; else NULL. */
static inline struct few_rows *executor_few(const struct executor *e, uint32_t use, uint32_t set)
{
    if (use != e->few.use)
        return NULL;
    check(set < e->few_count);
    return &e->few_sets[set];
}

/* Bytes of one slot in each array of slot_memory. */
struct slot_bytes {
    uint64_t inputs, predictions; /* each of the three arrays with one number a prediction */
};
struct slot_bytes executor_slot_bytes(const struct executor *e);

/* Takes all of it; the errors are executor_new()'s. After one, release what was taken. */
enum err executor_memory_take(struct executor *e, const struct executor_options *options,
                              struct reason *reason) MUST_USE;
void executor_memory_release(struct executor *e);
/* Gradients may be written again: those that somebody still reads, of an earlier ticket, stay as they
 * are, and the next ones get another place. ERR_NOMEM. */
enum err executor_memory_renew(struct executor *e) MUST_USE;

#endif
