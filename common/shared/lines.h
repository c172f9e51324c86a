/* The links of a process through shared memory (shared_link.h), and the thread that looks after them.
 *
 * A line belongs to a conversation that two processes have already, over a connection that knows who
 * is at its other end. One side offers: the name of this process's listener, and a word that nobody
 * can guess. The conversation carries both to the other side, which connects there and says the word.
 * So whoever has the line was admitted to the conversation; that the other process belongs to the same
 * user is asked as well. A side that cannot connect (another user, another network namespace, no
 * memory) says nothing, and the conversation stays where it is.
 *
 * One thread waits for all lines and calls `work` of those that have news: something came, there is
 * room again, the link is there now, or somebody asked for it by line_kick(). Thread and listener are
 * made for the first line. A line is a member of its owner, which lives until line_close(). */
#ifndef ROOST_COMMON_SHARED_LINES_H
#define ROOST_COMMON_SHARED_LINES_H

#include "common/ring.h"
#include "common/shared/shared_link.h"

struct lines;

enum { LINES_NAME_BYTES = 40, LINES_MACHINE_BYTES = 80 };

struct line_offer {
    char name[LINES_NAME_BYTES]; /* of the listener */
    uint8_t word[SHARED_LINK_WORD_BYTES];
};

/* What work() leaves a line as. */
enum line_state {
    LINE_RESTS, /* all that had come over its link was read */
    LINE_WAITS, /* for line_kick() alone, whatever comes over its link */
    LINE_CLOSED /* by line_close(): it may be gone */
};

/* All but `link` is the lines' own. */
struct line {
    struct shared_link *link; /* NULL: not yet. The lines' thread alone changes it, before work() */
    struct lines *lines;
    enum line_state (*work)(struct line *line); /* the lines' thread */
    uint8_t word[SHARED_LINK_WORD_BYTES];
    struct ring offered; /* the mutex guards this and the next two */
    struct ring ready;
    bool closed;
};

/* ERR_NOMEM. `options`: of all lines' links. `returned` gets what a line had lent when it was closed,
 * as soon as it has come back: the lines' thread, or lines_stop(). NULL: nobody lends. */
enum err lines_new(const struct shared_link_options *options, void (*returned)(void *item),
                   struct lines **ret_lines) MUST_USE;
/* Every line was closed, and line_kick() may still come of one of them. Waits for the thread. NULL is
 * fine, as for the next. */
void lines_stop(struct lines *lines);
/* Stops them; nobody may kick any more. */
void lines_free(struct lines *lines);
/* A text that two processes share which can have a line: of one machine and network namespace. "":
 * the machine does not tell. */
const char *lines_machine(const struct lines *lines);

/* Any thread; `line` must stay where it is. ERR_NOMEM; ERR_BUSY: no thread; ERR_IO. */
enum err line_offer(struct lines *lines, enum line_state (*work)(struct line *line),
                    struct line *line, struct line_offer *ret_offer,
                    struct reason *reason) MUST_USE;
/* ERR_UNREACHABLE: nobody listens there; ERR_DENIED: another user; and the same. */
enum err line_connect(struct lines *lines, const struct line_offer *offer,
                      enum line_state (*work)(struct line *line), struct line *line,
                      struct reason *reason) MUST_USE;
/* work() follows, once for any number of these before it begins. Any thread; a closed line ignores
 * it. */
void line_kick(struct line *line);
/* Ends the line, and frees its link, or keeps that until what was lent is back. The lines' thread
 * alone. */
void line_close(struct line *line);

#endif
