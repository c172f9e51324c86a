/* safetensors: u64 length, JSON header, tensors without holes (huggingface/safetensors,
 * docs/spec.md). The parser is pure, checks all that the original reader checks, and has limits. */
#ifndef ROOST_COMMON_FILES_SAFETENSORS_H
#define ROOST_COMMON_FILES_SAFETENSORS_H

#include "common/buf.h"

#define SAFETENSORS_HEADER_BYTES_MAX 100000000u
#define SAFETENSORS_DIMS_MAX 8
#define SAFETENSORS_TENSORS_MAX 1000000u

/* dtype, bits */
/* clang-format off */
#define SAFETENSORS_DTYPE_TABLE(X)                                                                \
    X(BOOL, 8) X(U8, 8) X(I8, 8) X(F8_E5M2, 8)                                                    \
    X(F8_E4M3, 8) X(F8_E8M0, 8) X(F8_E4M3FNUZ, 8) X(F8_E5M2FNUZ, 8)                               \
    X(U16, 16) X(I16, 16) X(F16, 16) X(BF16, 16)                                                  \
    X(U32, 32) X(I32, 32) X(F32, 32) X(U64, 64)                                                   \
    X(I64, 64) X(F64, 64) X(C64, 64) X(F4, 4)                                                     \
    X(F6_E2M3, 6) X(F6_E3M2, 6)
/* clang-format on */
#define SAFETENSORS_ENUM(dtype, bits) SAFETENSORS_##dtype,
enum safetensors_dtype { SAFETENSORS_DTYPE_TABLE(SAFETENSORS_ENUM) SAFETENSORS_DTYPE_COUNT };
#undef SAFETENSORS_ENUM

const char *safetensors_dtype_name(enum safetensors_dtype dtype);

struct safetensors_tensor {
    const char *name;
    enum safetensors_dtype dtype;
    unsigned dims;
    uint64_t shape[SAFETENSORS_DIMS_MAX]; /* row-major */
    uint64_t begin, end;                  /* in the buffer after the header */
};

/* A parsed header: tensors in the order of their bytes. Owns the names. */
struct safetensors {
    struct safetensors_tensor *tensors;
    size_t count;
    uint64_t buffer_offset; /* where the buffer begins in the file */
    char *texts;
};

/* `file` begins the file and reaches at least to the end of its header; `file_bytes` is the file's
 * size, `name` its name for the reason. ERR_MALFORMED: the offset or the tensor is in the reason.
 * ERR_NOMEM. Pure. */
enum err safetensors_parse(const char *name, struct slice file, uint64_t file_bytes,
                           struct safetensors *ret_header, struct reason *reason) MUST_USE;
void safetensors_release(struct safetensors *header); /* {0} is fine */
/* NULL: no such tensor. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *header,
                                                  const char *name);

/* Appends length and header. The tensors are put in writing order (alignment descending, then name)
 * and get their `begin` and `end`; the caller then writes their bytes in that order. */
enum err safetensors_put_header(struct buf *out, struct safetensors_tensor *tensors, size_t count,
                                struct reason *reason) MUST_USE;

#endif
