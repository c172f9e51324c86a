/* The run that the coordinator's daemon holds: its spec, its model's grid, its directory, and the
 * settings that the core gets. Made once, then only read; the core borrows from it while the run is
 * active. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_RUN_H
#define ROOST_SERVER_CONTROL_CONTROL_RUN_H

#include "common/model/model.h"
#include "common/settings/spec.h"
#include "server/control/control_mesh.h"
#include "server/control/control_past.h"
#include "server/control/whole_cut.h"
#include "server/disk/store.h"

struct control_run {
    struct store_run stored;
    struct spec spec;
    struct model model;
    struct map_parameter *parameters; /* one for each of the model's */
    struct control_mesh mesh;
    char *checkpoint_dir;
    char *
        prepared_spec; /* what servers are told, who have no use for products: it stays the same when
                            these are timed */
    struct coordinator_run settings; /* points into the rest */
};

/* From the stored facts, which it takes over also when it fails. ERR_INVALID: the spec. */
enum err control_run_new(struct store_run *take_stored, struct control_run **ret_run,
                         struct reason *reason) MUST_USE;
void control_run_free(struct control_run *run); /* NULL is fine */

/* The number of held-out samples of a validation: all, or as many as the spec allows. */
uint64_t control_run_held_out(const struct control_run *run);

/* The run that an operator asks for, not stored yet, or stored and now changed.
 * ERR_EXISTS: the directory has a run, and resume was not asked for. ERR_NOT_FOUND: nothing to
 * resume. ERR_SPEC_DIFFERS, ERR_DATA_SET: it can't be continued so. ERR_SEARCHING: ask again. */
struct control_wish {
    const struct start_run_request *request;
    const char *directory;   /* its one name: run_directory_name() */
    const char *spelled;     /* as somebody wrote it: so an older version stored it */
    bool chosen;             /* by the daemon: the operator is told which */
    struct whole_cut *whole; /* of a run that the store does not know */
    uint64_t now_ns;
};
struct control_plan {
    struct control_run *run;
    bool is_new;   /* to be added to the store, not changed there */
    bool has_past; /* `past` is from the directory: it belongs in the store too */
    struct coordinator_past past;
    struct control_cuts older; /* has_past: control_past_read_older() */
    struct buf notes;          /* text for the operator, ends in a 0 */
    bool drops_journal;        /* behind the newest cut, before the settings change */
};
enum err control_run_plan(struct store *store, const struct control_wish *wish,
                          struct control_plan *ret_plan, struct reason *reason) MUST_USE;
/* Whether the weights that a new run begins with fit its model. `elsewhere`: only other machines'
 * servers read them; a file that does not open here is theirs to judge. restore_check()'s errors, but
 * ERR_INVALID where a file or a tensor is missing. */
enum err control_run_check_weights(const struct control_run *run, bool elsewhere,
                                   struct reason *reason) MUST_USE;
/* One more line for the operator. ERR_NOMEM. */
enum err control_plan_note(struct control_plan *plan, const char *line) MUST_USE;
void control_plan_release(struct control_plan *plan);

#endif
