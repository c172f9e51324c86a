/* Exchange at the server: what workers' streams say to the shard core, and its answers. */
#ifndef ROOST_TESTS_SIM_SIM_EXCHANGE_H
#define ROOST_TESTS_SIM_SIM_EXCHANGE_H

#include "tests/sim/network.h"

struct sim_server;

/* To the worker of that stream; takes the references of the copies. */
void sim_exchange_answer(struct sim *sim, uint64_t number, const struct from_shard *message,
                         struct counted *const *take_copies, uint32_t count);

/* More gradients may be on disk and taken: pushes that waited for that are answered. */
void sim_exchange_taken(struct sim *sim, struct sim_server *server);
/* From the network. */
void sim_exchange_message(struct sim *sim, struct stream *stream, const struct message *message);
void sim_exchange_lost(struct sim *sim, struct stream *stream);

#endif
