/* Files in memory behind common/file.h's table of operations, so that what production appends to
 * its logs lies on a fake disk: bytes that were not synced, and names whose folder was not, may be
 * lost or torn when the machine goes down; a process that dies loses nothing that it wrote. */
#ifndef ROOST_TESTS_SIM_FILES_H
#define ROOST_TESTS_SIM_FILES_H

#include "common/file.h"
#include "common/rand.h"

struct files_one {
    char *path;
    int fd, read_fd; /* while it is open, for appending or to be synced by a reader; -1 */
    struct buf bytes;
    size_t synced;
    bool named; /* its name is durable */
};

struct files {
    struct file_ops ops; /* its context is this struct, which must not move */
    uint32_t count;      /* in the order of their paths */
    struct files_one *list;
    bool full;           /* nothing more fits */
    bool dying;          /* the process ends in the middle of what it does … */
    uint64_t bytes_left; /* … after so many bytes more */
};

void files_init(struct files *files);
void files_release(struct files *files); /* it is empty afterwards */
/* What is left of it. */
void files_crash(struct files *files, bool power, struct rand_state *random);
void files_remove(struct files *files, uint32_t index);

#endif
