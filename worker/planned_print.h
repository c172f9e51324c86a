/* Says what `roost program` has planned: as one JSON object on stdout, or the program there and what
 * it costs on stderr. */
#ifndef ROOST_WORKER_PLANNED_PRINT_H
#define ROOST_WORKER_PLANNED_PRINT_H

#include "worker/planned.h"

enum err planned_print_json(const struct planned_options *options,
                            const struct planned *planned) MUST_USE; /* ERR_NOMEM */
enum err planned_print_text(const struct planned_options *options,
                            const struct planned *planned) MUST_USE;

#endif
