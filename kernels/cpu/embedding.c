#include "kernels/cpu/cpu.h"

void VARIANT(embedding_forward)(SELF, float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t B, int64_t T, int64_t C, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++) {
        check(tokens[row] >= 0 && tokens[row] < V);
        const float *token = wte + tokens[row] * C, *position = wpe + row % T * C;
        VARIANT(add)(k, out + row * C, token, position, C);
    }
}

void VARIANT(embedding_backward)(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *dout, int64_t B, int64_t T, int64_t C, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++) {
        check(tokens[row] >= 0 && tokens[row] < V);
        float *token = dwte + tokens[row] * C, *position = dwpe + row % T * C;
        VARIANT(add)(k, token, token, dout + row * C, C);
        VARIANT(add)(k, position, position, dout + row * C, C);
    }
}
