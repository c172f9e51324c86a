/* Pairs of members that failed to reach each other, and how often (S7). Two that failed twice are
 * apart: they are not put side by side (seating.h). What failed is known of members that are there
 * alone; the pair whose newest failure is oldest is forgotten when there is no room. That is
 * harmless: the two would have to fail twice again.
 *
 * Pure; one owner. */
#ifndef ROOST_SERVER_COORDINATOR_UNREACHABLE_H
#define ROOST_SERVER_COORDINATOR_UNREACHABLE_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    UNREACHABLE_MAX = 128,    /* pairs */
    UNREACHABLE_TIMES_MAX = 2 /* failures, by which two are apart */
};

struct unreachable {
    uint32_t count, apart_count;
    struct unreachable_pair {
        uint64_t a, b;        /* a < b */
        uint32_t times;       /* 0: what counted is forgotten */
    } pairs[UNREACHABLE_MAX]; /* who failed longest ago first */
};

/* The two, who are not one, failed to reach each other. Returns how often by now,
 * UNREACHABLE_TIMES_MAX at most. */
uint32_t unreachable_note(struct unreachable *unreachable, uint64_t a, uint64_t b);
bool unreachable_apart(const struct unreachable *unreachable, uint64_t a, uint64_t b);
/* The member has another number, or is gone (`to` is 0). */
void unreachable_rename(struct unreachable *unreachable, uint64_t from, uint64_t to);
/* All failures count no more. Who failed is listed still, for people. */
void unreachable_forget(struct unreachable *unreachable);

void unreachable_check(const struct unreachable *unreachable);

#endif
