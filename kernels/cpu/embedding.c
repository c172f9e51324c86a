#include "kernels/cpu/cpu.h"

#include <string.h>

void VARIANT(embedding_forward)(SELF, float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t B, int64_t T, int64_t C, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++) {
        check(tokens[row] >= 0 && tokens[row] < V);
        const float *token = wte + tokens[row] * C;
        if (wpe != NULL)
            VARIANT(add)(k, out + row * C, token, wpe + row % T * C, C);
        else
            memcpy(out + row * C, token, (size_t)C * sizeof *out);
    }
}

void VARIANT(embedding_backward)(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *dout, int64_t B, int64_t T, int64_t C, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++) {
        check(tokens[row] >= 0 && tokens[row] < V);
        float *token = dwte + tokens[row] * C;
        VARIANT(add)(k, token, token, dout + row * C, C);
        if (dwpe != NULL)
            VARIANT(add)(k, dwpe + row % T * C, dwpe + row % T * C, dout + row * C, C);
    }
}
