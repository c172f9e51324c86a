/* A spec on its way from the table to its rules. For spec*.c only. */
#ifndef ROOST_COMMON_SETTINGS_SPEC_CORE_H
#define ROOST_COMMON_SETTINGS_SPEC_CORE_H

#include "common/settings/config.h"

enum { SPEC_PIECES_MAX = 64 };
#define SPEC_SAMPLES_MAX (UINT64_C(1) << 62)

struct spec;

struct draft {
    const struct config_table *table;
    struct spec *spec;
    struct config_places places;
    struct reason *reason;
};

#define COMPLAIN(draft, path, other, ...)                                                          \
    config_complain((draft)->table, (draft)->spec, &(draft)->places, path, other, (draft)->reason, \
                    __VA_ARGS__)

/* By enum spec_model_kind and enum spec_data_kind. */
extern const char *const spec_model_kinds[], *const spec_data_kinds[];

/* Lines of a program's rows, without empty ones. */
uint32_t spec_program_lines(const char *rows);

/* What the table cannot say, because it is about several settings. The first rule that is broken
 * complains. */
enum err spec_rules(struct draft *draft) MUST_USE;

#endif
