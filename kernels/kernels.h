/* The operations that models and optimizers are made of: one table, filled by each backend (CPU,
 * CUDA). Outputs come first; shapes are row-major and stand in the comments.
 *
 * - Arrays are fp32 in the backend's memory (alloc) unless a comment names another type; arrays of
 *   `element` are what the table computes with (below). `=` in a comment overwrites, `+=`
 *   accumulates. Outputs overlap inputs only where a comment allows it.
 * - The first argument is the table itself: `k->add(k, out, a, b, n)`. Operations keep no state
 *   between calls; on the CPU any number of threads may use one table. A CUDA table is one stream,
 *   of one thread at a time: operations run in order, and only synchronize() and what fills the
 *   host's memory wait for them. `in` and `out` are two more, for another thread's copies, which
 *   then lie beside what is computed; a mark orders what one stream does before what another does.
 * - Operations cannot fail; wrong shapes are our own bug. What a device reports late comes out of
 *   synchronize().
 * - Same arguments, same bits: sums have a fixed order, and the scalar, AVX2 and AVX-512 variants
 *   of a CPU operation are equal bit for bit. GEMM bits depend on `numerics`. Elementwise
 *   operations have the same bits on CUDA, sums another fixed order.
 * - Scalars are computed once, in double, by the caller and passed as float.
 *
 * B batch, T time (context), C channels (width), H heads, G heads of keys and values, S channels of
 * a head, N rows (often B*T), I inputs, O outputs, V vocabulary, Vp padded vocabulary, n
 * elements. */
#ifndef ROOST_KERNELS_KERNELS_H
#define ROOST_KERNELS_KERNELS_H

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kernels_backend { KERNELS_CPU, KERNELS_CUDA };

/* The number format of products in linear_* and attention_*; sums are fp32 always. TF32 rounds the fp32
 * factors of linear_* to 10 bits of mantissa, and leaves attention_* in fp32; BF16 makes all elements
 * bf16. Decides bits; a CPU has FP32 only. */
enum kernels_compute { KERNELS_COMPUTE_FP32, KERNELS_COMPUTE_TF32, KERNELS_COMPUTE_BF16 };

/* Weights, activations and the gradients of activations. On a table opened for BF16 such an array
 * holds bf16 (element_bytes 2): only the table's operations may look inside, the host finds places
 * in it with kernels_at(). On every other table it is fp32. */
typedef float element;

/* The widest instructions our own CPU kernels use; no influence on bits. */
enum kernels_isa { KERNELS_ISA_AUTO, KERNELS_ISA_SCALAR, KERNELS_ISA_AVX2, KERNELS_ISA_AVX512 };

/* The format that an optimizer publishes in the same pass as it updates the weights. */
enum kernels_format { KERNELS_NONE, KERNELS_F32, KERNELS_BF16 };

enum { KERNELS_BLOCK_BYTES_MAX = 512 << 10 };

struct kernels_options {
    enum kernels_backend backend;
    uint32_t device; /* CUDA: which of those that this process sees, counted round them */
    enum kernels_isa isa;
    /* OpenBLAS core type: "SkylakeX", "Haswell", …; "auto" is kernels_gemm_core_auto(). It decides
     * bits, so a run pins it. NULL: do not load OpenBLAS (servers); then linear_* and attention_*
     * must not be called. One process has one OpenBLAS: a second table with another core type or
     * thread count is refused. */
    const char *gemm_core;
    int gemm_threads; /* 0 means 1; decides bits as well */
    enum kernels_compute compute;
    /* Folders of programs, as PATH has them: Python's packages beside one may have the libraries
     * that CUDA needs, where the toolkit is not installed. NULL: do not look there. */
    const char *python_path;
    /* What write_products() of another table wrote: products are computed by these algorithms where
     * this table's library and device are of the same kind, and the library admits them. It may come
     * from a peer. NULL: none; the backend chooses. */
    const char *products;
};

/* Where the new weights and state go, n of each, while the old ones stay as they are: around the
 * caches, where they lie on whole 64-byte lines, unless they are read soon. NULL: in place. On the
 * CPU alone. */
struct kernels_apart {
    float *w, *m, *v;
    bool w_cached; /* w is read soon */
};

/* One step of SGD: d = scale*g + weight_decay*w; w -= lr*d. */
struct kernels_sgd {
    float scale, lr, weight_decay;
    struct kernels_apart apart;
};

/* PyTorch's SGD with momentum, no dampening: d = scale*g + weight_decay*w; m = momentum*m + d;
 * w -= lr * (nesterov ? d + momentum*m : m). */
struct kernels_momentum {
    float scale, lr, weight_decay, momentum;
    bool nesterov;
    struct kernels_apart apart;
};

/* PyTorch's AdamW at update t = 1, 2, …: g *= scale; w *= decay; m = beta1*m + one_minus_beta1*g;
 * v = beta2*v + one_minus_beta2*g*g; w -= rate * m / (sqrt(v)*root + eps). */
struct kernels_adamw {
    float scale;
    float decay;                  /* 1 - lr * weight_decay */
    float beta1, one_minus_beta1; /* the difference taken in double */
    float beta2, one_minus_beta2;
    float rate; /* lr / (1 - beta1^t) */
    float root; /* 1 / sqrt(1 - beta2^t) */
    float eps;
    struct kernels_apart apart;
};

/* Rotary positions: from one position to the next, pair i of a head of S channels is turned by
 * high[i] + low[i] full circles (Su et al. 2021: base^(-2i/S) / 2 pi), i < S/2. Two floats, so that
 * the angle at a position has the precision of one, however far the position. */
enum { KERNELS_ROPE_PAIRS_MAX = 128 };
struct kernels_rope {
    float high[KERNELS_ROPE_PAIRS_MAX], low[KERNELS_ROPE_PAIRS_MAX];
};

/* The most pieces that a split layer is computed by (the largest model.tensor_max). */
enum { KERNELS_PIECES_MAX = 64 };

/* Marks that a table remembers: two numbers so far apart share one, which then stands further
 * behind than it had to. */
enum { KERNELS_MARKS = 64 };

/* Bytes of a device's memory: all of it, what is free at the moment, what of the rest this table
 * took when it was opened (workspaces), and what of the free ones is not to be had, because the
 * backend takes it later (kernels that it loads at their first use, graphs). On a CPU 0: nobody
 * counts the host's. */
struct kernels_memory {
    uint64_t total, free, own, reserved;
};

/* One way of computing the products of a shape: both by name, as in `numerics`. */
struct kernels_candidate {
    const char *shape, *algorithm;
    double microseconds, teraflops; /* of one product; infinity when it cannot be run after all */
    bool is_first, is_fastest;      /* what was taken before, and what is from now on */
};
typedef void kernels_report(void *context, const struct kernels_candidate *candidate);

struct kernels_graph;

struct kernels {
    /* -- what it is ------------------------------------------------------------------------- */
    const char *name; /* "cpu avx512": for people */
    /* Library, version, core type, threads: what decides a GEMM's bits. On CUDA the algorithms of
     * the shapes so far; it grows with each new shape: read it while no operation is called. */
    const char *numerics;
    size_t element_bytes;        /* 4, or 2 when elements are bf16 */
    struct kernels_state *state; /* the backend's own */
    /* Tables of the same device and memory, for memory and wire operations to it and from it. On
     * the CPU the table itself. They end with it. */
    const struct kernels *in, *out;
    void (*close)(const struct kernels *k); /* call kernels_free() */

    /* -- memory ----------------------------------------------------------------------------- */
    /* 64-byte aligned, content undefined. NULL: out of memory. */
    void *(*alloc)(const struct kernels *k, size_t bytes);
    void (*free)(const struct kernels *k, void *memory); /* NULL is fine */
    void (*memory)(const struct kernels *k, struct kernels_memory *ret_memory);
    /* `host` is ordinary memory of the process, free to be used again on return; copy_out waits for
     * the operations before it and has filled it. */
    void (*copy_in)(const struct kernels *k, void *memory, const void *host, size_t bytes);
    void (*copy_out)(const struct kernels *k, void *host, const void *memory, size_t bytes);
    /* copy_in to memory that no cache will hold until it is read: the stores go around them, and do
     * not read first what they overwrite. Where caches would hold it, copy and next use take twice
     * as long. NULL: the backend has caches of its own. */
    void (*copy_in_uncached)(const struct kernels *k, void *memory, const void *host, size_t bytes);
    void (*zero)(const struct kernels *k, void *memory, size_t bytes);
    /* memory (bytes) = from; they do not overlap. Both are the backend's memory. */
    void (*copy)(const struct kernels *k, void *memory, const void *from, size_t bytes);
    /* Waits for all operations given so far. NULL, or a sentence about the operation that
     * failed. */
    const char *(*synchronize)(const struct kernels *k);

    /* -- order between streams -------------------------------------------------------------- */
    /* A mark behind all operations given to this table so far; an older one of that number, or of
     * one KERNELS_MARKS away, is forgotten. */
    void (*mark)(const struct kernels *k, uint32_t number);
    /* What is given to this table from now on waits for the newest such mark of `other`'s, if there
     * is one. The caller does not wait. */
    void (*after)(const struct kernels *k, const struct kernels *other, uint32_t number);

    /* -- NULL on a CPU, like all up to linear_* ------------------------------------------------ */
    /* The calling thread works with tables of this one's device from now on. A thread that has not
     * called it works with those of device 0. */
    void (*use)(const struct kernels *k);
    /* out (n) += b, which is memory of `other`'s device; the caller has seen to the order. */
    void (*add_other)(const struct kernels *k, float *out, const struct kernels *other,
                      const float *b, int64_t n);
    /* How many this process sees; kernels_options.device is counted round them. */
    uint32_t (*devices)(const struct kernels *k);
    /* Of the device, which work at the same time. */
    uint32_t (*multiprocessors)(const struct kernels *k);

    /* -- graphs: NULL where there are none (CPU) ---------------------------------------------- */
    /* What `work` gives this table, kept instead of done. It must be given on the caller's thread,
     * and not wait, allocate, mark or fill the host's memory. NULL: it did, or the device cannot
     * keep it. graph_free() */
    struct kernels_graph *(*graph_new)(const struct kernels *k, void (*work)(void *context),
                                       void *context);
    /* Gives all of it again, with the same arguments, at once. */
    void (*graph_run)(const struct kernels *k, struct kernels_graph *graph);
    void (*graph_free)(const struct kernels *k, struct kernels_graph *graph); /* NULL is fine */

    /* -- products: NULL where there is one way of computing them (CPU) ------------------------- */
    /* Runs every algorithm for each shape that linear_* computed so far, on memory taken for it,
     * and takes the fastest of each from then on: other bits, as `numerics` then says. Two calls need
     * not take the same: a run keeps what one of them took (write_products). `report` may be NULL. */
    void (*time_products)(const struct kernels *k, kernels_report *report, void *context);
    /* The algorithms of the shapes so far as a text for kernels_options.products, of at most `bytes`
     * with the zero at its end; of what has no room whole entries are left out. Each ends with ';':
     * the library and the kind of device; then "NT 64x50304x768/16.16.16 71.20.5.0.2.0.1.0 0b02…", a
     * shape and its algorithm as in `numerics`, and the library's own words for it in hexadecimal. */
    void (*write_products)(const struct kernels *k, char *text, size_t bytes);

    /* -- blocks on the wire: NULL where memory is the host's, whose rows are copied like other bytes
     *    (CPU) ------------------------------------------------------------------------------- */
    /* A block of a parameter is `rows` rows of cols values, each `stride` behind the one before; in
     * bytes one behind another, fp32 or bf16 (`format`), little-endian, at most
     * KERNELS_BLOCK_BYTES_MAX. A device is given it at once, however many rows it has.
     *
     * decode_block()'s bytes are free to be used again on return. It need not copy those that are
     * put into the room, for KERNELS_BLOCK_BYTES_MAX, that was given before. */
    void *(*block_room)(const struct kernels *k);
    void (*decode_block)(const struct kernels *k, element *block, int64_t stride, const void *bytes,
                         enum kernels_format format, int64_t rows, int64_t cols);
    /* The bytes are there when synchronize() has returned: they stay until then. */
    void (*encode_block)(const struct kernels *k, void *bytes, enum kernels_format format,
                         const float *block, int64_t stride, int64_t rows, int64_t cols);
    /* encode_block() writes into this memory of the host without another copy there, where the device
     * can: it is pinned piece by piece, as it is used. Once, before the first block; it stays until the
     * table is closed. */
    void (*share)(const struct kernels *k, void *memory, size_t bytes);
    /* The block in one array = that in another of the same parameter; both on the device. */
    void (*copy_block)(const struct kernels *k, element *block, const element *from, int64_t stride,
                       int64_t rows, int64_t cols);

    /* -- linear ----------------------------------------------------------------------------- */
    /* out (N,O) = inp (N,I) weight (O,I)^T + bias (O); bias may be NULL. */
    void (*linear_forward)(const struct kernels *k, element *out, const element *inp,
                           const element *weight, const element *bias, int64_t N, int64_t I,
                           int64_t O);
    /* out (N,O) = residual (N,O) + (inp weight^T + bias) */
    void (*linear_add_forward)(const struct kernels *k, element *out, const element *residual,
                               const element *inp, const element *weight, const element *bias,
                               int64_t N, int64_t I, int64_t O);
    /* pre (N,O) = inp weight^T + bias, kept for the backward pass; out (N,O) = gelu(pre). */
    void (*linear_gelu_forward)(const struct kernels *k, element *out, element *pre,
                                const element *inp, const element *weight, const element *bias,
                                int64_t N, int64_t I, int64_t O);
    /* out (N,O) = residual (N,O) + (sum (N,O) + bias (O)): what follows the sum of a linear's
     * pieces, and with N 1 such a sum's addition. bias and residual may be NULL; out may be sum or
     * residual. */
    void (*linear_finish)(const struct kernels *k, element *out, const element *residual,
                          const element *sum, const element *bias, int64_t N, int64_t O);
    /* dinp (N,I) = dout (N,O) weight (O,I) */
    void (*linear_backward_input)(const struct kernels *k, element *dinp, const element *dout,
                                  const element *weight, int64_t N, int64_t I, int64_t O);
    /* dpre (N,I) = gelu'(pre (N,I)) * (dout (N,O) weight (O,I)) */
    void (*linear_gelu_backward_input)(const struct kernels *k, element *dpre, const element *dout,
                                       const element *weight, const element *pre, int64_t N,
                                       int64_t I, int64_t O);
    /* dweight (O,I) += dout (N,O)^T inp (N,I); dbias (O) += column sums of dout, may be NULL. */
    void (*linear_backward_weight)(const struct kernels *k, float *dweight, float *dbias,
                                   const element *dout, const element *inp, int64_t N, int64_t I,
                                   int64_t O);

    /* -- embedding -------------------------------------------------------------------------- */
    /* wte is rows [first, first + rows) of a table (V,C); every token is in [0, V). out (B,T,C) = the
     * table[tokens (B,T)] + wpe (T,C), or 0 where wte does not have the token's row; wpe may be
     * NULL. */
    void (*embedding_forward)(const struct kernels *k, element *out, const int32_t *tokens,
                              const element *wte, const element *wpe, int64_t B, int64_t T,
                              int64_t C, int64_t first, int64_t rows, int64_t V);
    /* The gradient of the rows in wte (rows,C) += dout (B,T,C), dwpe (T,C) += dout, or NULL; rows in
     * (b,t) order. */
    void (*embedding_backward)(const struct kernels *k, float *dwte, float *dwpe,
                               const int32_t *tokens, const element *dout, int64_t B, int64_t T,
                               int64_t C, int64_t first, int64_t rows, int64_t V);

    /* -- layernorm -------------------------------------------------------------------------- */
    /* out (N,C) = (inp (N,C) - mean) * rstd * gamma (C) + beta (C), rstd = 1/sqrt(var + 1e-5).
     * mean, rstd (N) are kept for the backward pass. */
    void (*layernorm_forward)(const struct kernels *k, element *out, float *mean, float *rstd,
                              const element *inp, const element *gamma, const element *beta,
                              int64_t N, int64_t C);
    /* dinp (N,C) += (so that a residual's gradient can already be there), dgamma (C) +=,
     * dbeta (C) +=. */
    void (*layernorm_backward)(const struct kernels *k, element *dinp, float *dgamma, float *dbeta,
                               const element *dout, const element *inp, const float *mean,
                               const float *rstd, const element *gamma, int64_t N, int64_t C);

    /* -- rmsnorm ---------------------------------------------------------------------------- */
    /* out (N,C) = inp (N,C) * rstd * gamma (C), rstd = 1/sqrt(mean(inp^2) + 1e-5), which is kept
     * (N) for the backward pass. */
    void (*rmsnorm_forward)(const struct kernels *k, element *out, float *rstd, const element *inp,
                            const element *gamma, int64_t N, int64_t C);
    /* dinp (N,C) +=, dgamma (C) += */
    void (*rmsnorm_backward)(const struct kernels *k, element *dinp, float *dgamma,
                             const element *dout, const element *inp, const float *rstd,
                             const element *gamma, int64_t N, int64_t C);

    /* -- rope: in place, on an array as attention_* has it ----------------------------------- */
    /* In qkv (B,T,(H+2G)S) the channels (i, i + S/2) of every query and key, a and b, become
     * (a cos - b sin, b cos + a sin) of pair i's angle at position t. C = H S; S is even, at most
     * 2 KERNELS_ROPE_PAIRS_MAX. */
    void (*rope_forward)(const struct kernels *k, element *qkv, const struct kernels_rope *rope,
                         int64_t B, int64_t T, int64_t C, int64_t H, int64_t G);
    /* dqkv, the gradient of what the forward pass made, becomes that of what it was given. */
    void (*rope_backward)(const struct kernels *k, element *dqkv, const struct kernels_rope *rope,
                          int64_t B, int64_t T, int64_t C, int64_t H, int64_t G);

    /* -- attention -------------------------------------------------------------------------- */
    /* Bytes of `scratch` (alloc) for both passes; never more than two row blocks of T columns. */
    size_t (*attention_scratch_bytes)(const struct kernels *k, int64_t T, int64_t C, int64_t H);
    /* qkv (B,T,(H+2G)S): H queries, G keys, G values, each of S = C/H channels. G divides H;
     * queries g·H/G … use key and value g (grouped queries; G = H: each its own). Per query head
     * out (B,T,C) = softmax(Q K^T / sqrt(S)) V; causal: row t sees columns 0…t.
     * lse (B,H,T) = log of each row's sum of exponentials, kept for the backward pass. */
    void (*attention_forward)(const struct kernels *k, element *out, float *lse, void *scratch,
                              const element *qkv, bool causal, int64_t B, int64_t T, int64_t C,
                              int64_t H, int64_t G);
    /* dqkv (B,T,(H+2G)S) =; probabilities are computed again from qkv and lse. */
    void (*attention_backward)(const struct kernels *k, element *dqkv, void *scratch,
                               const element *dout, const element *out, const float *lse,
                               const element *qkv, bool causal, int64_t B, int64_t T, int64_t C,
                               int64_t H, int64_t G);

    /* -- elementwise; outputs may be the same array as an input ------------------------------- */
    /* GELU with tanh (GPT-2's). The backward pass takes the forward's input. */
    void (*gelu_forward)(const struct kernels *k, element *out, const element *inp, int64_t n);
    void (*gelu_backward)(const struct kernels *k, element *dinp, const element *dout,
                          const element *inp, int64_t n);
    /* The backward passes of relu and tanh take the forward's output. */
    void (*relu_forward)(const struct kernels *k, element *out, const element *inp, int64_t n);
    void (*relu_backward)(const struct kernels *k, element *dinp, const element *dout,
                          const element *out, int64_t n);
    void (*tanh_forward)(const struct kernels *k, element *out, const element *inp, int64_t n);
    void (*tanh_backward)(const struct kernels *k, element *dinp, const element *dout,
                          const element *out, int64_t n);

    /* -- swiglu ----------------------------------------------------------------------------- */
    /* out (N,C) = gate * up / (1 + e^-gate), gate and up the halves of inp's rows (N,2C) (SwiGLU's
     * product, Shazeer 2020). The backward pass takes the forward's input; dinp (N,2C) may be it.
     */
    void (*swiglu_forward)(const struct kernels *k, element *out, const element *inp, int64_t N,
                           int64_t C);
    void (*swiglu_backward)(const struct kernels *k, element *dinp, const element *dout,
                            const element *inp, int64_t N, int64_t C);

    /* -- classifier: softmax and cross-entropy over a block of rows ---------------------------- */
    /* losses (N) = -log softmax(logits (N,Vp)[:, :V])[targets (N)]; correct (N) = 1 where the
     * largest logit (the lowest index of equals) is the target, else 0; may be NULL. Columns V…Vp
     * are ignored. Targets are in [0, V); a negative one makes a row that does not count: loss,
     * correct and gradient are 0. Logits are not changed. */
    void (*classifier_forward)(const struct kernels *k, float *losses, int32_t *correct,
                               const element *logits, const int32_t *targets, int64_t N, int64_t V,
                               int64_t Vp);
    /* The same, and logits (N,Vp) become their gradient: dloss * (softmax - onehot), 0 in columns
     * V…Vp. */
    void (*classifier_forward_backward)(const struct kernels *k, float *losses, int32_t *correct,
                                        element *logits, const int32_t *targets, float dloss,
                                        int64_t N, int64_t V, int64_t Vp);

    /* -- classifier by pieces of the classes: the same, where no array has all logits of a row. P
     *    pieces, a power of two up to KERNELS_PIECES_MAX, of Vp columns each; this one's have the
     *    classes from `first` on, V of them, then padding. Each of the three steps is made for every
     *    piece before the next one, which reads what the one before wrote about all of them ------ */
    /* largest (N) of the piece's logits (N,Vp), -infinity when V is 0; logit (N) = the target's, in
     * rows whose target the piece has, the others are left. */
    void (*pieces_largest)(const struct kernels *k, float *largest, float *logit,
                           const element *logits, const int32_t *targets, int64_t first, int64_t N,
                           int64_t V, int64_t Vp);
    /* logits (N,Vp) = e^(logits - the largest of the row's `largest` (P,N)), 0 in columns V…Vp and
     * in rows that do not count; sums (N) of them, each as classifier_forward's. correct (N), as
     * there, in rows whose target the piece has, and by piece 0 in rows that do not count; may be
     * NULL. */
    void (*pieces_exponentials)(const struct kernels *k, float *sums, int32_t *correct,
                                element *logits, const float *largest, const int32_t *targets,
                                int64_t first, int64_t P, int64_t N, int64_t V, int64_t Vp);
    /* total = the row's sums (P,N), added as sum(left) + sum(right) over the pieces; losses (N) =
     * log total + (largest - logit), 0 in rows that do not count; may be NULL. logits (N,Vp), now
     * exponentials, become the gradient: dloss * (logits / total - onehot); may be NULL. */
    void (*pieces_gradient)(const struct kernels *k, float *losses, element *logits,
                            const float *largest, const float *sums, const float *logit,
                            const int32_t *targets, float dloss, int64_t first, int64_t P,
                            int64_t N, int64_t V, int64_t Vp);

    /* -- gradients of weights ----------------------------------------------------------------- */
    /* out (n) = a + b; `out` may be either */
    void (*add)(const struct kernels *k, float *out, const float *a, const float *b, int64_t n);
    /* out (n) = a - b; likewise */
    void (*subtract)(const struct kernels *k, float *out, const float *a, const float *b,
                     int64_t n);

    /* -- wire: `bytes` are in the host's memory, may be unaligned, and are free to be used again on
     *    return; values are little-endian ------------------------------------------------------ */
    /* dst (n) = the fp32 or bf16 values in bytes (4n or 2n) */
    void (*cast_from_f32)(const struct kernels *k, element *dst, const void *bytes, int64_t n);
    void (*cast_from_bf16)(const struct kernels *k, element *dst, const void *bytes, int64_t n);
    /* bytes (2n) = src (n), rounded to nearest even; NaN stays NaN. */
    void (*cast_to_bf16)(const struct kernels *k, void *bytes, const float *src, int64_t n);
    /* acc (n) += the values in the bytes (4n or 2n) */
    void (*add_f32)(const struct kernels *k, float *acc, const void *bytes, int64_t n);
    void (*add_bf16)(const struct kernels *k, float *acc, const void *bytes, int64_t n);

    /* sum (1), in the host's memory, = sum of x (n) squared, in double, by one fixed tree (CPU: 16
     * lanes). It is finite exactly when every x is. */
    void (*sum_squares)(const struct kernels *k, double *sum, const float *x, int64_t n);

    /* -- optimizers: w (n) and state updated, in place or apart; `published` (n values of `format`)
     *    written in the same pass; it may be NULL with KERNELS_NONE and may be unaligned. g is not
     *    changed. ----- */
    void (*sgd)(const struct kernels *k, float *w, void *published, enum kernels_format format,
                const float *g, const struct kernels_sgd *step, int64_t n);
    void (*momentum)(const struct kernels *k, float *w, float *m, void *published,
                     enum kernels_format format, const float *g,
                     const struct kernels_momentum *step, int64_t n);
    void (*adamw)(const struct kernels *k, float *w, float *m, float *v, void *published,
                  enum kernels_format format, const float *g, const struct kernels_adamw *step,
                  int64_t n);
    /* w = scale * g: running statistics, averaged weights */
    void (*mean)(const struct kernels *k, float *w, void *published, enum kernels_format format,
                 const float *g, float scale, int64_t n);
};

/* Opens a backend. False: not possible here, and `reason` gets the cause in one sentence.
 * *ret_kernels: kernels_free(). Call it before other threads are started: OpenBLAS takes its core
 * type from the environment when it is loaded. */
bool kernels_new(const struct kernels_options *options, const struct kernels **ret_kernels,
                 char *reason, size_t reason_bytes) MUST_USE;
void kernels_free(const struct kernels *k); /* NULL is fine */

static inline void kernels_use(const struct kernels *k)
{
    if (k->use != NULL)
        k->use(k);
}

/* Element `index` of an array, as an address; like strchr() it drops the const. */
static inline void *kernels_at(const struct kernels *k, const element *array, int64_t index)
{
    return (char *)array + index * (int64_t)k->element_bytes;
}

/* The core type that "auto" stands for on this machine. */
const char *kernels_gemm_core_auto(void);

#endif
