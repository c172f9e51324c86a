/* Text from a checkpoint: what `roost-worker --sample DIR` does, without a cluster. */
#ifndef ROOST_WORKER_TEXT_H
#define ROOST_WORKER_TEXT_H

#include "worker/sample.h"

/* Loads the newest checkpoint in `path` (or that one checkpoint), and writes prompt and text to
 * stdout. Errors of the checkpoint name file and offset. Where the run's OpenBLAS core type does not
 * open, it computes with this machine's, and says so on stderr. */
enum err text_write(const char *path, const char *prompt, const struct sample_options *options,
                    struct reason *reason) MUST_USE;

#endif
