/* Asks the cloud's metadata service, from a thread of its own, whether this machine is to go.
 *
 * Thread `notice`: asks each cloud whether it is there, three times in some ten seconds; when none
 * is, it logs that and ends. A cloud that was named it asks until that answers. Then it asks the
 * cloud that it found again and again, until an answer means that the machine goes, or until it is
 * stopped. When answers stop, or a named cloud has given none in three tries, it logs that once,
 * until they come again. Nothing else waits for it. */
#ifndef ROOST_WORKER_NOTICE_WATCH_H
#define ROOST_WORKER_NOTICE_WATCH_H

#include "common/log.h"
#include "worker/notice.h"

struct notice_watch; /* opaque */

struct notice_watch_config {
    int cloud;            /* enum notice_cloud; -1: whichever answers */
    const char *endpoint; /* "http://169.254.169.254" */
    uint32_t every_ms;
    uint32_t leave_ms; /* what the worker needs to leave */
    const struct logger *logger;
    /* Called on the thread: NOTHING with the name of the cloud that was found; then each notice. */
    void (*said)(void *owner, enum notice_verdict verdict, const char *text);
    void *owner;
};

enum err notice_watch_new(const struct notice_watch_config *config, struct notice_watch **ret_watch,
                          struct reason *reason) MUST_USE;
/* Ends the thread at once. NULL is fine. */
void notice_watch_free(struct notice_watch *watch);

#endif
