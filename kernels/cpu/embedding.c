#include "kernels/cpu/cpu.h"

#include <string.h>

/* The row of a table that begins at `first`, or -1: it is not among the `rows`. */
static int64_t row_of(int32_t token, int64_t first, int64_t rows, int64_t V)
{
    check(token >= 0 && token < V);
    return token >= first && token < first + rows ? token - first : -1;
}

void VARIANT(embedding_forward)(SELF, float *out, const int32_t *tokens, const float *wte,
                                const float *wpe, int64_t B, int64_t T, int64_t C, int64_t first,
                                int64_t rows, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++, out += C) {
        int64_t token = row_of(tokens[row], first, rows, V);
        if (token < 0)
            memset(out, 0, (size_t)C * sizeof *out);
        else if (wpe != NULL)
            VARIANT(add)(k, out, wte + token * C, wpe + row % T * C, C);
        else
            memcpy(out, wte + token * C, (size_t)C * sizeof *out);
    }
}

void VARIANT(embedding_backward)(SELF, float *dwte, float *dwpe, const int32_t *tokens,
                                 const float *dout, int64_t B, int64_t T, int64_t C, int64_t first,
                                 int64_t rows, int64_t V)
{
    for (int64_t row = 0; row < B * T; row++) {
        int64_t token = row_of(tokens[row], first, rows, V);
        if (token >= 0)
            VARIANT(add)(k, dwte + token * C, dwte + token * C, dout + row * C, C);
        if (dwpe != NULL)
            VARIANT(add)(k, dwpe + row % T * C, dwpe + row % T * C, dout + row * C, C);
    }
}
