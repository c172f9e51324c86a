/* TensorBoard event files: TFRecords of Event messages (tensorboard's record_writer.py and
 * event.proto). Scalars only. */
#ifndef ROOST_COMMON_FILES_TFEVENTS_H
#define ROOST_COMMON_FILES_TFEVENTS_H

#include "common/file.h"

/* Appends one record. Pure. */
enum err tfevents_put_version(struct buf *out, double wall_s) MUST_USE; /* the first of a file */
struct tfevents_scalar {
    double wall_s;
    uint64_t step;
    const char *tag;
    float value;
};
enum err tfevents_put_scalar(struct buf *out, const struct tfevents_scalar *scalar) MUST_USE;

/* An event file in `dir`, named as TensorBoard wants it, with its version record. One thread. */
struct tfevents {
    struct file_log log;
};
enum err tfevents_open(const struct file_ops *ops, const char *dir, double wall_s,
                       struct tfevents *ret_events, struct reason *reason) MUST_USE;
void tfevents_release(struct tfevents *events); /* {0} is fine */

#endif
