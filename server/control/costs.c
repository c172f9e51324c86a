#include "server/control/costs.h"

static void keep_most(uint64_t *most, uint64_t value)
{
    *most = value > *most ? value : *most;
}

void costs_add(struct costs *costs, uint32_t stage, const struct place_cost *cost,
               enum ticket_kind kind)
{
    if (cost->device_bytes == 0)
        return;                     /* a member says nothing, or has computed nothing */
    check(stage < WIRE_PLACES_MAX); /* as decoded */
    struct place_cost *sum = &costs->places[stage];
    sum->busy_ns += cost->busy_ns;
    sum->span_ns += cost->span_ns;
    sum->peer_bytes += cost->peer_bytes;
    costs->validation_bytes += kind == TICKET_VALIDATE ? cost->peer_bytes : 0;
    keep_most(&sum->device_bytes, cost->device_bytes);
    keep_most(&sum->weights_bytes, cost->weights_bytes);
    keep_most(&sum->host_bytes, cost->host_bytes);
    costs->count = stage < costs->count ? costs->count : stage + 1;
}
