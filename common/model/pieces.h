/* Pieces: which parameters and activations of a model a worker has in pieces, and how they lie.
 *
 * `train.pieces: p` fixes the arithmetic of 1-D tensor parallelism before there is any: a layer that
 * the grid splits (rule 1 in common/model/model.h) is computed as p products of fixed shape, and
 * sums over them are taken in the one tree of common/tree.h. Who holds p/T consecutive pieces holds
 * a subtree, so the bits are the same for every T.
 *
 * Splits come in pairs: a linear split by rows makes activations in pieces, what follows computes on
 * each piece alone, and a linear split by columns eats them: its products are summed. Where the
 * grid leaves one of a pair whole, because its unit is small, both are whole. So is an mlp's last
 * linear when it would be split by columns, and the one before it. What is split by rows over the
 * vocabulary is in pieces for the classifier; the embedding copies rows of it, whichever piece they
 * are in.
 *
 * How it lies. On the wire and in servers nothing changes. In a worker's memory a parameter in pieces
 * is piece-major: each piece packed, row-major, with the leading dimension that it has in every tensor
 * degree. A piece of rows is the piece's rows of each group, in the groups' order: its heads of
 * queries, keys and values are one product. An activation in pieces is (p, N, width / p).
 *
 * Ranges. With `train.tensor_norms: split` (Korthikanti et al., arXiv:2205.05198, section 4.2.2) the N
 * predictions of a microbatch are p consecutive ranges of N / p as well. An array of the residual
 * stream, which a sum over pieces or an embedding makes, is ranged: who has p/T consecutive pieces has
 * as many ranges of it, and computes with these alone what lies between two split layers, the norms and
 * what follows a sum. A norm hands all predictions to the layer behind it. Each range gives gradients
 * of a norm's weights, which are summed in the tree, in the single process too; the gradient of a bias
 * that is added to a sum is that of all predictions at once, which every member has.
 *
 * A member's model. A member of a place of T has p / T consecutive pieces of everything that is in
 * pieces, and all of what is not. Its tables are the model's, with chunks and shapes as everywhere;
 * smaller are only parameters' `weights`, which is the memory that they take, and widths, pieces and
 * heads of what is in pieces. So what computes, and what lays out memory, does it as with a whole
 * model; sums and maxima over all pieces it takes with the other members (worker/model/unit.h). */
#ifndef ROOST_COMMON_MODEL_PIECES_H
#define ROOST_COMMON_MODEL_PIECES_H

#include "common/model/model.h"

/* Fills `pieces` of all parameters and arrays, and which of these are ranged. ERR_INVALID:
 * settings.pieces does not divide what is split, or a layer is whole between ranged arrays. */
enum err pieces_choose(struct model *model, struct reason *reason) MUST_USE;

/* The model of that member of `ranks`, which divides the pieces: owned like the whole one, which
 * must not be a member's. ERR_NOMEM. */
enum err pieces_share(const struct model *whole, uint32_t rank, uint32_t ranks,
                      struct model *ret_model) MUST_USE;

/* Whether the model has ranged arrays. */
bool pieces_ranged(const struct model *model);

/* Whether the chunk is in the memory of that member of `ranks`; of who has that model. */
bool pieces_rank_holds(const struct model *model, uint32_t chunk, uint32_t rank, uint32_t ranks);
bool pieces_holds(const struct model *model, uint32_t chunk);

/* Where the chunk's row r begins in a worker's storage of the parameter, in weights; its `cols`
 * weights are contiguous there. */
uint64_t pieces_row_offset(const struct model *model, uint32_t chunk, uint32_t r);

/* Columns of a worker's storage: rows of a chunk with as many follow one another. */
uint32_t pieces_cols(const struct model_parameter *parameter);

/* The piece that the chunk is in; 0 of a parameter that is whole. */
uint32_t pieces_chunk_piece(const struct model *model, uint32_t chunk);

/* Which of a place's T ranks pushes the chunk: rank r has the pieces [r p / T, (r + 1) p / T); what is
 * whole is rank 0's. T divides settings.pieces; 0 is 1. */
uint32_t pieces_chunk_rank(const struct model *model, uint32_t chunk, uint32_t ranks);

#endif
