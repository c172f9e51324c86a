/* Looks for the newest checkpoint of a directory that is whole, for a run that the store does not
 * know. A large one takes minutes to read, and members' heartbeats do not wait: a part is read with
 * each question and between other events. The answer is for who asks again; nobody is kept
 * waiting. Main thread. */
#ifndef ROOST_SERVER_CONTROL_WHOLE_CUT_H
#define ROOST_SERVER_CONTROL_WHOLE_CUT_H

#include "common/buf.h"
#include "common/files/checkpoint.h"

/* Whether the error is about the checkpoint itself. Another one (IO, DENIED, NOMEM) is about the disk
 * or the machine: the checkpoint may be whole, so an older one does not take its place. */
bool whole_cut_is_damage(enum err err);

/* A checkpoint that is read a part at a time. */
struct whole_cut_reader {
    struct checkpoint *checkpoint; /* NULL: none */
    uint32_t next;                 /* from this block on */
};

/* Reads some of that checkpoint's blocks, the same one until all are read. *ret_whole: they are. Of
 * one that is not whole the error says why; the next call may be for another one. */
enum err whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                        struct checkpoint_name name, bool *ret_whole,
                        struct reason *reason) MUST_USE;
void whole_cut_reader_release(struct whole_cut_reader *reader); /* {0} is fine */

struct whole_cut {
    char *dir; /* NULL: nothing is looked for */
    struct checkpoint_names names;
    size_t at; /* which of the names is read, or was found */
    struct whole_cut_reader reader;
    bool over;
    enum err err; /* over: ERR_OK: one was found; else what was wrong with the last */
    struct reason reason;
    struct buf passed; /* what was wrong with newer ones than the one that was found; a text */
    uint64_t asked_ns; /* when somebody asked last */
    bool told;         /* the answer, to the call that is answered now */
};

/* OK: that one, until it is forgotten. ERR_SEARCHING: it is not known yet, or another directory is
 * looked through; ask again. ERR_NOT_FOUND: the directory has none; CORRUPT: none is whole;
 * others: the newest that is not damaged cannot be read. */
enum err whole_cut_ask(struct whole_cut *whole, const char *checkpoint_dir, uint64_t now_ns,
                       struct checkpoint_name *ret_name, struct reason *reason) MUST_USE;
/* Whether there is more to read. */
bool whole_cut_reads(const struct whole_cut *whole);
/* Forgets the answer; a search that goes on stays. */
void whole_cut_forget(struct whole_cut *whole);
/* A call is answered: forgets what that one was told, unless it asks again; another's answer stays. */
void whole_cut_end_call(struct whole_cut *whole, bool asks_again);
/* Reads a part, or forgets what nobody has asked for any more. */
void whole_cut_go_on(struct whole_cut *whole, uint64_t now_ns);
void whole_cut_release(struct whole_cut *whole); /* {0} is fine */

#endif
