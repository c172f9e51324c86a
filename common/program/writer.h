/* A program under way: rows are added to its places one by one. */
#ifndef ROOST_COMMON_PROGRAM_WRITER_H
#define ROOST_COMMON_PROGRAM_WRITER_H

#include "common/program/program.h"

struct writer {
    struct program program; /* places without rows yet */
    struct buf *rows;       /* of each place */
    enum err err;           /* the first that happened; nothing is added after it */
};

/* A program like `about`, without rows. ERR_NOMEM. */
enum err writer_init(struct writer *writer, const struct program *about) MUST_USE;
void writer_add(struct writer *writer, uint32_t place, struct program_row row);
/* The row for each unit of run `row.unit`: forwards go upwards, all else downwards. */
void writer_add_run(struct writer *writer, uint32_t place, const uint32_t *cuts,
                    struct program_row row);
/* The program; the writer is empty afterwards, also after an error. ERR_NOMEM, also of an earlier
 * writer_add(). */
enum err writer_finish(struct writer *writer, struct program *ret_program) MUST_USE;

#endif
