/* What `roost program` makes of a spec and its command line: the program of the run's mesh, and what
 * it costs on the run's model. Nothing is trained. */
#ifndef ROOST_WORKER_PLANNED_H
#define ROOST_WORKER_PLANNED_H

#include "common/settings/flags.h"
#include "worker/plan.h"
#include "worker/program/mesh.h"

struct planned_options {
    const char *spec_path;
    struct flags_sets sets;
    enum schedule_kind schedule;
    bool schedule_given; /* else the one that a worker has */
    uint32_t stages, runs;
    uint32_t microbatches; /* of a slot; 0: the spec's */
    uint32_t node_slots;   /* 0: the spec's */
    const char *read;      /* a program's file; NULL: the schedule makes it */
    double link_gbit;      /* a second; 0: values are there at once */
    struct residency residency;
    bool offload, uniform;
    enum kernels_backend backend; /* whose memory is planned, and whose times are measured */
};

struct planned {
    struct spec spec;
    struct model model;
    const struct kernels *kernels;
    struct plan plan; /* of rank 0 */
    struct mesh mesh; /* borrows the rows, or the spec's */
    struct buf rows;  /* of --read; none: the spec's or a schedule's */
    struct program program;
    struct simulate_result result;
    uint32_t ranks;             /* of each place */
    struct model *shares;       /* (ranks) */
    struct plan_bytes *members; /* (places, ranks) of all their lanes */
    double step, step_ideal;    /* ticks of a step, in a stream of them; 0: there is no stream */
    uint32_t slots;             /* of the node */
    uint32_t of_slot;           /* microbatches; 0: the program was read as it stands */
    uint32_t walks; /* of the program, for the node: one place has a program of one slot */
};

/* The result borrows the options, and is released also after an error; it begins as {0}. ERR_INVALID,
 * ERR_UNSUPPORTED, ERR_NOMEM, or a file's. */
enum err planned_make(const struct planned_options *options, struct planned *planned,
                      struct reason *reason) MUST_USE;
void planned_release(struct planned *planned);

const struct plan_bytes *planned_member(const struct planned *planned, uint32_t place,
                                        uint32_t rank);
/* How many leases a place computes at a time. */
uint32_t planned_lanes(const struct planned *planned, uint32_t place);

/* Ticks of the node. */
uint64_t planned_time(const struct planned *planned);
/* Forwards of a place, or seconds. */
double planned_in_words(const struct planned_options *options, double ticks);

#endif
