#include "deploy/roost/watch.h"

#include "common/scoped.h"
#include "common/signals.h"
#include "common/time.h"
#include "deploy/roost/print.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
    LOOK_MS = 200,
    SILENT_MS = 30000,
    ANOTHER_MS = 400, /* sooner, a signal is the same stop: `timeout` sends two */
    EXIT_SIGNAL = 128 /* what shells add to the number of the signal that ended a process */
};

/* ---- signals ---- */

struct watch_signals {
    struct signals signals;
    struct thread_mutex mutex; /* with `said`: wakes the watch */
    struct thread_cond said;
    atomic_uint count;
    uint64_t counted_ns; /* when the newest was; the signals' thread alone reads it */
    atomic_int first;    /* number of the first one; 0: none yet */
    _Atomic(const char *) ending;
};

static void take_signal(void *owner, int number)
{
    struct watch_signals *signals = owner;
    const char *ending = atomic_load(&signals->ending);
    int none = 0;
    if (ending != NULL) {
        fprintf(stderr, "%s\n", ending);
        _exit(EXIT_SIGNAL + number);
    }
    uint64_t now_ns = time_now_ns();
    if (atomic_load(&signals->count) > 0 && now_ns < time_after_ms(signals->counted_ns, ANOTHER_MS))
        return; /* one stop that arrived as two */
    signals->counted_ns = now_ns;
    atomic_compare_exchange_strong(&signals->first, &none, number);
    atomic_fetch_add(&signals->count, 1);
    thread_lock(&signals->mutex);
    thread_wake_all(&signals->said);
    thread_unlock(&signals->mutex);
}

enum err watch_signals_start(const char *ending, struct watch_signals **ret_signals)
{
    struct watch_signals *signals = calloc(1, sizeof *signals);
    if (signals == NULL)
        return ERR_NOMEM;
    thread_mutex_init(&signals->mutex);
    thread_cond_init(&signals->said);
    atomic_init(&signals->ending, ending);
    enum err err = signals_start(&signals->signals, take_signal, signals);
    if (err != ERR_OK) {
        free(signals);
        return err;
    }
    *ret_signals = signals;
    return ERR_OK;
}

void watch_signals_set_ending(struct watch_signals *signals, const char *ending)
{
    atomic_store(&signals->ending, ending);
}

void watch_signals_free(struct watch_signals *signals)
{
    signals_stop(&signals->signals);
    thread_cond_release(&signals->said);
    thread_mutex_release(&signals->mutex);
    free(signals);
}

unsigned watch_signals_count(const struct watch_signals *signals)
{
    return atomic_load(&signals->count);
}

int watch_exit_code(const struct watch_signals *signals)
{
    int first = atomic_load(&signals->first);
    return first == 0 ? EXIT_SUCCESS : EXIT_SIGNAL + first;
}

/* Sleeps for a look's time, or until a signal is said. */
static void pause_for_look(const struct watch_signals *signals)
{
    struct watch_signals *mine = (struct watch_signals *)(uintptr_t)signals;
    thread_lock(&mine->mutex);
    ignore(thread_wait_locked(&mine->said, &mine->mutex,
                              time_after_ms(time_now_ns(), LOOK_MS))); /* either is fine */
    thread_unlock(&mine->mutex);
}

/* ---- the run ---- */

bool watch_is_over(const struct status_reply *status)
{
    return status->state == RUN_ENDED || status->state == RUN_STOPPED ||
           status->state == RUN_FAILED;
}

/* What the first Ctrl-C asks for. */
struct stop_wish {
    bool said; /* on the terminal */
    uint64_t said_ms;
    bool taken; /* by the coordinator, which keeps it (P7) */
};

/* Its coordinator may have died a moment ago, or be about to: the next start of it takes the wish. A
 * run that has just ended takes none, and the next status says so. */
static bool may_be_taken_later(enum err err)
{
    enum reaction reaction = err_reaction(err);
    return reaction == REACT_RETRY || reaction == REACT_WAIT;
}

/* What Ctrl-C does: the first one asks the coordinator until that has answered, the second one gives
 * up. `status`: the answer of just now; NULL: there is none. It is asked once more only where the run
 * does not stop yet: a second stop ends the run without a last checkpoint that cannot be written. */
static enum err obey_signals(const struct watch *watch, uint64_t now_ms,
                             const struct status_reply *status, struct stop_wish *wish,
                             struct reason *reason)
{
    unsigned said = watch_signals_count(watch->signals);
    if (said > 1)
        return reason_set(reason, ERR_CANCELLED, "interrupted twice");
    watch->client->signals_heard = said;
    if (wish->said && status != NULL && status->stops)
        wish->taken = true;
    if (said == 0 || wish->taken || (wish->said && status == NULL))
        return ERR_OK;
    if (!wish->said) {
        progress_clear(watch->progress);
        fprintf(stderr, "stopping after a checkpoint (again: at once)\n");
        *wish = (struct stop_wish){.said = true, .said_ms = now_ms};
    }
    enum err err = client_stop_run(watch->client, "interrupted", reason);
    wish->taken = err == ERR_OK;
    return may_be_taken_later(err) && now_ms - wish->said_ms <= SILENT_MS ? ERR_OK : err;
}

/* *run: the number of the one that is watched; 0: not known yet. In a status 0 is a run whose number the
 * coordinator does not know yet, because its store does not read. */
static enum err check_run(const struct status_reply *status, uint64_t *run, struct reason *reason)
{
    if (status->state == RUN_NONE)
        return reason_set(reason, ERR_NO_RUN, "the coordinator knows no run %" PRIu64, *run);
    if (*run == 0)
        *run = status->run;
    if (status->run == *run || status->run == 0)
        return ERR_OK;
    return reason_set(reason, ERR_NOT_FOUND,
                      "run %" PRIu64 " is over, and its end was not seen here; the cluster has run "
                      "%" PRIu64,
                      *run, status->run);
}

/* Another run's status is no answer. Without one *ret_status is {0}. */
static enum err ask_status(const struct watch *watch, struct client_answer *answer, uint64_t *run,
                           struct status_reply *ret_status, struct reason *reason)
{
    enum err err = client_status(watch->client, answer, ret_status, reason);
    if (err == ERR_OK)
        err = check_run(ret_status, run, reason);
    if (err != ERR_OK)
        *ret_status = (struct status_reply){0};
    return err;
}

/* A coordinator of an older version says that there is no run until it can go on with it. */
static bool may_be_seen_later(enum err err)
{
    return err == ERR_NO_RUN || err_reaction(err) == REACT_RETRY;
}

static enum err look_to_the_end(const struct watch *watch, struct client_answer *answer,
                                struct status_reply *ret_status, struct reason *reason)
{
    struct stop_wish wish = {0};
    uint64_t run = watch->run;
    uint64_t answered_ms = time_now_ns() / 1000000;
    for (;;) {
        uint64_t now_ms = time_now_ns() / 1000000;
        enum err err = ask_status(watch, answer, &run, ret_status, reason);
        bool leaves = watch->detaches && watch_signals_count(watch->signals) > 0;
        if (err == ERR_OK) {
            answered_ms = now_ms;
            if (watch->see != NULL)
                watch->see(watch->context, ret_status);
            progress_show(watch->progress, now_ms, ret_status);
            if (watch_is_over(ret_status))
                break;
        } else if (!may_be_seen_later(err) || (!leaves && now_ms - answered_ms > SILENT_MS)) {
            progress_clear(watch->progress);
            return err == ERR_NO_RUN ? ERR_NOT_FOUND : err;
        }
        if (watch->look != NULL)
            TRY(watch->look(watch->context, now_ms, reason));
        if (leaves)
            break;
        if (!watch->detaches)
            TRY(obey_signals(watch, now_ms, err == ERR_OK ? ret_status : NULL, &wish, reason));
        pause_for_look(watch->signals);
    }
    progress_clear(watch->progress);
    return ERR_OK;
}

enum err watch_run(const struct watch *watch, struct client_answer *answer,
                   struct status_reply *ret_status, struct reason *reason)
{
    watch->client->signals = &watch->signals->count;
    enum err err = look_to_the_end(watch, answer, ret_status, reason);
    watch->client->signals = NULL;
    return err;
}

/* ---- the summary ---- */

static double samples_per_second(const struct status_reply *status)
{
    return status->seconds > 0 ? (double)status->samples_here / status->seconds : 0;
}

/* Of all starts of the coordinator, or of its present one where no more is known. */
struct counts {
    uint64_t joined, lost, redone, duplicates;
};

static struct counts counts_of(const struct summary *summary)
{
    const struct status_reply *status = summary->status;
    const struct effort *effort = summary->effort;
    if (effort == NULL)
        return (struct counts){status->workers_joined, status->workers_lost, status->tickets_redone,
                               status->duplicates};
    return (struct counts){effort_total(&effort->joined), effort_total(&effort->lost),
                           effort_total(&effort->redone), effort_total(&effort->duplicates)};
}

static void print_effort_tool(struct json_writer *writer, const struct effort *effort)
{
    struct effort_shares shares = effort_shares(effort);
    json_member_real(writer, "longest_step_gap_seconds",
                     effort->has_kept ? (double)effort->kept.gap_us / 1e6 : (double)NAN); /* null */
    json_member_real(writer, "worker_seconds", (double)effort->up_ms / 1000);
    json_member_real(writer, "goodput", shares.goodput);
    json_member_real(writer, "share_starting", shares.starting);
    json_member_real(writer, "share_waiting", shares.waiting);
    json_member_real(writer, "share_redone", shares.redone);
    json_member_real(writer, "share_audited", shares.audited);
}

static void print_prediction(struct json_writer *writer, const struct prediction *prediction)
{
    json_put_key(writer, "predicted");
    json_put_object(writer);
    json_member_uint(writer, "peer_bytes", prediction->peer_bytes);
    json_member_real(writer, "idle_share", prediction->idle_share);
    json_put_end(writer);
}

static void print_tool(const struct summary *summary)
{
    const struct status_reply *status = summary->status;
    bool stepped = status->samples_here > 0;
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    json_member_uint(&writer, "run", status->run);
    json_member_text(&writer, "state", print_state(status->state));
    json_member_text(&writer, "reason", status->reason);
    json_member_uint(&writer, "steps", status->step);
    json_member_real(&writer, "loss", stepped ? status->loss : (double)NAN); /* null */
    json_member_real(&writer, "accuracy", stepped ? status->accuracy : (double)NAN);
    json_member_real(&writer, "validation_loss",
                     status->has_validation ? status->validation_loss : (double)NAN);
    json_member_real(&writer, "validation_accuracy",
                     status->has_validation ? status->validation_accuracy : (double)NAN);
    json_member_real(&writer, "unigram_entropy",
                     summary->unigram_entropy > 0 ? summary->unigram_entropy : (double)NAN);
    json_member_uint(&writer, "samples", status->samples);
    json_member_real(&writer, "seconds", status->seconds);
    json_member_real(&writer, "samples_per_second", samples_per_second(status));
    if (summary->digest != NULL)
        json_member_text(&writer, "digest", summary->digest);
    struct counts counts = counts_of(summary);
    json_member_uint(&writer, "workers_joined", counts.joined);
    json_member_uint(&writer, "workers_lost", counts.lost);
    json_member_uint(&writer, "tickets_redone", counts.redone);
    json_member_uint(&writer, "duplicates", counts.duplicates);
    json_member_uint(&writer, "skipped_steps", status->skipped_steps);
    print_moves(&writer, &status->moves);
    print_audits(&writer, &status->audits);
    json_member_uint(&writer, "pushed_bytes", status->pushed_bytes);
    json_member_uint(&writer, "spared_bytes", status->spared_bytes);
    json_member_uint(&writer, "pulled_bytes", status->pulled_bytes);
    print_costs(&writer, status, summary->resident_bytes);
    if (summary->prediction != NULL)
        print_prediction(&writer, summary->prediction);
    if (summary->effort != NULL)
        print_effort_tool(&writer, summary->effort);
    if (summary->directory != NULL)
        json_member_text(&writer, "directory", summary->directory);
    json_put_end(&writer);
    print_json(&writer);
}

static void print_speed(const struct summary *summary)
{
    const struct status_reply *status = summary->status;
    printf("speed      %.1f samples/s", samples_per_second(status));
    if (summary->sample_tokens > 1)
        printf(", %.0f tokens/s", samples_per_second(status) * (double)summary->sample_tokens);
    printf(" over %s\n", time_format_duration(status->seconds).text);
}

static void print_effort(const struct effort *effort)
{
    struct effort_shares shares = effort_shares(effort);
    struct time_text up = time_format_duration((double)effort->up_ms / 1000);
    if (!effort->has_kept) {
        printf("goodput    not known, of %s of workers' time\n", up.text);
        printf("           starting %.1f %%, waiting %.1f %%\n", 100 * shares.starting,
               100 * shares.waiting);
        return;
    }
    printf("goodput    %.1f %% of %s of workers' time\n", 100 * shares.goodput, up.text);
    printf("           starting %.1f %%, waiting %.1f %%, redone %.1f %%\n", 100 * shares.starting,
           100 * shares.waiting, 100 * shares.redone);
    printf("step gap   %.2f s at the longest\n", (double)effort->kept.gap_us / 1e6);
}

static void print_places(const struct summary *summary)
{
    const struct status_reply *status = summary->status;
    const struct prediction *prediction = summary->prediction;
    double idle = print_idle_share(status);
    printf("places     %u, %" PRIu64 " bytes between them", status->cost_count,
           print_peer_bytes(status));
    if (status->validation_peer_bytes > 0)
        printf(" (%" PRIu64 " of validation)", status->validation_peer_bytes);
    if (!isnan(idle))
        printf(", idle %.1f %%", 100 * idle);
    printf("\n");
    if (prediction != NULL)
        printf("predicted  %" PRIu64 " bytes of training, idle %.1f %%\n", prediction->peer_bytes,
               100 * prediction->idle_share);
}

/* What was not seen, in a run that failed at its start or had ended before, is not said. */
static void print_people(const struct summary *summary)
{
    const struct status_reply *status = summary->status;
    bool stepped = status->samples_here > 0;
    const char *reason = status->reason;
    printf("run        %" PRIu64 ", %s%s%s\n", status->run, print_state(status->state),
           reason[0] != 0 ? ": " : "", reason);
    printf("steps      %" PRIu64 " of %" PRIu64 "\n", status->step, status->steps);
    if (stepped)
        printf("loss       %s\n", print_number(status->loss, 4).text);
    if (stepped && summary->sample_tokens == 1 && !isnan(status->accuracy))
        printf("accuracy   %.2f %%\n", 100 * status->accuracy);
    if (status->has_validation)
        printf("validation %s%s\n", print_number(status->validation_loss, 4).text,
               summary->sample_tokens > 1 ? " nats a token" : "");
    if (summary->unigram_entropy > 0)
        printf("unigram    %.4f nats a byte (knowing only how often each byte occurs)\n",
               summary->unigram_entropy);
    if (stepped)
        print_speed(summary);
    struct counts counts = counts_of(summary);
    printf("workers    %" PRIu64 " joined, %" PRIu64 " lost; %" PRIu64 " ticket%s redone, %" PRIu64
           " duplicate%s\n",
           counts.joined, counts.lost, counts.redone, plural(counts.redone), counts.duplicates,
           plural(counts.duplicates));
    if (summary->effort != NULL)
        print_effort(summary->effort);
    if (status->cost_count > 1)
        print_places(summary);
    if (status->moves.commits > 0)
        printf("moved      %" PRIu64 " chunk%s, %" PRIu64 " server%s added, %" PRIu64 " drained\n"
               "           longest step meanwhile %.0f ms, an ordinary one %.0f ms\n",
               status->moves.chunks, plural(status->moves.chunks), status->moves.servers_added,
               plural(status->moves.servers_added), status->moves.servers_drained,
               status->moves.gap_ms_max, status->moves.step_ms);
    print_audits_line("audited    ", &status->audits);
    if (status->skipped_steps > 0)
        printf("skipped    %" PRIu64 " step%s with a non-finite gradient\n", status->skipped_steps,
               plural(status->skipped_steps));
    if (status->cut_state[0] != 0)
        printf("checkpoint %s\n", status->cut_state);
    if (summary->digest != NULL)
        printf("digest     %s\n", summary->digest);
    if (summary->directory != NULL)
        printf("directory  %s\n", summary->directory);
}

void summary_print(const struct summary *summary, bool json)
{
    if (json)
        print_tool(summary);
    else
        print_people(summary);
    fflush(stdout); /* before what is said on stderr */
}
