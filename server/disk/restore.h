/* Initial weights from a safetensors file with Hugging Face's names: fp32, fp16 or bf16, with or
 * without the prefix "transformer.". Causal masks, and a head that equals the token embedding, are
 * passed over. Where a config.json lies beside it, what no tensor shows must be the model's there. */
#ifndef ROOST_SERVER_DISK_RESTORE_H
#define ROOST_SERVER_DISK_RESTORE_H

#include "common/model/model.h"
#include "common/scoped.h"

struct restore;

/* Opens the file and finds a tensor for every exported parameter of the model, which must outlive
 * it. The reason names file and tensor: ERR_NOT_FOUND: it is missing; ERR_SPEC_DIFFERS: it has
 * another shape, or the model has no place for it; ERR_UNSUPPORTED: its numbers are of another
 * kind. Or config.json and its member: ERR_SPEC_DIFFERS; ERR_MALFORMED. */
enum err restore_open(const char *path, const struct model *model, struct restore **ret_restore,
                      struct reason *reason) MUST_USE;
/* The same, of the header only: a twin's values are not compared, which takes minutes where they are
 * large and far away. */
enum err restore_check(const char *path, const struct model *model, struct reason *reason) MUST_USE;
void restore_free(struct restore *restore); /* NULL is fine */
SCOPED_FREE(struct restore, restore_free)
/* A chunk's weights; padding and parameters that are not exported are 0. Any thread. */
void restore_chunk(const struct restore *restore, uint32_t chunk, float *out);

#endif
