/* What an executor is made from, and the device memory that it takes. */
#ifndef ROOST_WORKER_EXECUTOR_OPTIONS_H
#define ROOST_WORKER_EXECUTOR_OPTIONS_H

#include "common/model/model.h"
#include "common/program/program.h"
#include "kernels/kernels.h"
#include "worker/local.h"

struct mesh;
struct shared_pool;

struct executor_options {
    const struct kernels *kernels; /* borrowed, like the two below, as long as the executor lives */
    const struct model *model;     /* or a member's */
    const struct spec_train *train; /* slots, slot_samples, microbatch, logits_bytes_max … */
    uint32_t node_slots_max;        /* largest node that a ticket may cover; 0: validation only */
    uint32_t sum_slots_max; /* of a node that others' parts are added of (crew.h); 0: none are */
    struct local_settings local;
    const struct program *program; /* of one place; NULL: the mesh's; borrowed for the call */
    const struct mesh *mesh;       /* NULL: one place, which has all units; borrowed for the call */
    uint32_t place;                /* of the mesh */
    uint64_t memory_max; /* of a device that names no limit of its own; 0: none. It is shared */
    uint32_t executors;  /* by so many like this one (0: one) */
    uint32_t leases;     /* and what each of so many keeps for other members (0: one) */
    bool direct;         /* no graphs (graphs.h): the same bits */
    struct shared_pool *pool; /* where a CPU's gradients lie; NULL: on the heap. Borrowed */
};

/* Bytes of device memory, as predicted from the program = as taken. */
struct executor_memory {
    uint64_t weights;
    uint64_t gradients; /* all sets; on a CPU a set costs memory only once a node has needed it, and
                           of one that is kept by rows (few_rows.h) a row likewise */
    uint64_t gradient_sets;
    bool freed; /* no sets: gradients of a few units, which are freed when they are acknowledged */
    uint64_t activations; /* the arena */
    uint64_t local;       /* a slot's own weights and optimizer state */
    uint64_t scratch;     /* shared by all rows: gradient streams, a block of logits, samples */
    uint64_t logits;      /* that block alone */
    uint64_t workspace;   /* the backend's own, taken before; not in the total */
    uint64_t total;       /* one alloc */
    uint64_t hosted;      /* of the host's memory: activations that are offloaded, */
    uint64_t kept; /* and of a lease, until it is over, at most what other places may ask for, */
    uint64_t sums; /* and the newest sums, which other members of the place may ask for */
};

#endif
