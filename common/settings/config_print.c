/* Settings back into YAML, and the table as a reference for people. */
#include "common/settings/config.h"

#include "common/scoped.h"

#include <string.h>

/* The shortest decimal that is read back as the same number. */
static enum err print_real(double number, struct buf *buf)
{
    char text[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof text, "%.*g", precision, number);
        if (strtod(text, NULL) == number)
            break;
    }
    return buf_printf(buf, "%s", text);
}

/* Plain where no YAML reader could take it for anything else, quoted otherwise. */
static enum err print_text(const char *text, struct buf *buf)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    bool letter =
        (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '/';
    if (letter && text[strspn(text, plain)] == 0 && strcmp(text, "null") != 0)
        return buf_printf(buf, "%s", text);
    TRY(buf_printf(buf, "\""));
    for (; *text != 0; text++)
        TRY(buf_printf(buf, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text));
    return buf_printf(buf, "\"");
}

static enum err print_list(const struct config_field *field, const uint8_t *settings,
                           struct buf *buf)
{
    uint32_t count = field->count_max;
    if (field->type == CONFIG_U32S)
        memcpy(&count, settings + field->count_offset, sizeof count);
    check(count <= field->count_max);
    TRY(buf_printf(buf, "["));
    for (uint32_t i = 0; i < count; i++) {
        TRY(buf_printf(buf, "%s", i == 0 ? "" : ", "));
        if (field->type == CONFIG_U32S) {
            uint32_t number;
            memcpy(&number, settings + field->offset + i * sizeof number, sizeof number);
            TRY(buf_printf(buf, "%u", number));
        } else {
            double number;
            memcpy(&number, settings + field->offset + i * sizeof number, sizeof number);
            TRY(print_real(number, buf));
        }
    }
    return buf_printf(buf, "]");
}

enum err config_print_value(const struct config_field *field, const void *settings, struct buf *buf)
{
    const uint8_t *place = (const uint8_t *)settings + field->offset;
    bool yes;
    uint32_t narrow;
    uint64_t wide;
    double real;
    switch (field->type) {
    case CONFIG_BOOL:
        memcpy(&yes, place, sizeof yes);
        return buf_printf(buf, "%s", yes ? "true" : "false");
    case CONFIG_U32:
        memcpy(&narrow, place, sizeof narrow);
        return buf_printf(buf, "%u", narrow);
    case CONFIG_U64:
        memcpy(&wide, place, sizeof wide);
        return buf_printf(buf, "%llu", (unsigned long long)wide);
    case CONFIG_REAL:
        memcpy(&real, place, sizeof real);
        return print_real(real, buf);
    case CONFIG_NAME:
        memcpy(&narrow, place, sizeof narrow);
        return buf_printf(buf, "%s", field->names[narrow]);
    case CONFIG_RETIRED:
        return buf_printf(buf, "%s", field->names[0]);
    case CONFIG_TEXT:
        return print_text((const char *)place, buf);
    default:
        return print_list(field, settings, buf);
    }
}

/* The lines "section:" that `path` needs after `before`; *ret_key: what is left of the path. */
static enum err print_sections(const char *before, const char *path, const char **ret_key,
                               struct buf *buf)
{
    int depth = 0;
    bool same = true;
    for (const char *dot; (dot = strchr(path, '.')) != NULL; path = dot + 1, depth++) {
        size_t bytes = (size_t)(dot - path) + 1;
        same = same && strncmp(before, path, bytes) == 0;
        if (same)
            before += bytes;
        else
            TRY(buf_printf(buf, "%*s%.*s:\n", 2 * depth, "", (int)bytes - 1, path));
    }
    *ret_key = path;
    return buf_printf(buf, "%*s", 2 * depth, "");
}

static enum err is_default(const struct config_field *field, const void *settings, bool *ret_is)
{
    scoped(buf_release) struct buf value = {0};
    const char *initial = field->initial != NULL ? field->initial : "\"\"";
    TRY(config_print_value(field, settings, &value));
    *ret_is = value.bytes == strlen(initial) && memcmp(value.data, initial, value.bytes) == 0;
    return ERR_OK;
}

enum err config_print(const struct config_table *table, const void *settings, struct buf *buf)
{
    const char *before = "";
    for (size_t i = 0; i < table->fields_count; i++) {
        const struct config_field *field = &table->fields[i];
        if (field->type == CONFIG_RETIRED || config_find(table, settings, field->path) != i)
            continue;
        bool left_out = false;
        if (field->late)
            TRY(is_default(field, settings, &left_out));
        if (left_out)
            continue;
        const char *key;
        TRY(print_sections(before, field->path, &key, buf));
        TRY(buf_printf(buf, "%s: ", key));
        TRY(config_print_value(field, settings, buf));
        TRY(buf_printf(buf, "\n"));
        before = field->path;
    }
    return ERR_OK;
}

static enum err print_real_limits(const struct config_field *field, struct buf *buf)
{
    TRY(buf_printf(buf, "from "));
    TRY(print_real(field->real_min, buf));
    TRY(buf_printf(buf, " %s ", field->real_below ? "to below" : "to"));
    return print_real(field->real_max, buf);
}

static enum err print_integer_limits(const struct config_field *field, struct buf *buf)
{
    return buf_printf(buf, "from %llu to %llu", (unsigned long long)field->min,
                      (unsigned long long)field->max);
}

enum err config_print_limits(const struct config_field *field, struct buf *buf)
{
    switch (field->type) {
    case CONFIG_BOOL:
        return buf_printf(buf, "true or false");
    case CONFIG_U32:
    case CONFIG_U64:
        TRY(buf_printf(buf, "an integer "));
        return print_integer_limits(field, buf);
    case CONFIG_REAL:
        TRY(buf_printf(buf, "a number "));
        return print_real_limits(field, buf);
    case CONFIG_NAME:
    case CONFIG_RETIRED:
        TRY(buf_printf(buf, "%s", field->names[1] == NULL ? "" : "one of "));
        for (uint32_t i = 0; field->names[i] != NULL; i++)
            TRY(buf_printf(buf, "%s%s", i == 0 ? "" : ", ", field->names[i]));
        return ERR_OK;
    case CONFIG_TEXT:
        return buf_printf(buf, "printable text of %llu to %llu bytes",
                          (unsigned long long)field->min, (unsigned long long)field->max);
    case CONFIG_U32S:
        TRY(buf_printf(buf, "a list of %u to %u integers ", field->count_min, field->count_max));
        return print_integer_limits(field, buf);
    default:
        TRY(buf_printf(buf, "a list of %u numbers ", field->count_max));
        return print_real_limits(field, buf);
    }
}

/* " (model.kind gpt)": when the row exists. */
static enum err print_when(const struct config_table *table, const struct config_field *field,
                           struct buf *buf)
{
    if (field->when_mask == 0)
        return ERR_OK;
    const struct config_field *gate = table->fields;
    while (strcmp(gate->path, field->when_path) != 0)
        gate++;
    TRY(buf_printf(buf, " (%s", field->when_path));
    const char *joint = " ";
    for (uint32_t i = 0; gate->names[i] != NULL; i++)
        if ((field->when_mask >> i & 1) != 0) {
            TRY(buf_printf(buf, "%s%s", joint, gate->names[i]));
            joint = ", ";
        }
    return buf_printf(buf, ")");
}

enum err config_print_reference(const struct config_table *table, struct buf *buf)
{
    TRY(buf_printf(buf, "| key | default | value | meaning |\n|---|---|---|---|\n"));
    for (size_t i = 0; i < table->fields_count; i++) {
        const struct config_field *field = &table->fields[i];
        if (field->type == CONFIG_RETIRED)
            continue;
        const char *tick = field->initial != NULL ? "`" : "";
        TRY(buf_printf(buf, "| `%s`", field->path));
        TRY(print_when(table, field, buf));
        TRY(buf_printf(buf, " | %s%s%s | ", tick, field->initial != NULL ? field->initial : "",
                       tick));
        TRY(config_print_limits(field, buf));
        TRY(buf_printf(buf, " | %s |\n", field->help));
    }
    return ERR_OK;
}
