#include "worker/notice_watch.h"

#include "common/scoped.h"
#include "common/thread.h"
#include "common/time.h"
#include "worker/http.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROBE_MS = 1000, /* the service is on the machine's own link, or there is none */
    ASK_MS = 5000,
    SOON_MS = 60000, /* twice the notice of a preemption, since the machine's clock may be behind */
    FIND_MS = 5000,  /* between tries to find a cloud, at most */
    TRIES = 3,       /* a service may be slow, or the network not up, while the machine boots */
    URL_BYTES = 512,
    WORD_BYTES = 256,
    STATUS_OK = 200,
    STATUS_UNAUTHORIZED = 401,
    STATUS_NOT_FOUND = 404
};

struct notice_watch {
    struct notice_watch_config config;
    struct http *http;
    struct thread thread;
    struct thread_mutex mutex; /* guards `stopping` */
    struct thread_cond stopped;
    bool stopping;
    /* The thread's own. */
    const struct notice_questions *cloud;
    char header[WORD_BYTES + 64]; /* with each question; "": none */
    char name[WORD_BYTES];
    struct notice_machine machine;
    struct buf body;
    char warned[NOTICE_TEXT_BYTES]; /* the last warning */
    bool heard;        /* all questions were answered the last time, or none was asked … */
    struct reason why; /* … or why one was not */
};

/* ---- questions ---- */

static enum err ask(struct notice_watch *watch, const char *method, const char *path,
                    const char *header, uint32_t timeout_ms, unsigned *ret_status)
{
    char url[URL_BYTES];
    struct http_question question = {method, url, header, timeout_ms};
    snprintf(url, sizeof url, "%s%s", watch->config.endpoint, path);
    return http_ask(watch->http, &question, ret_status, &watch->body, &watch->why);
}

static enum err get(struct notice_watch *watch, const char *path, uint32_t timeout_ms,
                    unsigned *ret_status)
{
    const char *header = watch->header[0] != 0 ? watch->header : NULL;
    return ask(watch, "GET", path, header, timeout_ms, ret_status);
}

/* The reason: an answer of that status, or one that is no word. */
static enum err unusable(struct notice_watch *watch, const char *path, unsigned status)
{
    return reason_set(&watch->why, ERR_UNREACHABLE, "%s%s: status %u%s", watch->config.endpoint,
                      path, status, status == STATUS_OK ? ", without a word" : "");
}

/* Takes what each question is to carry. */
static enum err take_header(struct notice_watch *watch, uint32_t timeout_ms)
{
    const struct notice_questions *cloud = watch->cloud;
    char secret[WORD_BYTES];
    unsigned status;
    if (cloud->secret_name == NULL) {
        snprintf(watch->header, sizeof watch->header, "%s", cloud->header);
        return ERR_OK;
    }
    TRY(ask(watch, cloud->secret_method, cloud->secret_path, cloud->secret_header, timeout_ms,
            &status));
    if (status != STATUS_OK || !notice_word(buf_slice(&watch->body), secret, sizeof secret))
        return unusable(watch, cloud->secret_path, status);
    snprintf(watch->header, sizeof watch->header, "%s: %s", cloud->secret_name, secret);
    return ERR_OK;
}

static enum err probe_cloud(struct notice_watch *watch, enum notice_cloud cloud)
{
    unsigned status;
    watch->cloud = notice_questions(cloud);
    TRY(take_header(watch, PROBE_MS));
    TRY(get(watch, watch->cloud->probe_path, PROBE_MS, &status));
    if (status != STATUS_OK ||
        (watch->cloud->probe_is_name &&
         !notice_word(buf_slice(&watch->body), watch->name, sizeof watch->name)))
        return unusable(watch, watch->cloud->probe_path, status);
    return ERR_OK;
}

/* ---- the thread ---- */

/* False: stop. */
static bool wait_a_while(struct notice_watch *watch, uint32_t ms)
{
    uint64_t deadline_ns = time_after_ms(time_now_ns(), ms);
    thread_lock(&watch->mutex);
    while (!watch->stopping &&
           thread_wait_locked(&watch->stopped, &watch->mutex, deadline_ns) == ERR_OK)
        ;
    bool stopping = watch->stopping;
    thread_unlock(&watch->mutex);
    return !stopping;
}

/* Not answered: asked again soon. */
static enum err ask_one(struct notice_watch *watch, const char *path, unsigned *ret_status)
{
    TRY(get(watch, path, ASK_MS, ret_status));
    if (*ret_status == STATUS_UNAUTHORIZED && watch->cloud->secret_name != NULL)
        return take_header(watch, ASK_MS);
    if (*ret_status != STATUS_OK && *ret_status != STATUS_NOT_FOUND)
        return unusable(watch, path, *ret_status);
    return ERR_OK;
}

/* All were asked; `err` is that of one that was not answered. */
static void note_heard(struct notice_watch *watch, enum err err, const char *next)
{
    if (err == ERR_CANCELLED)
        return;
    if (err != ERR_OK && watch->heard)
        log_warning(watch->config.logger, "notices are not heard", log_text("err", err_name(err)),
                    log_text("why", reason_text(err, &watch->why)), log_text("next", next));
    watch->heard = err == ERR_OK;
}

/* What may begin before the worker has asked again and left is a reason to leave now. */
static uint64_t soon_ns(const struct notice_watch_config *config)
{
    return time_after_ms(time_wall_ns(), (uint64_t)SOON_MS + config->every_ms + config->leave_ms);
}

/* True: the machine goes. */
static bool ask_all(struct notice_watch *watch)
{
    const struct notice_questions *cloud = watch->cloud;
    char text[NOTICE_TEXT_BYTES];
    enum err failed = ERR_OK;
    watch->why = (struct reason){{0}};
    watch->machine.soon_ns = soon_ns(&watch->config);
    for (uint32_t i = 0; i < cloud->count; i++) {
        unsigned status;
        enum err err = ask_one(watch, cloud->questions[i].path, &status);
        if (err != ERR_OK) {
            failed = err;
            continue;
        }
        enum notice_verdict verdict =
            cloud->questions[i].judge(status, buf_slice(&watch->body), &watch->machine, text);
        if (verdict == NOTICE_LEAVE ||
            (verdict == NOTICE_WARNING && strcmp(watch->warned, text) != 0))
            watch->config.said(watch->config.owner, verdict, text);
        if (verdict == NOTICE_LEAVE)
            return true;
        if (verdict == NOTICE_WARNING)
            snprintf(watch->warned, sizeof watch->warned, "%s", text);
    }
    note_heard(watch, failed, "ask again");
    return false;
}

/* Of clouds that are not there: the last one's error. */
static enum err find_cloud(struct notice_watch *watch, enum notice_cloud *ret_cloud)
{
    enum err err = ERR_NOT_FOUND;
    for (int cloud = 0; cloud < NOTICE_CLOUD_COUNT && err != ERR_OK; cloud++)
        if (watch->config.cloud < 0 || watch->config.cloud == cloud) {
            *ret_cloud = (enum notice_cloud)cloud;
            err = probe_cloud(watch, *ret_cloud);
        }
    return err;
}

/* False: there is no cloud, or the thread is to stop. */
static bool await_cloud(struct notice_watch *watch, enum notice_cloud *ret_cloud)
{
    const struct notice_watch_config *config = &watch->config;
    uint32_t wait_ms = config->every_ms < FIND_MS ? config->every_ms : FIND_MS;
    enum err err;
    watch->heard = true;
    for (uint32_t tries = 1; (err = find_cloud(watch, ret_cloud)) != ERR_OK; tries++) {
        bool enough = tries >= TRIES && err != ERR_CANCELLED;
        if (enough && config->cloud < 0) {
            log_info(config->logger, "notices are not watched", log_text("why", "no cloud answers"),
                     log_text("next", "go on"));
            return false;
        }
        if (enough) /* A cloud that the operator named will answer, sooner or later. */
            note_heard(watch, err, "ask again (see --notice, --notice-endpoint)");
        if (!wait_a_while(watch, wait_ms))
            return false;
    }
    watch->heard = true;
    return true;
}

static void watch_main(void *argument)
{
    struct notice_watch *watch = argument;
    enum notice_cloud cloud;
    if (!await_cloud(watch, &cloud))
        return;
    watch->config.said(watch->config.owner, NOTICE_NOTHING, notice_cloud_name(cloud));
    while (!ask_all(watch) && wait_a_while(watch, watch->config.every_ms))
        ;
}

/* ---- life ---- */

static void release(struct notice_watch *watch)
{
    http_free(watch->http);
    buf_release(&watch->body);
    thread_cond_release(&watch->stopped);
    thread_mutex_release(&watch->mutex);
    free(watch);
}

enum err notice_watch_new(const struct notice_watch_config *config, struct notice_watch **ret_watch,
                          struct reason *reason)
{
    struct notice_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return ERR_NOMEM;
    watch->config = *config;
    watch->machine = (struct notice_machine){.name = watch->name, .may_be_back = true};
    thread_mutex_init(&watch->mutex);
    thread_cond_init(&watch->stopped);
    enum err err = http_new(&watch->http, reason);
    if (err == ERR_OK)
        err = thread_start(&watch->thread, "notice", watch_main, watch);
    if (err != ERR_OK) {
        release(watch);
        return err;
    }
    *ret_watch = watch;
    return ERR_OK;
}

void notice_watch_free(struct notice_watch *watch)
{
    if (watch == NULL)
        return;
    thread_lock(&watch->mutex);
    watch->stopping = true;
    thread_wake_all(&watch->stopped);
    thread_unlock(&watch->mutex);
    http_cancel(watch->http);
    thread_join(&watch->thread);
    release(watch);
}
