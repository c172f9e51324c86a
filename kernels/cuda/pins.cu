/* The host's memory that the device writes itself: one range, of which a piece is pinned when it is
 * first needed. What cannot be pinned stays as it is, and copies pass through the ring. */
#include "kernels/cuda/cuda.cuh"

static const size_t PIECE_BYTES = 8 << 20;

enum piece : char { NEW, PINNED, REFUSED };

struct pins {
    char *memory;
    size_t bytes;
    enum piece pieces[]; /* each PIECE_BYTES long, but the last */
};

static size_t piece_bytes(const struct pins *pins, size_t piece)
{
    size_t rest = pins->bytes - piece * PIECE_BYTES;
    return rest < PIECE_BYTES ? rest : PIECE_BYTES;
}

void cuda_share(SELF, void *memory, size_t bytes)
{
    size_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    struct kernels_state *out = k->out->state; /* no other table writes there */
    check(!out->pins);
    struct pins *pins = (struct pins *)calloc(1, sizeof *pins + pieces * sizeof *pins->pieces);
    if (!pins)
        return;
    pins->memory = (char *)memory;
    pins->bytes = bytes;
    out->pins = pins;
}

static void pin(struct pins *pins, size_t piece)
{
    cudaError_t error = cudaHostRegister(pins->memory + piece * PIECE_BYTES,
                                         piece_bytes(pins, piece), cudaHostRegisterDefault);
    if (error != cudaSuccess)
        cudaGetLastError(); /* forgets it */
    pins->pieces[piece] = error == cudaSuccess ? PINNED : REFUSED;
}

size_t pins_reach(SELF, const void *host, size_t bytes)
{
    struct pins *pins = k->state->pins;
    const char *at = (const char *)host;
    if (!pins || at < pins->memory || at >= pins->memory + pins->bytes)
        return 0;
    size_t offset = (size_t)(at - pins->memory), piece = offset / PIECE_BYTES;
    if (pins->pieces[piece] == NEW)
        pin(pins, piece);
    size_t here = piece * PIECE_BYTES + piece_bytes(pins, piece) - offset;
    if (pins->pieces[piece] == REFUSED)
        return 0;
    return bytes < here ? bytes : here;
}

void pins_free(struct pins *pins)
{
    for (size_t piece = 0; pins && piece * PIECE_BYTES < pins->bytes; piece++)
        if (pins->pieces[piece] == PINNED)
            cudaHostUnregister(pins->memory + piece * PIECE_BYTES);
    free(pins);
}
