/* A gradient of which few rows are not zeros: those rows alone.
 *
 * A model whose embedding is its head too has two gradients of that table. The head's is dense. The
 * embedding's has a row for each word of the node's tokens, and zeros for all others: a few hundred
 * rows of 50,304. In the host's memory, where a row costs nothing before it is touched, only those
 * are kept, cleared and added.
 *
 * The bits are those of the whole array. A sum that begins as +0 is never -0, whatever is added to
 * it: so where one of two gradients lacks a row, the sum is the other's row as it is. Rows are in
 * the order in which they were first touched; one owner. */
#ifndef ROOST_WORKER_FEW_ROWS_H
#define ROOST_WORKER_FEW_ROWS_H

#include "common/model/model.h"
#include "kernels/kernels.h"
#include "proto/wire.h"
#include "worker/carve.h"

enum { FEW_ROWS_SHARE = 8 /* few: fewer than one row in so many */ };
#define FEW_ROWS_NO_USE UINT32_MAX

struct few_rows {
    uint32_t use;        /* of the model, whose gradient it is; FEW_ROWS_NO_USE: of none */
    uint32_t rows, cols; /* of the whole */
    uint32_t max, count; /* rows that there is room for, and that there are */
    int32_t *place_of;   /* (rows) -1: zeros. Memory of the owner, like the three below: */
    uint32_t *row_of;    /* (max) by place */
    int32_t *places;     /* (max) of the tokens that came last */
    float *values;       /* (max, cols) */
    float *whole;        /* owned; NULL: nobody has asked for it */
};

/* Whether the model has such a use where these kernels compute nodes of so many slots: then
 * *ret_few is its shape, without memory. */
bool few_rows_fit(const struct kernels *k, const struct model *model,
                  const struct spec_train *train, uint32_t node_slots_max,
                  struct few_rows *ret_few);

/* Its memory, which few_rows_init() then makes zeros of. */
void few_rows_carve(struct few_rows *few, struct carve *carve);
uint64_t few_rows_bytes(const struct few_rows *few);
void few_rows_init(struct few_rows *few);
void few_rows_release(struct few_rows *few);

/* All rows are zeros again. */
void few_rows_clear(struct few_rows *few);
/* The places of these rows in `values`, the newest until the next call. Those that were zeros get
 * one. */
const int32_t *few_rows_places(struct few_rows *few, const int32_t *rows, int64_t count);
/* `sum` += the other one, which is of the same table. */
void few_rows_add(struct few_rows *sum, const struct few_rows *other, const struct kernels *k);

/* As blocks_encode() has it of the whole array. */
void few_rows_encode(const struct few_rows *few, const struct kernels *k, const struct model *model,
                     uint32_t chunk, enum codec codec, void *ret_bytes);
/* The whole array, for tests: as it is now, until the next call. */
const float *few_rows_whole(struct few_rows *few);

#endif
