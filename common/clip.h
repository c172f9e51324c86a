/* The clip factor of a gradient, the same for a step's sum and for a ticket by itself. */
#ifndef ROOST_COMMON_CLIP_H
#define ROOST_COMMON_CLIP_H

/* nanoGPT's (torch.nn.utils.clip_grad_norm_): clip_norm / (norm + 1e-6), at most 1; clip_norm 0: no
 * clipping. `norm` is that of the mean gradient. */
static inline double clip_factor(double clip_norm, double norm)
{
    double factor = clip_norm / (norm + 1e-6);
    return clip_norm > 0 && factor < 1 ? factor : 1;
}

#endif
