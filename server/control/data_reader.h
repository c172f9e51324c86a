/* Reads a run's data set on a thread of its own: a large one takes minutes, and the main thread's
 * events do not wait. The answer is for who asks again, as in whole_cut.h: nobody is kept waiting.
 * Main thread. */
#ifndef ROOST_SERVER_CONTROL_DATA_READER_H
#define ROOST_SERVER_CONTROL_DATA_READER_H

#include "common/data/run_data.h"
#include "common/thread.h"

struct data_wish {
    const char *spec; /* YAML: whose data set */
    bool entropy;     /* of a text: one more pass over it */
};

struct data_reader {
    char *text; /* whose data set is read or was; NULL: nobody's */
    bool entropy;
    uint64_t asked_ns; /* when somebody asked last */
    bool told;         /* the answer, to the call that is answered now */
    atomic_bool stop;  /* nobody wants it any more: the thread ends soon */
    struct thread thread;
    atomic_bool over; /* from then on the rest is the main thread's, before that the thread's */
    struct spec spec;
    struct data *data;
    double unigram_entropy;
    enum err err;
    struct reason reason;
};

/* OK: `data` is that data set, and `unigram_entropy` its entropy, until they are taken or forgotten.
 * ERR_SEARCHING: it is read, or another one is; ask again. ERR_DATA_SET: there is no file of it; other
 * errors of run_data_open() and spec_parse(). */
enum err data_reader_ask(struct data_reader *reader, const struct data_wish *wish, uint64_t now_ns,
                         struct reason *reason) MUST_USE;
/* Whether the data set that is read, or was read last, is that wish's. */
bool data_reader_is_for(const struct data_reader *reader, const struct data_wish *wish);
/* The data set of an answer that was OK; NULL: nobody asked for one. The caller's. */
struct data *data_reader_take(struct data_reader *reader);
/* Forgets what was read. What is still read stays. */
void data_reader_forget(struct data_reader *reader);
/* A call is answered: forgets what that one was told, unless it asks again; another's answer stays. */
void data_reader_end_call(struct data_reader *reader, bool asks_again);
/* Forgets what nobody has asked for any more, or has it read no further. */
void data_reader_go_on(struct data_reader *reader, uint64_t now_ns);
void data_reader_release(struct data_reader *reader); /* stops the thread; {0} is fine */

#endif
