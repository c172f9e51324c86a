/* Which tickets are audited (train.audit): a second worker computes them as well, and servers
 * compare what the two bring. The choice is a function of the run's secret, the step and the slot.
 * So it does not depend on who is there, a successor chooses the same tickets, and no worker can
 * know them before. A node of several slots is audited when its first slot is chosen: the share of
 * tickets that are computed twice is the setting, whatever the nodes' sizes. Pure. */
#ifndef ROOST_SERVER_SHARD_AUDITED_H
#define ROOST_SERVER_SHARD_AUDITED_H

#include "common/digest.h"

/* The key that choices are made with, from the run's secret: HMAC(secret, "audit"). */
void audited_key(struct digest_mac *mac, const uint8_t secret[static DIGEST_KEY_BYTES],
                 uint8_t ret_key[static DIGEST_KEY_BYTES]);
/* Whether a node that begins with that slot is audited: HMAC(key, step, slot) as a fraction is
 * below `share`. `mac` has the key. */
bool audited(struct digest_mac *mac, double share, uint64_t step, uint32_t slot);

#endif
