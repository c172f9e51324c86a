#include "deploy/roost/predict.h"

#include "common/file.h"
#include "common/files/json.h"
#include "common/scoped.h"

#include <string.h>

enum { PREDICT_MS = 60000, LOG_BYTES_MAX = 1 << 20 };

/* The last line. */
static struct slice last_line(const struct buf *text)
{
    size_t end = text->bytes, first;
    while (end > 0 && text->data[end - 1] == '\n')
        end--;
    for (first = end; first > 0 && text->data[first - 1] != '\n'; first--)
        ;
    return (struct slice){text->data + first, end - first};
}

static enum err read_prediction(const struct predict_wish *wish, struct prediction *ret_prediction,
                                struct reason *reason)
{
    scoped(buf_release) struct buf text = {0};
    scoped(json_free_scoped) struct json *said = NULL;
    struct prediction node;
    uint64_t slots;
    TRY(file_read(wish->log_path, LOG_BYTES_MAX, &text, reason));
    TRY(json_parse(wish->log_path, last_line(&text), &said, reason));
    TRY(json_get_real(said, "idle_share", &node.idle_share, reason));
    TRY(json_get_uint(said, "peer_bytes", &node.peer_bytes, reason));
    TRY(json_get_uint(said, "slots", &slots, reason));
    if (slots == 0)
        return ERR_MALFORMED;
    *ret_prediction = (struct prediction){node.idle_share, node.peer_bytes * wish->slots / slots};
    return ERR_OK;
}

enum err predict(struct children *children, const struct predict_wish *wish,
                 struct prediction *ret_prediction, struct reason *reason)
{
    char path[512];
    TRY(children_program("roost-program", path, sizeof path, reason));
    const char *arguments[] = {path, wish->spec_path, "--json", wish->uniform ? "--uniform" : NULL,
                               NULL};
    TRY(children_start(children, "program", wish->log_path, arguments, false, reason));
    children_wait(children, "program", PREDICT_MS);
    return read_prediction(wish, ret_prediction, reason) == ERR_OK ? ERR_OK : ERR_NOT_FOUND;
}
