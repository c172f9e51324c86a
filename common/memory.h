/* How much memory this process may have: the least limit of its control groups (where it is killed, or
 * from where on it is slowed down), else what the machine has. */
#ifndef ROOST_COMMON_MEMORY_H
#define ROOST_COMMON_MEMORY_H

#include <stdint.h>

/* Where the system keeps what is read. */
struct memory_sources {
    const char *groups;    /* "/proc/self/cgroup" */
    const char *hierarchy; /* "/sys/fs/cgroup" */
};

/* Bytes. */
uint64_t memory_limit(void);
/* The least limit of the groups of those files; `machine` where there is none, or a larger one. */
uint64_t memory_limit_of(const struct memory_sources *sources, uint64_t machine);

#endif
