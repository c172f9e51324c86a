/* What an executor owns: for executor.c, which runs, and executor_memory.c, which makes it. */
#ifndef ROOST_WORKER_EXECUTOR_MEMORY_H
#define ROOST_WORKER_EXECUTOR_MEMORY_H

#include "kernels/update.h"
#include "worker/executor.h"
#include "worker/graphs.h"

enum { EXECUTOR_FAILURE_BYTES = 256 };

/* Device memory and its copy on the host for what crosses between them once a slot. */
struct slot_memory {
    void *inputs;     /* (slot_samples, inputs.count) */
    int32_t *targets; /* (slot_samples, sample_tokens), likewise the two below */
    float *losses;
    int32_t *correct;
};

/* A slot's own weights and optimizer state between pull and push; steps 0: none. */
struct local_memory {
    struct executor_local settings;
    uint32_t states;
    float *values;                   /* weights, then each state */
    float **parameters;              /* (parameters) its weights */
    float **use_weights;             /* (uses) the same by use */
    float *state[UPDATE_STATES_MAX]; /* laid out like the weights */
};

struct executor {
    const struct kernels *k;
    const struct model *model;
    const struct unit_operations *operations;
    struct spec_train train;
    uint32_t node_slots_max;
    struct program program;
    struct program_places places;
    struct executor_memory memory;
    uint64_t set_floats;       /* of one gradient set */
    struct unit_inputs inputs; /* of a sample */
    /* Host tables. */
    element **parameters;  /* (parameters) whole parameters' weights */
    element **use_weights; /* (uses) the same by use */
    float **gradients;     /* (sets, uses) */
    uint32_t *part_uses;   /* (parameters, MODEL_PARTS_MAX) the use of a part */
    /* Device memory: one alloc, and where its pieces lie. */
    void *memory_taken;
    element *weights;
    float *gradient_sets;
    uint8_t *arena;
    void *scratch;
    struct local_memory local;
    struct slot_memory device;
    struct slot_memory host;
    struct graphs graphs; /* an entry for each row and set of gradients, and without gradients */
    char failure[EXECUTOR_FAILURE_BYTES];
};

#endif
