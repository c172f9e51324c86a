/* Carries the collectives of a place whose members are processes of one machine: a link through shared
 * memory to each. What decides is in collective/running.h. One thread at a time. */
#ifndef ROOST_WORKER_COLLECTIVE_LINKS_H
#define ROOST_WORKER_COLLECTIVE_LINKS_H

#include "common/shared/shared_link.h"
#include "worker/collective/running.h"

struct collective_links;

struct collective_links_options {
    struct running_options running;
    struct shared_link *const *links; /* running.ranks of them, borrowed; its own is NULL. Their
                                         payload_bytes_max is at least that of an array */
};
/* ERR_NOMEM; ERR_INVALID. */
enum err collective_links_new(const struct collective_links_options *options,
                              struct collective_links **ret_links, struct reason *reason) MUST_USE;
void collective_links_free(struct collective_links *links); /* NULL is fine */

/* Waits until the collective is done. After an error nothing more can be done with these: the place
 * is given up, and *ret_rank is who is to blame. ERR_DEADLINE; ERR_UNREACHABLE; ERR_MALFORMED;
 * ERR_NOT_FOUND, ERR_TOO_LATE, ERR_BEHIND: what a part of another lease or try is refused with;
 * ERR_INVALID: there is no such collective, and nobody is to blame. */
enum err collective_links_run(struct collective_links *links, const struct running_work *work,
                              uint32_t *ret_rank, struct reason *reason) MUST_USE;

#endif
