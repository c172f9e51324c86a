#include "worker/model/norms.h"

enum { GAMMA, BETA };

/* ---- layer norm ---- */

static float *rstds(const struct act_arrays *act, const struct model_operation *o)
{
    return act_statistics(act, o) + (act->N + 15) / 16 * 16;
}

uint32_t norms_layer_statistics(const struct model_operation *o)
{
    (void)o;
    return 2;
}

void norms_layer_forward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->layernorm_forward(k, act->arrays[o->out], act_statistics(act, o), rstds(act, o),
                         act->arrays[o->in], act_weights(act, o, GAMMA), act_weights(act, o, BETA),
                         act->N, act_width(act, o->in));
}

void norms_layer_backward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->layernorm_backward(k, act_gradient(act, o->in), act_gradients(act, o, GAMMA),
                          act_gradients(act, o, BETA), act_gradient(act, o->out),
                          act->arrays[o->in], act_statistics(act, o), rstds(act, o),
                          act_weights(act, o, GAMMA), act->N, act_width(act, o->in));
}

/* ---- root mean square ---- */

uint32_t norms_rms_statistics(const struct model_operation *o)
{
    (void)o;
    return 1;
}

void norms_rms_forward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->rmsnorm_forward(k, act->arrays[o->out], act_statistics(act, o), act->arrays[o->in],
                       act_weights(act, o, GAMMA), act->N, act_width(act, o->in));
}

void norms_rms_backward(const struct act_arrays *act, const struct model_operation *o)
{
    const struct kernels *k = act->call->k;
    k->rmsnorm_backward(k, act_gradient(act, o->in), act_gradients(act, o, GAMMA),
                        act_gradient(act, o->out), act->arrays[o->in], act_statistics(act, o),
                        act_weights(act, o, GAMMA), act->N, act_width(act, o->in));
}
