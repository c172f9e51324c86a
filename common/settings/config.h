/* Settings: one table of fields drives the YAML parser, overrides, the printer and the reference.
 *
 * A settings struct is plain data. Its table names each field's dotted path, type, place, limits,
 * default and meaning. A value comes from, highest first: a flag (`--set train.steps=10`), the
 * environment (`ROOST_TRAIN_STEPS=10`), the file, the table's default. Only the value that counts
 * is checked. Unknown and repeated keys, wrong types and values outside the limits are errors whose
 * sentence begins with the place: "run.yaml:3: …", "--set train.steps=x: …" or
 * "ROOST_TRAIN_STEPS=x: …". Variables that no row names are ignored: several tables share one
 * environment. Numbers are read and written in the C locale, which a process must not leave.
 *
 * The YAML is a subset: one document, mappings, lists and scalars; no anchors, aliases or tags. It
 * is read with libyaml's event parser (only here), because each event carries its line. */
#ifndef ROOST_COMMON_SETTINGS_CONFIG_H
#define ROOST_COMMON_SETTINGS_CONFIG_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONFIG_FIELDS_MAX 96        /* rows of one table */
#define CONFIG_FILE_BYTES_MAX 65536 /* a larger file is refused; fits a message of the wire */
#define CONFIG_LIST_MAX 64

enum config_type {
    CONFIG_BOOL,    /* bool; written true or false */
    CONFIG_U32,     /* uint32_t */
    CONFIG_U64,     /* uint64_t */
    CONFIG_REAL,    /* double, finite */
    CONFIG_NAME,    /* an enum whose values count from 0 in the order of `names` */
    CONFIG_TEXT,    /* char[max + 1], ends in 0, printable UTF-8; min and max count bytes */
    CONFIG_U32S,    /* uint32_t[count_max], and a uint32_t count at count_offset */
    CONFIG_REALS,   /* double[count_max]; count_min equals count_max */
    CONFIG_RETIRED, /* a key of older files, which may still have the one value in `names`: stored
                       nowhere, printed nowhere, not in the reference */
};

/* One setting. Unused members are zero. */
struct config_field {
    const char *path; /* "train.steps"; two rows may share a path if their `when` exclude another */
    const char *help; /* one sentence for the reference */
    enum config_type type;
    unsigned tag;                  /* a number of the table owner's, about the field */
    size_t offset;                 /* in the settings struct */
    uint64_t min, max;             /* U32, U64, U32S entries; TEXT: bytes */
    double real_min, real_max;     /* REAL, REALS entries */
    bool real_below;               /* … and strictly below real_max */
    const char *const *names;      /* NAME, RETIRED: ends with NULL */
    uint32_t count_min, count_max; /* lists */
    size_t count_offset;           /* U32S */
    const char *initial; /* the default as a file would write it; NULL: stays zero, the owner's
                            checks complete or demand it */
    /* The field exists only while the NAME field `when_path` (an earlier row) has one of the
     * values of the bit mask; mask 0: always. A row that does not exist stays zero. */
    const char *when_path;
    uint32_t when_mask;
    const char *called; /* what other systems call it: words with spaces between, or NULL */
    bool late; /* readers of older versions do not know the key: it is printed only with another
                  value than its default; without one, not when it is an empty text */
};

struct config_table {
    const struct config_field *fields; /* at most CONFIG_FIELDS_MAX */
    size_t fields_count;
    size_t settings_bytes;
};

/* Values from outside the file; all borrowed. */
struct config_overrides {
    const char *const *flags; /* "train.steps=10", what follows --set; a later one wins */
    size_t flags_count;
    const char *const *environment; /* "NAME=value" lines ending with NULL (environ); or NULL */
    bool flags_alone; /* each follows its own flag instead: "log_level=info" of --log-level info */
};

enum config_source {
    CONFIG_DEFAULT,
    CONFIG_FILE,
    CONFIG_ENVIRONMENT,
    CONFIG_FLAG,
    CONFIG_FLAG_ALONE
};

#define CONFIG_ENVIRONMENT_PREFIX "ROOST_"

/* Where each field's value came from; borrows `file` and the overrides it was parsed with. */
struct config_places {
    const char *file;
    struct config_place {
        enum config_source source;
        uint32_t line;    /* FILE: of the value, from 1; DEFAULT: of its section, or 1 */
        const char *text; /* ENVIRONMENT, FLAG, FLAG_ALONE: the override as given */
    } places[CONFIG_FIELDS_MAX];
};

/* Fills *ret_settings (settings_bytes, all of it: unset members are zero bytes) and *ret_places
 * (may be NULL). ERR_INVALID with a sentence; ERR_NOMEM. Pure; any thread. */
enum err config_parse(const struct config_table *table, struct slice text, const char *file,
                      const struct config_overrides *overrides, void *ret_settings,
                      struct config_places *ret_places, struct reason *reason) MUST_USE;

/* What the environment ("NAME=value" lines ending with NULL) sets `path` to; NULL: nothing. */
const char *config_environment(const char *const *environment, const char *path);

/* What came of the path that a setting names, as an error of the setting: ERR_INVALID where it is
 * not there, is something else or holds something else, which starting again does not mend. */
enum err config_path_error(enum err err);

/* The setting that a line of the environment was meant for, whose name is a slip of the finger away
 * from the variable's; NULL: it is a setting, or near none: others may use the prefix, too. */
const char *config_meant(const struct config_table *table, const char *line);

/* The row of `path` that exists in these settings; fields_count: none. */
size_t config_find(const struct config_table *table, const void *settings, const char *path);

/* An owner's cross-field complaint about `path` and `other` (which may be NULL): the sentence
 * begins with the place of the one that was set by the higher source; returns ERR_INVALID. */
enum err config_complain(const struct config_table *table, const void *settings,
                         const struct config_places *places, const char *path, const char *other,
                         struct reason *reason, const char *format, ...) PRINTF_LIKE(7, 8);

/* All fields that exist, without RETIRED, as YAML: config_parse() of the text gives the same
 * settings. */
enum err config_print(const struct config_table *table, const void *settings,
                      struct buf *buf) MUST_USE;
/* One field's value as a file would write it ("[2, 100, 3]"). */
enum err config_print_value(const struct config_field *field, const void *settings,
                            struct buf *buf) MUST_USE;
/* The values that a field may have: "an integer from 1 to 10". */
enum err config_print_limits(const struct config_field *field, struct buf *buf) MUST_USE;
/* A Markdown table of every field but RETIRED: key, default, limits, meaning. */
enum err config_print_reference(const struct config_table *table, struct buf *buf) MUST_USE;

#endif
