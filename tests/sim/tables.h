/* What must hold of the tables of coordinator and servers after each of their events, and is seen
 * from outside only much later or by nobody: that chunks are spread evenly, that servers are told
 * of members that have ended, that nobody waits for what is over, that what has a limit keeps it.
 * Counted anew here from the rules, without the cores' own code. From watch.c and watch_control.c. */
#ifndef ROOST_TESTS_SIM_TABLES_H
#define ROOST_TESTS_SIM_TABLES_H

#include <stdbool.h>
#include <stdint.h>

struct sim;
struct coordinator;
struct shard;
struct sim_worker;
struct shard_effects;
struct exchange_stream;

/* Of one coordinator process. */
struct tables {
    uint64_t ended_generation; /* servers were told of so many ended members of it */
    uint32_t ended_told;
    uint64_t attempts; /* the newest lease that was looked at */
    bool uneven;       /* chunks may have to move */
};

/* Before the effects of an event are carried out. */
void tables_check_effects(struct sim *sim, struct tables *tables, struct coordinator *core);
/* Afterwards. */
void tables_check(struct sim *sim, struct tables *tables, struct coordinator *core);
/* … and of leases that several members share (watch_places.c). */
void places_check(struct sim *sim, struct coordinator *core);
void places_check_lanes(struct sim *sim, const struct sim_worker *worker);
/* A cut that was awaited has failed. */
void tables_check_failed(struct sim *sim, const struct coordinator *core, const char *who);

/* After an event of a shard. */
void tables_check_shard(struct sim *sim, const struct shard *shard);
/* Whether it has reported that the step is reduced, and then it does not do so again with a push. */
bool tables_reduced(const struct shard *shard, uint64_t step);
void tables_check_silent(struct sim *sim, const struct shard_effects *effects);
/* When a pull over it was answered. */
void tables_check_stream(struct sim *sim, const struct exchange_stream *stream);

#endif
