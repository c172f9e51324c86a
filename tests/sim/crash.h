/* A folder that remembers every change made to it, so that its state after a crash at any change
 * can be laid out again: each open, write, fsync, rename, unlink, mkdir is one change.
 *
 * CRASH_KILL: the processes die, the machine does not; everything done is there. CRASH_POWER: bytes
 * that were not synced are kept, lost or torn, each write for itself; so are names whose folder was
 * not synced (made, renamed, removed), each for itself: harsher than a journaling file system.
 *
 * The linker leads the system calls here (--wrap), so the code of production runs as it is. One
 * folder at a time, one thread. */
#ifndef ROOST_TESTS_SIM_CRASH_H
#define ROOST_TESTS_SIM_CRASH_H

#include <stddef.h>
#include <stdint.h>

/* Faults of the disk, planted to see that they are found. */
enum crash_fault { CRASH_SOUND, CRASH_NO_FSYNC, CRASH_NO_FOLDER_SYNC };

/* From now on; `root` is an absolute path. */
void crash_begin(const char *root, enum crash_fault fault);
void crash_end(void);

/* Notes a change outside of the files: something else became a fact, at once and durably. */
void crash_note(void);
size_t crash_changes(void);
/* The n-th change, for people: "write server-0.roost.tmp". */
const char *crash_name(size_t change);

enum crash_kind { CRASH_KILL, CRASH_POWER };
/* Lays out in the empty folder `into` what the disk has after the first `changes` changes and a
 * crash. */
void crash_image(size_t changes, enum crash_kind kind, uint64_t seed, const char *into);

#endif
