#include "worker/worker_stop.h"

#include "worker/worker_calls.h"
#include "worker/worker_link.h"

void worker_stop_note(struct worker *worker)
{
    if (worker->agent == NULL || worker->stop_noted || !agent_has_stopped(worker->agent))
        return;
    worker->stop_noted = true;
    worker->stop_failure = worker->failure;
}

/* A place does not fit here. */
static bool is_too_small(const struct worker *worker, enum err stop)
{
    bool refused = worker->run.refused.text[0] != 0;
    return worker->member != 0 && (stop == ERR_NOMEM || (stop == ERR_UNSUPPORTED && refused));
}

/* The coordinator tells that from a loss. */
static void leave_too_small(struct worker *worker)
{
    snprintf(worker->leave_reason, sizeof worker->leave_reason, "too small: %.100s",
             worker->failure.text);
    worker_call_leave(worker);
}

void worker_stop(struct worker *worker, enum err stop)
{
    worker_stop_note(worker);
    worker->failure = worker->stop_failure;
    if (stop == ERR_RUN_CHANGED)
        worker->failure = (struct reason){0}; /* the error's own words; the log has more */
    if (is_too_small(worker, stop))
        leave_too_small(worker);
    else if (stop == ERR_OK)
        log_info(worker->config->logger, "worker ends", log_text("reason", worker->leave_reason),
                 log_uint("servers", worker->link_count),
                 log_uint("in_shared_memory", worker_links_shared(worker)));
    worker->stopped = true;
    worker->stop = stop;
}
