/* Two starts of one name: one is connected, another one says hello.
 *
 * P3: every start of a server has a new boot, and one name has one start at a time. A stream that
 * is still open need not mean that its start lives: its machine may be gone, and a restart is
 * welcome. So the connected start is asked (SERVER_ASK). When it answers, it lives, and the other
 * one is refused (another report may have been under way when it died); when it is silent until a
 * deadline, or its stream closes, the other one takes its place. Meanwhile the other one is sent
 * away to say hello again. Which boot is the higher number decides nothing: boots of another
 * directory may be lower. Pure. */
#ifndef ROOST_SERVER_COORDINATOR_RIVALS_H
#define ROOST_SERVER_COORDINATOR_RIVALS_H

#include "server/coordinator/run.h"

/* The hello of a start may take the place of what is connected under its name, or nothing is.
 * ERR_BUSY: the connected one is being asked; say hello again. ERR_NAME_TAKEN: it lives. */
enum err rivals_judge(struct coordinator *coordinator, uint64_t now_ms,
                      const struct server_report *hello, struct reason *reason) MUST_USE;
/* The connected start has answered what it was asked. */
void rivals_note_answer(struct server_entry *server);

#endif
