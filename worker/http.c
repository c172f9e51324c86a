#include "worker/http.h"

#include "common/time.h"

#include <curl/curl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct http {
    CURLM *multi; /* so that a wait can be woken */
    CURL *easy;
    atomic_bool cancelled;
};

enum err http_new(struct http **ret_http, struct reason *reason)
{
    struct http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return ERR_NOMEM;
    atomic_init(&http->cancelled, false);
    if (curl_global_init(CURL_GLOBAL_NOTHING) == CURLE_OK) { /* no TLS: that is gRPC's */
        http->multi = curl_multi_init();
        http->easy = curl_easy_init();
    }
    if (http->multi == NULL || http->easy == NULL) {
        http_free(http);
        return reason_set(reason, ERR_NOMEM, "libcurl does not start");
    }
    *ret_http = http;
    return ERR_OK;
}

void http_free(struct http *http)
{
    if (http == NULL)
        return;
    curl_easy_cleanup(http->easy);
    if (http->multi != NULL)
        curl_multi_cleanup(http->multi);
    free(http);
}

void http_cancel(struct http *http)
{
    atomic_store(&http->cancelled, true);
    curl_multi_wakeup(http->multi);
}

/* libcurl's: fewer bytes than it brought end the transfer. */
static size_t take_body(char *bytes, size_t size, size_t count, void *owner)
{
    struct buf *body = owner;
    return buf_append(body, bytes, size * count) == ERR_OK ? count : 0;
}

static void set_up(CURL *easy, const struct http_question *question, struct curl_slist *headers,
                   struct buf *body)
{
    curl_easy_reset(easy);
    curl_easy_setopt(easy, CURLOPT_URL, question->url);
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http");
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, question->method);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)question->timeout_ms);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, body);
}

static enum err err_of(CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return ERR_OK;
    case CURLE_OUT_OF_MEMORY:
        return ERR_NOMEM;
    case CURLE_OPERATION_TIMEDOUT:
        return ERR_DEADLINE;
    case CURLE_WRITE_ERROR: /* too long */
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_WEIRD_SERVER_REPLY:
        return ERR_MALFORMED;
    default:
        return ERR_UNREACHABLE;
    }
}

/* Until the transfer is over, one way or another. */
static enum err transfer(struct http *http, const struct http_question *question,
                         struct reason *reason)
{
    int running = 1;
    while (running > 0) {
        if (atomic_load(&http->cancelled))
            return ERR_CANCELLED;
        if (curl_multi_perform(http->multi, &running) != CURLM_OK ||
            (running > 0 &&
             curl_multi_poll(http->multi, NULL, 0, (int)question->timeout_ms, NULL) != CURLM_OK))
            return reason_set(reason, ERR_IO, "libcurl cannot go on");
    }
    int left;
    const struct CURLMsg *message = curl_multi_info_read(http->multi, &left);
    if (message == NULL)
        return reason_set(reason, ERR_IO, "libcurl has no result");
    CURLcode code = message->data.result;
    if (code == CURLE_WRITE_ERROR)
        return reason_set(reason, err_of(code), "%s: the answer is longer than %d bytes",
                          question->url, HTTP_BYTES_MAX);
    return code == CURLE_OK ? ERR_OK
                            : reason_set(reason, err_of(code), "%s: %s", question->url,
                                         curl_easy_strerror(code));
}

enum err http_ask(struct http *http, const struct http_question *question, unsigned *ret_status,
                  struct buf *body, struct reason *reason)
{
    struct curl_slist *headers = NULL;
    long status = 0;
    body->bytes = 0;
    body->bytes_max = HTTP_BYTES_MAX;
    if (question->header != NULL && (headers = curl_slist_append(NULL, question->header)) == NULL)
        return ERR_NOMEM;
    set_up(http->easy, question, headers, body);
    enum err err = curl_multi_add_handle(http->multi, http->easy) == CURLM_OK ? ERR_OK : ERR_NOMEM;
    if (err == ERR_OK) {
        err = transfer(http, question, reason);
        curl_easy_getinfo(http->easy, CURLINFO_RESPONSE_CODE, &status);
        curl_multi_remove_handle(http->multi, http->easy);
    }
    curl_slist_free_all(headers);
    if (err == ERR_OK)
        *ret_status = (unsigned)status;
    return err;
}
