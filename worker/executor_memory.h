/* What an executor owns: for executor.c, which runs, and executor_memory.c, which makes it. */
#ifndef ROOST_WORKER_EXECUTOR_MEMORY_H
#define ROOST_WORKER_EXECUTOR_MEMORY_H

#include "worker/executor_options.h"
#include "worker/graphs.h"
#include "worker/program/memory.h"

enum { EXECUTOR_FAILURE_BYTES = 256 };

/* Device memory and its copy on the host for what crosses between them once a slot. */
struct slot_memory {
    void *inputs;     /* (slot_samples, sample.inputs) */
    int32_t *targets; /* (slot_samples, sample_tokens), likewise the two below */
    float *losses;
    int32_t *correct;
};

/* A program as it is walked; there is one place. */
struct executor_program {
    struct program program;
    struct program_memory memory;
    uint64_t entries_first; /* in the executor's graphs: one for each row and set of gradients */
};

struct executor {
    const struct kernels *k;
    const struct model *model;
    struct spec_train train;
    uint32_t node_slots_max;
    struct executor_program training, validation;
    struct executor_memory memory;
    uint64_t set_floats; /* of one gradient set */
    struct model_sample sample;
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
    struct local local;
    struct slot_memory device;
    struct slot_memory host;
    struct graphs graphs;
    char failure[EXECUTOR_FAILURE_BYTES];
};

/* Takes all of it; the errors are executor_new()'s. After one, release what was taken. */
enum err executor_memory_take(struct executor *e, const struct executor_options *options,
                              struct reason *reason) MUST_USE;
void executor_memory_release(struct executor *e);

#endif
