/* Carries the core's effects out, in order. For control*.c only. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_EFFECTS_H
#define ROOST_SERVER_CONTROL_CONTROL_EFFECTS_H

#include "server/control/control_core.h"

/* Carries the core's effects out, in order; effects that this adds come behind. After every call of
 * the core, and before its answer is sent (coordinator.h). A failing store ends the daemon. */
void control_effects_carry_out(struct control *control, uint64_t now_ns);
/* The store failed: the daemon ends. */
void control_effects_fail(struct control *control, enum err err, const struct reason *reason);
/* The same for what was not synced, whatever it was written for; other errors are none of this. */
void control_effects_end_if_not_synced(struct control *control, enum err err,
                                       const struct reason *reason);
/* After ERR_OLD_TERM of the run's log: goes on with it where the store says that the term is still
 * this one, so that an operator replaced steps.jsonl, and no successor. */
enum err control_effects_reopen_log(struct control *control, struct reason *reason) MUST_USE;
/* P7: the term that a server with this hello obeys, where that needs a newer one. ERR_NO_SPACE: the
 * hello is refused; the server sends another. */
enum err control_effects_take_term(struct control *control, const struct server_report *hello,
                                   struct reason *reason) MUST_USE;
/* Stores the run's state; on a full disk later. The state only decides whether a successor goes on
 * with the run by itself, and a successor that does finds the same cut. */
enum err control_effects_store_state(struct control *control, struct reason *reason) MUST_USE;
/* Where there is no room it is stored late, as the rest here: who has no room wants to stop. */
enum err control_effects_store_stop(struct control *control, const char *why,
                                    struct reason *reason) MUST_USE;
/* Stores it; on a full disk later. */
enum err control_effects_store_conviction(struct control *control,
                                          const struct conviction *conviction,
                                          struct reason *reason) MUST_USE;
/* Stores what the disk had no room for: the cut that a search found, fingerprint, state, convictions,
 * stop; the caller carries out what follows. ERR_NO_SPACE: some are still late. After an error of the
 * store what it met is late as well. */
enum err control_effects_store_late(struct control *control, uint64_t now_ns,
                                    struct reason *reason) MUST_USE;

/* Goes on with the search for a cut that is whole: a short while at a time. The caller carries out
 * what follows. */
void control_effects_search(struct control *control, uint64_t now_ns);
void control_effects_end_search(struct control *control); /* none is fine */

#endif
