/* Which code computes a model's units. */
#include "worker/model/unit.h"

const struct unit_operations *unit_operations(const struct model *model)
{
    static const struct unit_operations *const kinds[] = {
        [SPEC_GPT] = &unit_gpt,
        [SPEC_MLP] = &unit_mlp,
    };
    check(model->settings.kind < sizeof kinds / sizeof *kinds);
    return kinds[model->settings.kind];
}

struct unit_inputs unit_inputs(const struct model *model)
{
    if (model->settings.kind == SPEC_MLP)
        return (struct unit_inputs){.count = model->settings.sizes[0]};
    return (struct unit_inputs){.count = model->sample_tokens, .tokens = true};
}
