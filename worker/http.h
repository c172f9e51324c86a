/* Small questions over plain HTTP/1.1 to a service on the machine's own link: a cloud's metadata.
 * No redirects, no proxies, no cookies, an answer of at most HTTP_BYTES_MAX. All of libcurl is in
 * http.c. */
#ifndef ROOST_WORKER_HTTP_H
#define ROOST_WORKER_HTTP_H

#include "common/buf.h"

enum { HTTP_BYTES_MAX = 1 << 20 };

struct http; /* opaque */

struct http_question {
    const char *method; /* "GET", "PUT" (with an empty body) */
    const char *url;    /* http://… */
    const char *header; /* "Name: value"; NULL: none of our own */
    uint32_t timeout_ms;
};

/* To be called before other threads ask anything. */
enum err http_new(struct http **ret_http, struct reason *reason) MUST_USE;
void http_free(struct http *http); /* NULL is fine */

/* Asks and waits for the answer: its status and its body, in place of what *body held. One thread
 * at a time. ERR_UNREACHABLE, ERR_DEADLINE; ERR_MALFORMED: no HTTP, or too long; ERR_CANCELLED:
 * http_cancel() was called. */
enum err http_ask(struct http *http, const struct http_question *question, unsigned *ret_status,
                  struct buf *body, struct reason *reason) MUST_USE;
/* Ends the question under way, and every later one, at once. Any thread. */
void http_cancel(struct http *http);

#endif
