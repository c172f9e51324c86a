/* Messages between two processes of one machine and one user through shared memory: a header, which
 * the receiver gets as a copy of its own, and a payload, which it reads where it lies.
 *
 * Two rings (shared_ring.h), one each way, in one memfd that is sealed against shrinking, growing and
 * other seals, so that no page can go away under a reader. The process that connects makes it and
 * hands it over a Unix socket in the abstract namespace (SCM_RIGHTS); each side wants the other's
 * user to be its own (SO_PEERCRED). Nothing has a name in a file system: when the processes are gone,
 * so is the memory. The socket stays open: its end says that the other process is gone, and a byte
 * over it wakes who sleeps. (Not an eventfd: who has one of those can make a write to it block.)
 *
 * What the other side may do: write nonsense into the memory, send nonsense over the socket, stop,
 * die. Then calls return an error with a sentence, or time passes until the caller's deadline; no
 * call reads or writes outside of the rings. A message is at most `payload_bytes_max` long; what a
 * sender is ahead of its receiver by is at most a ring.
 *
 * What lies in a sender's pool (shared_pool.h) need not go through the ring: the sender lends it, and a
 * message of the caller's says where it lies. It stays as it is until the receiver gives it back or is
 * gone, also when the link was freed meanwhile.
 *
 * Calls on a link never wait, but those that have a deadline. One thread at a time; one may send while
 * another one receives, if nobody calls shared_link_wait(). */
#ifndef ROOST_COMMON_SHARED_SHARED_LINK_H
#define ROOST_COMMON_SHARED_SHARED_LINK_H

#include "common/shared/shared_link_options.h"

struct shared_link;

/* ---- begin and end ---- */

/* Listens under that name, which has meaning within the machine's network namespace alone.
 * *ret_socket: close(). ERR_EXISTS: somebody does; ERR_IO. */
enum err shared_link_listen(const char *name, int *ret_socket, struct reason *reason) MUST_USE;
/* The next who connects. ERR_DEADLINE; ERR_DENIED: another user; ERR_MALFORMED: what it handed over
 * is no such memory; ERR_NOMEM; ERR_IO. */
enum err shared_link_accept(int listener, const struct shared_link_options *options,
                            uint64_t deadline_ns, struct shared_link **ret_link,
                            struct reason *reason) MUST_USE;
/* ERR_UNREACHABLE: nobody listens there; ERR_DENIED; ERR_NOMEM; ERR_IO. */
enum err shared_link_connect(const char *name, const struct shared_link_options *options,
                             struct shared_link **ret_link, struct reason *reason) MUST_USE;
/* The first half of that, shared_link_offer() is the second one: a connected socket. *ret_socket:
 * close(). */
enum err shared_link_reach(const char *name, int *ret_socket, struct reason *reason) MUST_USE;
/* The same over a connected Unix socket, which the link owns from then on, also when it fails. */
enum err shared_link_offer(int take_socket, const struct shared_link_options *options,
                           struct shared_link **ret_link, struct reason *reason) MUST_USE;
enum err shared_link_take(int take_socket, const struct shared_link_options *options,
                          uint64_t deadline_ns, struct shared_link **ret_link,
                          struct reason *reason) MUST_USE;
/* Who is at the other end of a Unix socket. ERR_DENIED: another user; ERR_IO. */
enum err shared_link_judge_user(int unix_socket, struct reason *reason) MUST_USE;
/* What the side that connected said. */
const uint8_t *shared_link_word(const struct shared_link *link);
/* Hands this side's pool to who connected, once: until then it has nothing of this side's. ERR_IO. */
enum err shared_link_admit(struct shared_link *link, struct reason *reason) MUST_USE;
/* What was not read is lost; what was borrowed stays until it is given back, and the link with it. Of
 * a sender nothing may be out but what it no longer cares for. NULL is fine. */
void shared_link_free(struct shared_link *link);

/* ---- send ---- */

/* Begins a message, after the whole of the one before. ERR_BUSY: there is no room for its header;
 * ERR_MALFORMED: the other side wrote nonsense. */
enum err shared_link_begin(struct shared_link *link, struct slice header, uint64_t payload_bytes,
                           struct reason *reason) MUST_USE;
/* The payload's next bytes, as many as there is room for. */
enum err shared_link_write(struct shared_link *link, const void *bytes, size_t count,
                           size_t *ret_written, struct reason *reason) MUST_USE;

/* ---- receive ---- */

/* The next message, after the whole payload of the one before: its header, a copy that lives until
 * the next call of this. ERR_BUSY: it is not there; ERR_MALFORMED. */
enum err shared_link_next(struct shared_link *link, struct slice *ret_header,
                          uint64_t *ret_payload_bytes, struct reason *reason) MUST_USE;
/* What is there of its payload, in one piece, perhaps nothing. It begins at a multiple of 64 of the
 * payload or where shared_link_took() left off; lent until that. The other side can still change
 * it. */
enum err shared_link_look(struct shared_link *link, struct slice *ret_bytes,
                          struct reason *reason) MUST_USE;
void shared_link_took(struct shared_link *link, size_t count);
/* Bytes that were read from the ring since the link began, headers included. */
uint64_t shared_link_read_bytes(const struct shared_link *link);

/* ---- lend ---- */

/* The other side has the memory of the pool, and not too many loans are out. The side that sends. */
bool shared_link_may_lend(const struct shared_link *link);
/* One loan, of any bytes of the pool: its number, below SHARED_LOANS_MAX. */
uint32_t shared_link_lend(struct shared_link *link, void *item);
/* The item of a loan that came back, or of any with `all`. NULL: there is none. */
void *shared_link_returned(struct shared_link *link, bool all);
/* Some are out that shared_link_returned() has not seen. When the other side holds none any more, the
 * socket becomes readable. */
bool shared_link_lends(const struct shared_link *link);

/* A loan of the other side: the link stays until it is given back, once, by any thread, when nobody
 * reads its bytes any more. ERR_MALFORMED: no such number. The side that receives. */
enum err shared_link_borrow(struct shared_link *link, uint64_t number,
                            struct reason *reason) MUST_USE;
void shared_link_give_back(struct shared_link *link, uint32_t number);
/* Where bytes of the other side's pool lie, which it may still change. ERR_MALFORMED: not in it. */
enum err shared_link_borrowed(const struct shared_link *link, uint64_t offset, uint64_t bytes,
                              struct slice *ret_bytes, struct reason *reason) MUST_USE;

/* ---- wait ---- */

/* Until something has come over one of the links, or was taken by its reader, or one has ended, since
 * the last call returned; also for nothing. NULL links are skipped. ERR_DEADLINE. */
enum err shared_link_wait(struct shared_link *const *links, uint32_t count,
                          uint64_t deadline_ns) MUST_USE;

/* For who waits with a poller of its own. Nothing more to read is there, or no more room, than the
 * last call saw: then the socket will become readable when there is. */
bool shared_link_rests(struct shared_link *link);       /* of the side that receives */
bool shared_link_rests_full(struct shared_link *link);  /* of the side that sends */
int shared_link_socket(const struct shared_link *link); /* lent */
/* Takes what made the socket readable. */
void shared_link_woken(struct shared_link *link);
/* The other process is gone, or has freed the link: what it wrote before can still be read. */
bool shared_link_ended(const struct shared_link *link);

#endif
