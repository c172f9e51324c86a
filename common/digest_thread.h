/* A thread that computes SHA-256 digests beside its owner: the owner hands it bytes, does something
 * else with them, and takes the digest. One owner thread, one piece at a time. */
#ifndef ROOST_COMMON_DIGEST_THREAD_H
#define ROOST_COMMON_DIGEST_THREAD_H

#include "common/digest.h"

struct digest_thread;

/* ERR_NOMEM; ERR_BUSY: the machine allows no more threads. `lowers_priority`: the thread gets what
 * others leave of the cores. */
enum err digest_thread_new(bool lowers_priority, struct digest_thread **ret_thread) MUST_USE;
/* Not between begin and end. NULL is fine. */
void digest_thread_free(struct digest_thread *thread);

/* `bytes` stay as they are until the end. */
void digest_thread_begin(struct digest_thread *thread, struct slice bytes);
/* Waits for the digest. ERR_NOMEM. */
enum err digest_thread_end(struct digest_thread *thread, struct digest *ret_digest) MUST_USE;

#endif
