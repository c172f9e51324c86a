/* What the core wants of the world, carried out in order. For control*.c only. */
#ifndef ROOST_SERVER_CONTROL_CONTROL_EFFECTS_H
#define ROOST_SERVER_CONTROL_CONTROL_EFFECTS_H

#include "server/control/control_core.h"

/* Carries out what the core wants, in order; what that adds comes behind. After every call of the
 * core, and before its answer is sent (coordinator.h). A failing store ends the daemon. */
void control_effects_carry_out(struct control *control, uint64_t now_ns);
/* The store failed: the daemon ends. */
void control_effects_fail(struct control *control, enum err err, const struct reason *reason);
/* The run's state into the store. On a full disk later: it only says whether a successor goes on
 * with the run by itself, and one that does finds the same cut. */
enum err control_effects_store_state(struct control *control, struct reason *reason) MUST_USE;

#endif
