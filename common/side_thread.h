/* A thread that does one thing at a time beside its owner, which does something else meanwhile and
 * then waits for the end. One owner thread. What is done there takes no lock that others wait for,
 * where the thread's share of the cores is a small one: others would wait for a core with it. */
#ifndef ROOST_COMMON_SIDE_THREAD_H
#define ROOST_COMMON_SIDE_THREAD_H

#include "common/err.h"
#include "common/thread.h"

struct side_thread;

/* Its share of the cores is that one. ERR_NOMEM; ERR_BUSY: the machine allows no more threads. */
enum err side_thread_new(const char *name, enum thread_share share,
                         struct side_thread **ret_thread) MUST_USE;
/* Not between begin and end. NULL is fine. */
void side_thread_free(struct side_thread *thread);

void side_thread_begin(struct side_thread *thread, void (*work)(void *argument), void *argument);
void side_thread_end(struct side_thread *thread); /* waits until the work is done */

#endif
