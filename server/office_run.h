/* The run that an office holds: its spec, its model's grid, its directory, and what the core gets
 * to know of them. Made once, then only read; the core borrows from it while the run is active. */
#ifndef ROOST_SERVER_OFFICE_RUN_H
#define ROOST_SERVER_OFFICE_RUN_H

#include "common/model.h"
#include "common/spec.h"
#include "server/store.h"

struct office_run {
    struct store_run stored;
    struct spec spec;
    struct model model;
    struct map_parameter *parameters; /* one for each of the model's */
    char *checkpoint_dir;
    struct coordinator_run settings; /* points into the rest */
};

/* From the stored facts, which it takes over also when it fails. ERR_INVALID: the spec. */
enum err office_run_new(struct store_run *take_stored, struct office_run **ret_run,
                        struct reason *reason) MUST_USE;
void office_run_free(struct office_run *run); /* NULL is fine */

/* Held-out samples that a validation goes over: all, or as many as the spec allows. */
uint64_t office_run_held_out(const struct office_run *run);

/* The run that an operator asks for, not stored yet, or stored and now changed.
 * ERR_EXISTS: the directory has a run, and resume was not asked for. ERR_NOT_FOUND: nothing to
 * resume. ERR_SPEC_DIFFERS, ERR_DATA_SET: it can't be continued so. */
struct office_wish {
    const struct start_run_request *request;
    const char *directory;
};
struct office_plan {
    struct office_run *run;
    bool is_new;   /* to be added to the store, not changed there */
    bool has_past; /* `past` is from the directory: it belongs in the store too */
    struct coordinator_past past;
    struct buf notes; /* text for the operator, ends in a 0 */
};
enum err office_run_plan(struct store *store, const struct office_wish *wish,
                         struct office_plan *ret_plan, struct reason *reason) MUST_USE;
void office_plan_release(struct office_plan *plan);

#endif
