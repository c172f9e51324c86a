/* A pull parser for JSON whose shape is known: no tree, the caller asks for what must come next.
 * For headers too large for a tree, and from strangers. Keys and texts live until release. */
#ifndef ROOST_COMMON_FILES_JSON_PULL_H
#define ROOST_COMMON_FILES_JSON_PULL_H

#include "common/buf.h"

struct json_pull {
    const char *name; /* the file's; begins every reason: "NAME: offset N: …" */
    struct slice text;
    size_t at;   /* of the next byte in `text` */
    char *texts; /* unescaped strings behind each other, each ended by 0 */
    size_t texts_bytes;
    struct reason *reason;
};

/* Starts at text.data[at]; `name`, `text` and `reason` are borrowed. ERR_NOMEM: it takes as much
 * memory as there is text. Everything below returns ERR_MALFORMED with the reason set. */
enum err json_pull_init(struct json_pull *pull, const char *name, struct slice text, size_t at,
                        struct reason *reason) MUST_USE;
void json_pull_release(struct json_pull *pull);
/* Hands the strings out: free() ends them. */
char *json_pull_detach_texts(struct json_pull *pull);

/* ERR_MALFORMED, and the sentence. */
enum err json_pull_fail(const struct json_pull *pull, size_t offset, const char *what) MUST_USE;

/* A string, valid UTF-8 without 0. */
enum err json_pull_text(struct json_pull *pull, const char **ret_text) MUST_USE;
/* An array of up to `max` numbers. */
enum err json_pull_uints(struct json_pull *pull, unsigned max, uint64_t *ret_values,
                         unsigned *ret_count) MUST_USE;
/* An object: `member` parses the value of each key. Equal keys are the caller's to refuse. */
typedef enum err json_pull_member(struct json_pull *pull, const char *key, void *context);
enum err json_pull_members(struct json_pull *pull, json_pull_member *member,
                           void *context) MUST_USE;
/* Nothing but spaces may follow. */
enum err json_pull_end(struct json_pull *pull) MUST_USE;

#endif
