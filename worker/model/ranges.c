#include "worker/model/ranges.h"

#include "common/model/pieces.h"
#include "worker/carve.h"

uint32_t ranges_members(const struct act_arrays *act)
{
    return pieces_ranged(act->call->model) ? act->call->model->ranks : 1;
}

static int64_t rows(const struct act_arrays *act)
{
    return act->N / ranges_members(act);
}

int64_t ranges_rows(const struct act_arrays *act, uint8_t array)
{
    return act->unit->arrays[array].ranged ? rows(act) : act->N;
}

static bool is_divided(const struct act_arrays *act, uint8_t array)
{
    return act->unit->arrays[array].ranged && ranges_members(act) > 1;
}

element *ranges_all(const struct act_arrays *act, uint8_t array)
{
    return is_divided(act, array) ? act->scratch : act->arrays[array];
}

uint64_t ranges_all_bytes(const struct act_arrays *act, uint8_t array)
{
    uint64_t width = act->unit->arrays[array].width;
    return is_divided(act, array)
               ? carve_align((uint64_t)act->N * width * act->call->k->element_bytes)
               : 0;
}

element *ranges_own(const struct act_arrays *act, const element *all, int64_t width)
{
    uint32_t rank = ranges_members(act) > 1 ? act->call->model->rank : 0;
    return kernels_at(act->call->k, all, rank * rows(act) * width);
}

void ranges_put(const struct act_arrays *act, element *all, const element *own, int64_t width)
{
    const struct kernels *k = act->call->k;
    k->copy(k, ranges_own(act, all, width), own, (size_t)(rows(act) * width) * k->element_bytes);
}

void ranges_gather(const struct act_arrays *act, element *all, int64_t width)
{
    const struct unit_exchange *exchange = act->call->exchange;
    if (ranges_members(act) > 1)
        exchange->gather(exchange->context, all, act->N * width);
}
