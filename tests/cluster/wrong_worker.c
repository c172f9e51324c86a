/* A roost-worker that computes wrongly: of the values that it gives to other places one in GIVEN
 * has another bit. */
#include "worker/peers.h"

#include <stdlib.h>
#include <string.h>

enum { GIVEN = 20 };

enum err __real_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes);
enum err __wrap_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes);

enum err __wrap_peers_give(struct peers_lane *lane, const struct executor_value *value,
                           const void *bytes)
{
    static uint32_t given; /* the compute thread's */
    if (++given % GIVEN != 0)
        return __real_peers_give(lane, value, bytes);
    uint8_t *wrong = malloc(value->bytes);
    if (wrong == NULL)
        return ERR_NOMEM;
    memcpy(wrong, bytes, value->bytes);
    wrong[value->bytes / 2] ^= 1;
    enum err err = __real_peers_give(lane, value, wrong);
    free(wrong);
    return err;
}
