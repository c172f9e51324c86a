/* Data sets: a fixed number of samples that any process with the same files reads alike.
 *
 * `text` and `tokens` are one stream of tokens, the files behind each other in the order of their
 * resolved paths; sample i is the T + 1 tokens from i * T, T inputs and the T targets one further.
 * `spiral` is cs231n's set, generated from a seed, its classes mixed. The last
 * ceil(fraction * samples) samples of the stream are held out for validation. The digest is SHA-256
 * of the files' bytes in stream order (`cat FILES | sha256sum`), of a generated set of its points.
 * Read-only after opening: any thread. */
#ifndef ROOST_COMMON_DATA_DATA_H
#define ROOST_COMMON_DATA_DATA_H

#include "common/data/spiral.h"
#include "common/digest.h"
#include "common/scoped.h"

#include <stdatomic.h>

enum data_kind { DATA_TEXT, DATA_TOKENS, DATA_SPIRAL };
enum data_split { DATA_TRAIN, DATA_VALIDATION };

struct data_settings {
    enum data_kind kind;
    /* text, tokens: files, folders (their files, neither hidden ones nor those of folders inside)
     * or patterns. Links are followed; a file reached twice counts once. */
    const char *const *paths;
    size_t path_count;
    uint32_t context;    /* T */
    uint32_t vocabulary; /* every token is smaller; text needs 256 */
    double validation;   /* held-out fraction, 0 <= fraction < 1 */
    struct spiral_settings spiral;
    const atomic_bool *stop; /* files are not read on when another thread sets it; NULL: they are */
};

struct data;

/* Opens, checks every token, computes the digest (one pass over the bytes). The reason names file
 * and offset. ERR_INVALID: a setting, or too few tokens for one training sample. ERR_MALFORMED: a
 * file's content. ERR_CANCELLED: it was stopped. Else the errors of file.h. */
enum err data_open(const struct data_settings *settings, struct data **ret_data,
                   struct reason *reason) MUST_USE;
void data_free(struct data *data);
SCOPED_FREE(struct data, data_free)

uint64_t data_count(const struct data *data, enum data_split split);
const struct digest *data_digest(const struct data *data);
/* Nats a token if each were drawn alone: what a model must beat. text only. Stopped (`stop` as in the
 * settings): of what was read. */
double data_entropy(const struct data *data, const atomic_bool *stop);

/* Sample `index` < data_count() of text or tokens: inputs (T), targets (T). ERR_DATA_SET: somebody
 * wrote into the file since it was opened, and a token is not in the vocabulary any more; names the
 * file. */
enum err data_sample_tokens(const struct data *data, enum data_split split, uint64_t index,
                            int32_t *ret_inputs, int32_t *ret_targets,
                            struct reason *reason) MUST_USE;
/* Sample `index` of spiral. */
void data_sample_point(const struct data *data, enum data_split split, uint64_t index,
                       float ret_point[static 2], int32_t *ret_label);

#endif
