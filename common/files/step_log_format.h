/* What the two files of the step log share. For step_log*.c only. */
#ifndef ROOST_COMMON_FILES_STEP_LOG_FORMAT_H
#define ROOST_COMMON_FILES_STEP_LOG_FORMAT_H

#include "common/files/step_log.h"

/* A footer's line, appended. Its state's `newest` is not printed: the line ends with it. */
enum err step_log_print_footer(const struct step_log_footer *footer, struct buf *out) MUST_USE;
/* Of a closed segment's first row: its name has it. */
uint64_t step_log_segment_number(const char *path);
/* The SHA-256 of a part of a file. */
enum err step_log_digest_part(const char *path, uint64_t offset, uint64_t bytes,
                              struct digest *ret_digest, struct reason *reason) MUST_USE;

#endif
