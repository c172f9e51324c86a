/* A spec's file with the program's that it names (mesh.program), which travels in the spec. */
#ifndef ROOST_COMMON_PROGRAM_SPEC_FILE_H
#define ROOST_COMMON_PROGRAM_SPEC_FILE_H

#include "common/settings/flags.h"

enum { SPEC_FILE_PROGRAM_BYTES_MAX = 1 << 20 }; /* of a file; of its acts SPEC_ROWS_BYTES */

/* flags_read_spec(); where the spec names a program and has no rows, they are read and judged with the
 * model. `kept`: the run may have them from before, so that no file is needed. ERR_INVALID also: the
 * file cannot be read, or is no program of the run; the reason names it, place and row. */
enum err spec_file_read(const char *path, const struct flags_sets *sets, bool kept,
                        struct spec *ret_spec, struct reason *reason) MUST_USE;

#endif
