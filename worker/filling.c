#include "worker/filling.h"

enum { TILE = 128 };

static double tiles(uint64_t count)
{
    return (double)((count + TILE - 1) / TILE);
}

/* The results of a product for each row; of a layer that is computed by pieces, those of one. */
static uint64_t results(const struct model_parameter *weight)
{
    bool cut = weight->pieces > 1 && weight->split == MODEL_SPLIT_ROWS;
    return cut ? weight->rows / weight->pieces : weight->rows;
}

double filling_share(const struct model *model, uint32_t samples, uint32_t multiprocessors)
{
    uint64_t rows = (uint64_t)samples * model->sample_tokens;
    double all = 0, busy = 0;
    for (uint32_t u = 0; u < model->units_count; u++) {
        const struct model_unit *unit = &model->units[u];
        for (uint32_t i = 0; i < unit->operations_count; i++) {
            const struct model_operation *operation = &unit->operations[i];
            if (operation->kind != MODEL_LINEAR)
                continue;
            uint32_t use = unit->use_first + operation->use;
            const struct model_parameter *weight = &model->parameters[model->uses[use].parameter];
            double share = tiles(rows) * tiles(results(weight)) / multiprocessors;
            all += (double)weight->weights;
            busy += (double)weight->weights * (share < 1 ? share : 1);
        }
    }
    return all > 0 ? busy / all : 1;
}
