/* A table of fields, applied: which source counts, which values are allowed, where a value was
 * set. */
#include "common/settings/config.h"

#include "common/scoped.h"
#include "common/settings/config_guess.h"
#include "common/settings/config_short.h"
#include "common/settings/config_yaml.h"
#include "common/slip.h"
#include "common/utf8.h"

#include <ctype.h>
#include <stdarg.h>
#include <string.h>

struct reading {
    const struct config_table *table;
    const char *file;
    const struct config_overrides *overrides;
    const struct config_document *document;
    uint8_t *settings;
    struct config_places *places;
    struct reason *reason;
};

/* One source's value of one field. */
struct config_value {
    struct config_place place;
    enum config_yaml_kind kind;
    const struct config_item *items;
    uint32_t count;
    struct config_item split[CONFIG_LIST_MAX]; /* the items of text that came from outside a file */
};

SCOPED_FREE(struct config_document, config_document_free)

static enum err check_known(struct reading *reading);
static enum err check_exist(struct reading *reading);
static enum err assign_all(struct reading *reading);

/* A name may have a number beside it: train.recompute and train.recompute_every. */
static void expand_short(const struct config_table *table, struct config_document *document)
{
    for (size_t i = 0; i < table->fields_count; i++) {
        const struct config_field *name = &table->fields[i];
        size_t bytes = strlen(name->path);
        for (size_t j = 0; name->type == CONFIG_NAME && j < table->fields_count; j++)
            if (strncmp(table->fields[j].path, name->path, bytes) == 0 &&
                table->fields[j].path[bytes] == '_')
                config_short_expand(document, name->path, table->fields[j].path);
    }
}

enum err config_parse(const struct config_table *table, struct slice text, const char *file,
                      const struct config_overrides *overrides, void *ret_settings,
                      struct config_places *ret_places, struct reason *reason)
{
    check(table->fields_count <= CONFIG_FIELDS_MAX);
    if (text.bytes > CONFIG_FILE_BYTES_MAX)
        return reason_set(reason, ERR_INVALID, "%s:1: longer than %d bytes", file,
                          CONFIG_FILE_BYTES_MAX);
    static const struct config_overrides none = {0};
    scoped(config_document_free_scoped) struct config_document *document = NULL;
    TRY(config_yaml_read(text, file, &document, reason));
    expand_short(table, document);
    scoped(free_scoped) uint8_t *settings = calloc(1, table->settings_bytes);
    if (settings == NULL)
        return ERR_NOMEM;
    struct config_places places = {.file = file};
    struct reading reading = {
        .table = table,
        .file = file,
        .overrides = overrides != NULL ? overrides : &none,
        .document = document,
        .settings = settings,
        .places = &places,
        .reason = reason,
    };
    TRY(check_known(&reading));
    TRY(assign_all(&reading));
    TRY(check_exist(&reading));
    memcpy(ret_settings, settings, table->settings_bytes);
    if (ret_places != NULL)
        *ret_places = places;
    return ERR_OK;
}

/* ---- which rows exist ---- */

static bool exists(const struct config_table *table, const void *settings,
                   const struct config_field *field)
{
    if (field->when_mask == 0)
        return true;
    size_t gate = config_find(table, settings, field->when_path);
    if (gate == table->fields_count)
        return false;
    uint32_t value;
    memcpy(&value, (const uint8_t *)settings + table->fields[gate].offset, sizeof value);
    check(table->fields[gate].type == CONFIG_NAME && value < 32);
    return (field->when_mask >> value & 1) != 0;
}

size_t config_find(const struct config_table *table, const void *settings, const char *path)
{
    for (size_t i = 0; i < table->fields_count; i++)
        if (strcmp(table->fields[i].path, path) == 0 && exists(table, settings, &table->fields[i]))
            return i;
    return table->fields_count;
}

/* Any row of that path, existing or not; NULL: none. */
static const struct config_field *row_of(const struct config_table *table, const char *path,
                                         size_t path_bytes)
{
    for (size_t i = 0; i < table->fields_count; i++) {
        const char *candidate = table->fields[i].path;
        if (strncmp(candidate, path, path_bytes) == 0 && candidate[path_bytes] == 0)
            return &table->fields[i];
    }
    return NULL;
}

static bool is_inside(const char *path, const char *section)
{
    size_t bytes = strlen(section);
    return strncmp(path, section, bytes) == 0 && path[bytes] == '.';
}

static bool is_section(const struct config_table *table, const char *path)
{
    for (size_t i = 0; i < table->fields_count; i++)
        if (is_inside(table->fields[i].path, path))
            return true;
    return false;
}

/* ---- saying what is wrong ---- */

/* The bytes of the character that begins `text`, when a person can see it and the wire takes it: 0
 * for what is not plain (utf8.h), byte order marks and non-characters. */
static size_t printable(const char *text, size_t bytes)
{
    static const char *const unseen[] = {"\xef\xbb\xbf", "\xef\xbf\xbe", "\xef\xbf\xbf"};
    size_t length = utf8_plain_length((struct slice){(const uint8_t *)text, bytes});
    for (size_t i = 0; length == 3 && i < sizeof unseen / sizeof unseen[0]; i++)
        if (memcmp(text, unseen[i], 3) == 0)
            return 0;
    return length;
}

struct shown {
    char text[96];
};

/* Foreign text for a sentence: printable, and not too much of it. */
static struct shown show(const char *text, size_t bytes)
{
    struct shown shown = {{0}};
    size_t used = 0;
    for (size_t i = 0; i < bytes;) {
        size_t length = printable(text + i, bytes - i);
        size_t wanted = length != 0 ? length : 1;
        if (used + wanted > sizeof shown.text - 4) {
            memcpy(shown.text + used, "...", 4);
            break;
        }
        if (length != 0)
            memcpy(shown.text + used, text + i, length);
        else
            shown.text[used] = '?';
        used += wanted;
        i += wanted;
    }
    return shown;
}

struct where {
    char text[256];
};

static struct where where_of(const char *file, const struct config_place *place)
{
    static const char *const before[] = {
        [CONFIG_ENVIRONMENT] = "", [CONFIG_FLAG] = "--set ", [CONFIG_FLAG_ALONE] = "--"};
    struct where where;
    if (place->source < CONFIG_ENVIRONMENT) {
        snprintf(where.text, sizeof where.text, "%.200s:%u", file, place->line);
        return where;
    }
    snprintf(where.text, sizeof where.text, "%s%s", before[place->source],
             show(place->text, strlen(place->text)).text);
    for (char *c = where.text; place->source == CONFIG_FLAG_ALONE && *c != 0 && *c != '='; c++)
        *c = *c == '_' ? '-' : *c;
    return where;
}

static struct config_place flag_place(const struct reading *reading, const char *flag)
{
    bool alone = reading->overrides->flags_alone;
    return (struct config_place){alone ? CONFIG_FLAG_ALONE : CONFIG_FLAG, 0, flag};
}

static enum err wrong_limits(struct reading *reading, const struct config_field *field,
                             const struct config_place *place, const char *is)
{
    scoped(buf_release) struct buf limits = {0};
    TRY(config_print_limits(field, &limits));
    return reason_set(reading->reason, ERR_INVALID, "%s: %s must be %s, not %s",
                      where_of(reading->file, place).text, field->path, (const char *)limits.data,
                      is);
}

static bool is_word(const struct config_item *item, const char *word)
{
    return item->bytes == strlen(word) && memcmp(item->text, word, item->bytes) == 0;
}

/* YAML's nothing. */
static bool is_null(const struct config_item *item)
{
    return item->plain && (item->bytes == 0 || is_word(item, "~") || is_word(item, "null"));
}

static enum err wrong(struct reading *reading, const struct config_field *field,
                      const struct config_place *place, const struct config_item *item)
{
    struct config_place at = *place;
    if (at.source == CONFIG_FILE)
        at.line = item->line;
    if (is_null(item))
        return reason_set(reading->reason, ERR_INVALID, "%s: %s has no value",
                          where_of(reading->file, &at).text, field->path);
    char is[128];
    snprintf(is, sizeof is, "\"%s\"", show(item->text, item->bytes).text);
    return wrong_limits(reading, field, &at, is);
}

static enum err unknown(struct reading *reading, const struct config_place *place, const char *key)
{
    struct config_guess guess = config_guess(key);
    for (size_t i = 0; i < reading->table->fields_count; i++) {
        const struct config_field *field = &reading->table->fields[i];
        if (field->type != CONFIG_RETIRED)
            config_guess_try(&guess,
                             &(struct config_known){field->path, field->help, field->called});
    }
    bool guessed = guess.path[0] != 0;
    return reason_set(reading->reason, ERR_INVALID, "%s: unknown key %s%s%s%s",
                      where_of(reading->file, place).text, show(key, strlen(key)).text,
                      guessed ? " (did you mean " : "", guess.path, guessed ? "?)" : "");
}

enum err config_complain(const struct config_table *table, const void *settings,
                         const struct config_places *places, const char *path, const char *other,
                         struct reason *reason, const char *format, ...)
{
    size_t row = config_find(table, settings, path);
    check(row < table->fields_count);
    struct config_place place = places->places[row];
    size_t other_row = other != NULL ? config_find(table, settings, other) : table->fields_count;
    if (other_row < table->fields_count && places->places[other_row].source > place.source)
        place = places->places[other_row];
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return reason_set(reason, ERR_INVALID, "%s: %s", where_of(places->file, &place).text, sentence);
}

/* ---- before and after assigning: keys that no row names, or none that exists ---- */

static enum err check_entry(struct reading *reading, const struct config_entry *entry)
{
    struct config_place place = {CONFIG_FILE, entry->line, NULL};
    const struct config_field *field = row_of(reading->table, entry->path, strlen(entry->path));
    if (is_section(reading->table, entry->path)) {
        bool empty = entry->kind == CONFIG_YAML_SCALAR &&
                     is_null(&reading->document->items[entry->item_first]);
        if (entry->kind == CONFIG_YAML_SECTION || empty)
            return ERR_OK;
        return reason_set(reading->reason, ERR_INVALID,
                          "%s:%u: %s must be a mapping of keys to values", reading->file,
                          entry->line, entry->path);
    }
    if (field == NULL)
        return unknown(reading, &place, entry->path);
    if (entry->kind == CONFIG_YAML_SECTION)
        return wrong_limits(reading, field, &place, "a mapping");
    return ERR_OK;
}

static size_t key_bytes(const char *flag)
{
    return strcspn(flag, "=");
}

static enum err check_known(struct reading *reading)
{
    for (uint32_t i = 0; i < reading->document->entries_count; i++)
        TRY(check_entry(reading, &reading->document->entries[i]));
    for (size_t i = 0; i < reading->overrides->flags_count; i++) {
        const char *flag = reading->overrides->flags[i];
        struct config_place place = flag_place(reading, flag);
        size_t bytes = key_bytes(flag);
        if (flag[bytes] == 0)
            return reason_set(reading->reason, ERR_INVALID, "%s: must be key=value",
                              where_of(reading->file, &place).text);
        char key[CONFIG_YAML_PATH_BYTES];
        snprintf(key, sizeof key, "%.*s", (int)(bytes < sizeof key ? bytes : sizeof key), flag);
        if (row_of(reading->table, flag, bytes) == NULL)
            return unknown(reading, &place, key);
    }
    return ERR_OK;
}

/* The value of `NAME=value` when the line's name is the field's, else NULL. */
static const char *environment_value(const char *line, const char *path)
{
    size_t prefix = strlen(CONFIG_ENVIRONMENT_PREFIX);
    if (strncmp(line, CONFIG_ENVIRONMENT_PREFIX, prefix) != 0)
        return NULL;
    line += prefix;
    for (; *path != 0; path++, line++) {
        char wanted = *path == '.' ? '_' : *path;
        if (wanted >= 'a' && wanted <= 'z')
            wanted = (char)(wanted - 'a' + 'A');
        if (*line != wanted)
            return NULL;
    }
    return *line == '=' ? line + 1 : NULL;
}

const char *config_environment(const char *const *environment, const char *path)
{
    const char *value = NULL;
    for (; value == NULL && *environment != NULL; environment++)
        value = environment_value(*environment, path);
    return value;
}

enum err config_path_error(enum err err)
{
    return err == ERR_NOT_FOUND || err == ERR_EXISTS || err == ERR_MALFORMED ? ERR_INVALID : err;
}

/* "train_steps" of "ROOST_TRAIN_STEPS=10"; "": it is none of ours. */
static void own_name(const char *line, char name[static CONFIG_YAML_PATH_BYTES])
{
    size_t prefix = strlen(CONFIG_ENVIRONMENT_PREFIX);
    bool ours = strncmp(line, CONFIG_ENVIRONMENT_PREFIX, prefix) == 0;
    snprintf(name, CONFIG_YAML_PATH_BYTES, "%.*s", ours ? (int)strcspn(line + prefix, "=") : 0,
             ours ? line + prefix : "");
    for (char *at = name; *at != 0; at++)
        *at = (char)tolower((unsigned char)*at);
}

/* A path as it stands in a variable's name. */
static void flat_path(const char *path, char name[static CONFIG_YAML_PATH_BYTES])
{
    snprintf(name, CONFIG_YAML_PATH_BYTES, "%s", path);
    for (char *dot = name; (dot = strchr(dot, '.')) != NULL;)
        *dot = '_';
}

const char *config_meant(const struct config_table *table, const char *line)
{
    char name[CONFIG_YAML_PATH_BYTES], known[CONFIG_YAML_PATH_BYTES];
    const char *meant = NULL;
    size_t least = SLIP_MAX;
    own_name(line, name);
    for (size_t i = 0; i < table->fields_count && least > 0; i++) {
        flat_path(table->fields[i].path, known);
        size_t apart = slip_distance(name, known);
        if (apart < least && table->fields[i].type != CONFIG_RETIRED) {
            least = apart;
            meant = table->fields[i].path;
        }
    }
    return least == 0 ? NULL : meant;
}

static enum err not_now(struct reading *reading, const struct config_place *place, const char *path,
                        size_t path_bytes)
{
    const struct config_field *field = row_of(reading->table, path, path_bytes);
    char known[CONFIG_YAML_PATH_BYTES];
    snprintf(known, sizeof known, "%s", field->path);
    if (config_find(reading->table, reading->settings, known) < reading->table->fields_count)
        return ERR_OK;
    size_t gate = config_find(reading->table, reading->settings, field->when_path);
    if (gate == reading->table->fields_count)
        return reason_set(reading->reason, ERR_INVALID, "%s: %s is no setting without %s",
                          where_of(reading->file, place).text, known, field->when_path);
    scoped(buf_release) struct buf value = {0};
    TRY(config_print_value(&reading->table->fields[gate], reading->settings, &value));
    return reason_set(reading->reason, ERR_INVALID, "%s: %s is no setting when %s is %s",
                      where_of(reading->file, place).text, known, field->when_path,
                      (const char *)value.data);
}

/* A key that belongs to another kind than the chosen one is as wrong as an unknown one. */
static enum err check_exist(struct reading *reading)
{
    for (uint32_t i = 0; i < reading->document->entries_count; i++) {
        const struct config_entry *entry = &reading->document->entries[i];
        struct config_place place = {CONFIG_FILE, entry->line, NULL};
        if (!is_section(reading->table, entry->path))
            TRY(not_now(reading, &place, entry->path, strlen(entry->path)));
    }
    for (size_t i = 0; i < reading->overrides->flags_count; i++) {
        const char *flag = reading->overrides->flags[i];
        struct config_place place = flag_place(reading, flag);
        TRY(not_now(reading, &place, flag, key_bytes(flag)));
    }
    const char *const *environment = reading->overrides->environment;
    for (; environment != NULL && *environment != NULL; environment++)
        for (size_t i = 0; i < reading->table->fields_count; i++) {
            const char *path = reading->table->fields[i].path;
            struct config_place place = {CONFIG_ENVIRONMENT, 0, *environment};
            if (environment_value(*environment, path) != NULL)
                TRY(not_now(reading, &place, path, strlen(path)));
        }
    return ERR_OK;
}

/* ---- one value of one type ---- */

static bool parse_u64(const struct config_item *item, uint64_t *ret_number)
{
    uint64_t number = 0;
    if (!item->plain || item->bytes == 0 || (item->bytes > 1 && item->text[0] == '0'))
        return false; /* 010 is ten to some and eight to others */
    for (size_t i = 0; i < item->bytes; i++) {
        unsigned digit = (unsigned)(item->text[i] - '0');
        if (item->text[i] < '0' || digit > 9 || number > (UINT64_MAX - digit) / 10)
            return false;
        number = number * 10 + digit;
    }
    *ret_number = number;
    return true;
}

static size_t digits(const char *text)
{
    return strspn(text, "0123456789");
}

/* [+-] digits [. digits] [e [+-] digits]: not all that strtod takes, and no more. */
static bool is_real(const char *text)
{
    text += *text == '+' || *text == '-';
    size_t whole = digits(text);
    text += whole;
    if (*text == '.') {
        text++;
        size_t fraction = digits(text);
        text += fraction;
        whole += fraction;
    }
    if (whole == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '+' || *text == '-';
        size_t exponent = digits(text);
        if (exponent == 0)
            return false;
        text += exponent;
    }
    return *text == 0;
}

static bool parse_real(const struct config_item *item, double *ret_number)
{
    char text[64];
    if (!item->plain || item->bytes == 0 || item->bytes >= sizeof text ||
        memchr(item->text, 0, item->bytes) != NULL)
        return false;
    memcpy(text, item->text, item->bytes);
    text[item->bytes] = 0;
    if (!is_real(text))
        return false;
    /* -0 is 0; a number that overflows is beyond every limit. */
    *ret_number = strtod(text, NULL) + 0.0;
    return true;
}

static bool assign_bool(const struct config_field *field, const struct config_item *item, void *out)
{
    (void)field;
    bool yes = is_word(item, "true");
    if (!item->plain || (!yes && !is_word(item, "false")))
        return false;
    memcpy(out, &yes, sizeof yes);
    return true;
}

static bool assign_u64(const struct config_field *field, const struct config_item *item, void *out)
{
    uint64_t number;
    if (!parse_u64(item, &number) || number < field->min || number > field->max)
        return false;
    memcpy(out, &number, sizeof number);
    return true;
}

static bool assign_u32(const struct config_field *field, const struct config_item *item, void *out)
{
    uint64_t number;
    check(field->max <= UINT32_MAX);
    if (!assign_u64(field, item, &number))
        return false;
    uint32_t narrow = (uint32_t)number;
    memcpy(out, &narrow, sizeof narrow);
    return true;
}

static bool assign_real(const struct config_field *field, const struct config_item *item, void *out)
{
    double number;
    if (!parse_real(item, &number) || number < field->real_min || number > field->real_max ||
        (field->real_below && number >= field->real_max))
        return false;
    memcpy(out, &number, sizeof number);
    return true;
}

static bool assign_name(const struct config_field *field, const struct config_item *item, void *out)
{
    for (uint32_t i = 0; field->names[i] != NULL; i++)
        if (is_word(item, field->names[i])) {
            memcpy(out, &i, sizeof i); /* an enum is an unsigned int here */
            return true;
        }
    return false;
}

static bool assign_nothing(const struct config_field *field, const struct config_item *item,
                           void *out)
{
    (void)out;
    return is_word(item, field->names[0]);
}

static bool assign_text(const struct config_field *field, const struct config_item *item, void *out)
{
    if (is_null(item) || item->bytes < field->min || item->bytes > field->max)
        return false;
    size_t length;
    for (size_t i = 0; i < item->bytes; i += length) {
        length = printable(item->text + i, item->bytes - i);
        if (length == 0)
            return false;
    }
    memcpy(out, item->text, item->bytes);
    return true;
}

struct assigner {
    bool (*assign)(const struct config_field *field, const struct config_item *item, void *out);
    size_t bytes; /* of a list's entry */
    bool list;
};

static const struct assigner assigners[] = {
    [CONFIG_BOOL] = {assign_bool, 0, false},
    [CONFIG_U32] = {assign_u32, 0, false},
    [CONFIG_U64] = {assign_u64, 0, false},
    [CONFIG_REAL] = {assign_real, 0, false},
    [CONFIG_NAME] = {assign_name, 0, false},
    [CONFIG_TEXT] = {assign_text, 0, false},
    [CONFIG_U32S] = {assign_u32, sizeof(uint32_t), true},
    [CONFIG_REALS] = {assign_real, sizeof(double), true},
    [CONFIG_RETIRED] = {assign_nothing, 0, false},
};

static enum err assign_list(struct reading *reading, const struct config_field *field,
                            const struct config_value *value)
{
    const struct assigner *assigner = &assigners[field->type];
    char is[64];
    if (value->kind != CONFIG_YAML_LIST)
        return wrong(reading, field, &value->place, &value->items[0]);
    snprintf(is, sizeof is, "a list of %u", value->count);
    if (value->count < field->count_min || value->count > field->count_max)
        return wrong_limits(reading, field, &value->place, is);
    for (uint32_t i = 0; i < value->count; i++) {
        uint8_t *out = reading->settings + field->offset + i * assigner->bytes;
        if (!assigner->assign(field, &value->items[i], out))
            return wrong(reading, field, &value->place, &value->items[i]);
    }
    if (field->type == CONFIG_U32S)
        memcpy(reading->settings + field->count_offset, &value->count, sizeof value->count);
    return ERR_OK;
}

static enum err assign(struct reading *reading, const struct config_field *field,
                       const struct config_value *value)
{
    if (assigners[field->type].list)
        return assign_list(reading, field, value);
    if (value->kind == CONFIG_YAML_LIST)
        return wrong_limits(reading, field, &value->place, "a list");
    if (!assigners[field->type].assign(field, value->items, reading->settings + field->offset))
        return wrong(reading, field, &value->place, value->items);
    return ERR_OK;
}

/* ---- the source that counts ---- */

static struct config_item trimmed(const char *text, size_t bytes)
{
    while (bytes > 0 && text[0] == ' ') {
        text++;
        bytes--;
    }
    while (bytes > 0 && text[bytes - 1] == ' ')
        bytes--;
    return (struct config_item){.text = text, .bytes = bytes, .plain = true};
}

/* A value from outside a file: verbatim, except that "[a, b]" is a list where one is wanted. A text
 * is as if in quotation marks: nothing, and the word null, are texts. */
static void split(struct config_value *value, const struct config_field *field, const char *text)
{
    value->kind = CONFIG_YAML_SCALAR;
    value->items = value->split;
    value->count = 1;
    value->split[0] = (struct config_item){
        .text = text, .bytes = strlen(text), .plain = field->type != CONFIG_TEXT};
    struct config_item all = trimmed(text, strlen(text));
    if (!assigners[field->type].list || all.bytes < 2 || all.text[0] != '[' ||
        all.text[all.bytes - 1] != ']')
        return;
    const char *at = all.text + 1, *end = all.text + all.bytes - 1;
    value->kind = CONFIG_YAML_LIST;
    for (value->count = 0; value->count < CONFIG_LIST_MAX; at++) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma != NULL ? comma : end;
        value->split[value->count++] = trimmed(at, (size_t)(stop - at));
        at = stop;
        if (stop == end)
            return;
    }
    value->count++; /* more than any list may hold */
}

static bool find_override(struct reading *reading, const struct config_field *field,
                          struct config_value *value)
{
    const struct config_overrides *overrides = reading->overrides;
    for (size_t i = overrides->flags_count; i-- > 0;) {
        const char *flag = overrides->flags[i];
        size_t bytes = key_bytes(flag);
        if (strncmp(flag, field->path, bytes) == 0 && field->path[bytes] == 0) {
            value->place = flag_place(reading, flag);
            split(value, field, flag + bytes + 1);
            return true;
        }
    }
    const char *const *line = overrides->environment;
    for (; line != NULL && *line != NULL; line++) {
        const char *text = environment_value(*line, field->path);
        if (text != NULL) {
            value->place = (struct config_place){CONFIG_ENVIRONMENT, 0, *line};
            split(value, field, text);
            return true;
        }
    }
    return false;
}

/* The line that an error about an unset key points at. */
static uint32_t section_line(const struct config_document *document, const char *path)
{
    uint32_t line = 1;
    for (uint32_t i = 0; i < document->entries_count; i++)
        if (is_inside(path, document->entries[i].path))
            line = document->entries[i].line;
    return line;
}

/* False: no source sets the field, and it has no fixed default. */
static bool find_value(struct reading *reading, const struct config_field *field,
                       struct config_value *value)
{
    const struct config_document *document = reading->document;
    if (find_override(reading, field, value))
        return true;
    for (uint32_t i = 0; i < document->entries_count; i++) {
        const struct config_entry *entry = &document->entries[i];
        if (strcmp(entry->path, field->path) != 0)
            continue;
        value->place = (struct config_place){CONFIG_FILE, entry->line, NULL};
        value->kind = entry->kind;
        value->items = &document->items[entry->item_first];
        value->count = entry->items_count;
        return true;
    }
    uint32_t line = section_line(document, field->path);
    value->place = (struct config_place){CONFIG_DEFAULT, line, NULL};
    if (field->initial != NULL)
        split(value, field, field->initial);
    return field->initial != NULL;
}

static enum err assign_all(struct reading *reading)
{
    for (size_t i = 0; i < reading->table->fields_count; i++) {
        const struct config_field *field = &reading->table->fields[i];
        struct config_value value = {0};
        if (!exists(reading->table, reading->settings, field))
            continue;
        check(field->count_max <= CONFIG_LIST_MAX);
        bool found = find_value(reading, field, &value);
        reading->places->places[i] = value.place;
        if (!found)
            continue;
        enum err err = assign(reading, field, &value);
        check(err == ERR_OK || value.place.source != CONFIG_DEFAULT);
        TRY(err);
    }
    return ERR_OK;
}
