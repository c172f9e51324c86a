/* libyaml's events, flattened. The only file that includes yaml.h. */
#include "common/settings/config_yaml.h"

#include "common/scoped.h"

#include <string.h>
#include <yaml.h>

struct reader {
    yaml_parser_t parser;
    const char *file;
    struct config_document *document;
    struct reason *reason;
    struct slice text;
};

static enum err read_root(struct reader *reader);

void config_document_free(struct config_document *document)
{
    if (document == NULL)
        return;
    buf_release(&document->pool);
    free(document);
}
SCOPED_FREE(struct config_document, config_document_free)

enum err config_yaml_read(struct slice text, const char *file,
                          struct config_document **ret_document, struct reason *reason)
{
    scoped(config_document_free_scoped) struct config_document *document =
        calloc(1, sizeof *document);
    if (document == NULL)
        return ERR_NOMEM;
    /* The longest growth is an escape of 2 bytes for a character of 3; each item ends in a 0. */
    document->pool.bytes_max = 2 * text.bytes + CONFIG_YAML_ITEMS_MAX;
    TRY(buf_reserve(&document->pool, document->pool.bytes_max));

    struct reader reader = {.file = file, .document = document, .reason = reason, .text = text};
    if (!yaml_parser_initialize(&reader.parser))
        return ERR_NOMEM;
    yaml_parser_set_encoding(&reader.parser, YAML_UTF8_ENCODING);
    const uint8_t *bytes = text.data != NULL ? text.data : (const uint8_t *)""; /* no file */
    yaml_parser_set_input_string(&reader.parser, bytes, text.bytes);
    enum err err = read_root(&reader);
    yaml_parser_delete(&reader.parser);
    TRY(err);
    *ret_document = document;
    document = NULL;
    return ERR_OK;
}

static uint32_t line_of(const yaml_mark_t *mark)
{
    return (uint32_t)mark->line + 1;
}

/* Bytes that are no UTF-8 have an offset instead of a mark. */
static uint32_t line_at(struct slice text, size_t offset)
{
    uint32_t line = 1;
    for (size_t i = 0; i < offset && i < text.bytes; i++)
        line += text.data[i] == '\n';
    return line;
}

static enum err next_event(struct reader *reader, yaml_event_t *ret_event)
{
    if (yaml_parser_parse(&reader->parser, ret_event))
        return ERR_OK;
    const yaml_parser_t *parser = &reader->parser;
    if (parser->error == YAML_MEMORY_ERROR)
        return ERR_NOMEM;
    if (parser->error == YAML_READER_ERROR)
        return reason_set(reader->reason, ERR_INVALID, "%s:%u: not YAML: %s", reader->file,
                          line_at(reader->text, parser->problem_offset), parser->problem);
    const char *context = parser->context != NULL ? parser->context : "";
    return reason_set(reader->reason, ERR_INVALID, "%s:%u: not YAML: %s%s%s", reader->file,
                      line_of(&parser->problem_mark), parser->problem, context[0] != 0 ? " " : "",
                      context);
}

static enum err refuse(struct reader *reader, const yaml_event_t *event, const char *what)
{
    return reason_set(reader->reason, ERR_INVALID, "%s:%u: %s", reader->file,
                      line_of(&event->start_mark), what);
}

/* What the subset leaves out of any node. */
static enum err check_node(struct reader *reader, const yaml_event_t *event)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    }
    if (event->type == YAML_ALIAS_EVENT || anchor != NULL)
        return refuse(reader, event, "anchors and aliases (& and *) are not supported");
    if (tag != NULL)
        return refuse(reader, event, "tags (!) are not supported");
    return ERR_OK;
}

static enum err add_item(struct reader *reader, const yaml_event_t *event)
{
    struct config_document *document = reader->document;
    size_t bytes = event->data.scalar.length;
    if (document->items_count == CONFIG_YAML_ITEMS_MAX ||
        bytes + 1 > document->pool.capacity - document->pool.bytes)
        return refuse(reader, event, "too many values");
    char *text = (char *)document->pool.data + document->pool.bytes;
    memcpy(text, event->data.scalar.value, bytes);
    text[bytes] = 0;
    document->pool.bytes += bytes + 1;
    document->items[document->items_count++] = (struct config_item){
        .text = text,
        .bytes = bytes,
        .line = line_of(&event->start_mark),
        .plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE,
    };
    return ERR_OK;
}

static bool is_word(const yaml_char_t *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (!(text[i] >= 'a' && text[i] <= 'z') && !(text[i] >= '0' && text[i] <= '9') &&
            text[i] != '_')
            return false;
    return bytes != 0 && bytes < CONFIG_YAML_PATH_BYTES;
}

/* A new entry "prefix.key"; no key twice. */
static enum err add_entry(struct reader *reader, const char *prefix, const yaml_event_t *key,
                          struct config_entry **ret_entry)
{
    if (key->type != YAML_SCALAR_EVENT || !is_word(key->data.scalar.value, key->data.scalar.length))
        return refuse(reader, key, "a key is a word of a-z, 0-9 and _");
    struct config_document *document = reader->document;
    if (document->entries_count == CONFIG_YAML_ENTRIES_MAX)
        return refuse(reader, key, "too many keys");
    struct config_entry *entry = &document->entries[document->entries_count];
    *entry = (struct config_entry){.line = line_of(&key->start_mark),
                                   .item_first = document->items_count};
    int wanted = snprintf(entry->path, sizeof entry->path, "%s%s%s", prefix,
                          prefix[0] != 0 ? "." : "", (const char *)key->data.scalar.value);
    if (wanted < 0 || (size_t)wanted >= sizeof entry->path)
        return refuse(reader, key, "a key is too long");
    for (uint32_t i = 0; i < document->entries_count; i++)
        if (strcmp(document->entries[i].path, entry->path) == 0)
            return reason_set(reader->reason, ERR_INVALID, "%s:%u: %s is already set in line %u",
                              reader->file, entry->line, entry->path, document->entries[i].line);
    document->entries_count++;
    *ret_entry = entry;
    return ERR_OK;
}

static enum err read_list(struct reader *reader, struct config_entry *entry)
{
    for (;;) {
        scoped(yaml_event_delete) yaml_event_t event = {0};
        TRY(next_event(reader, &event));
        if (event.type == YAML_SEQUENCE_END_EVENT)
            return ERR_OK;
        TRY(check_node(reader, &event));
        if (event.type != YAML_SCALAR_EVENT)
            return refuse(reader, &event, "a list holds single values only");
        TRY(add_item(reader, &event));
        entry->items_count++;
    }
}

static enum err read_mapping(struct reader *reader, const char *prefix, int depth);

static enum err read_value(struct reader *reader, struct config_entry *entry, int depth)
{
    scoped(yaml_event_delete) yaml_event_t event = {0};
    TRY(next_event(reader, &event));
    TRY(check_node(reader, &event));
    switch (event.type) {
    case YAML_SCALAR_EVENT:
        entry->kind = CONFIG_YAML_SCALAR;
        entry->items_count = 1;
        return add_item(reader, &event);
    case YAML_SEQUENCE_START_EVENT:
        entry->kind = CONFIG_YAML_LIST;
        return read_list(reader, entry);
    default:
        check(event.type == YAML_MAPPING_START_EVENT);
        entry->kind = CONFIG_YAML_SECTION;
        if (depth == CONFIG_YAML_DEPTH_MAX)
            return refuse(reader, &event, "mappings are nested too deep");
        return read_mapping(reader, entry->path, depth + 1);
    }
}

/* After its start event: keys and values up to its end. */
static enum err read_mapping(struct reader *reader, const char *prefix, int depth)
{
    for (;;) {
        scoped(yaml_event_delete) yaml_event_t key = {0};
        TRY(next_event(reader, &key));
        if (key.type == YAML_MAPPING_END_EVENT)
            return ERR_OK;
        TRY(check_node(reader, &key));
        struct config_entry *entry = NULL;
        TRY(add_entry(reader, prefix, &key, &entry));
        TRY(read_value(reader, entry, depth));
    }
}

/* The document's one node: a mapping, or nothing at all (all defaults). */
static enum err read_document(struct reader *reader)
{
    scoped(yaml_event_delete) yaml_event_t event = {0};
    TRY(next_event(reader, &event));
    TRY(check_node(reader, &event));
    if (event.type == YAML_MAPPING_START_EVENT)
        return read_mapping(reader, "", 1);
    if (event.type == YAML_SCALAR_EVENT && event.data.scalar.length == 0 &&
        event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return ERR_OK;
    return refuse(reader, &event, "the file must be a mapping of keys to values");
}

static enum err read_root(struct reader *reader)
{
    bool seen = false;
    for (;;) {
        scoped(yaml_event_delete) yaml_event_t event = {0};
        TRY(next_event(reader, &event));
        if (event.type == YAML_STREAM_END_EVENT)
            return ERR_OK;
        if (event.type != YAML_DOCUMENT_START_EVENT)
            continue; /* the stream's start, a document's end */
        if (seen)
            return refuse(reader, &event, "the file must be one document");
        seen = true;
        TRY(read_document(reader));
    }
}
