#include "common/settings/config_short.h"

#include <string.h>

static struct config_entry *entry_of(struct config_document *document, const char *path)
{
    for (uint32_t i = 0; i < document->entries_count; i++)
        if (strcmp(document->entries[i].path, path) == 0)
            return &document->entries[i];
    return NULL;
}

/* Keys directly or deeper in a mapping. */
static uint32_t keys_in(const struct config_document *document, const char *path)
{
    uint32_t keys = 0;
    size_t bytes = strlen(path);
    for (uint32_t i = 0; i < document->entries_count; i++) {
        const char *candidate = document->entries[i].path;
        keys += strncmp(candidate, path, bytes) == 0 && candidate[bytes] == '.';
    }
    return keys;
}

/* The mapping of `name` whose one key, which follows it, is what `number` ends with; NULL: there is none. */
static struct config_entry *mapping_of(struct config_document *document, const char *name,
                                       const char *number)
{
    struct config_entry *mapping = entry_of(document, name);
    size_t bytes = strlen(name);
    bool one_key =
        mapping != NULL && mapping->kind == CONFIG_YAML_SECTION && keys_in(document, name) == 1;
    return one_key && strcmp(mapping[1].path + bytes + 1, number + bytes + 1) == 0 ? mapping : NULL;
}

void config_short_expand(struct config_document *document, const char *name, const char *number)
{
    struct config_entry *mapping = mapping_of(document, name, number);
    size_t bytes = strlen(name);
    if (mapping == NULL || entry_of(document, number) != NULL ||
        document->items_count == CONFIG_YAML_ITEMS_MAX)
        return;
    struct config_entry *key = &mapping[1];
    const char *word = key->path + bytes + 1;
    key->path[bytes] = '_';
    mapping->kind = CONFIG_YAML_SCALAR;
    mapping->item_first = document->items_count;
    mapping->items_count = 1;
    document->items[document->items_count++] =
        (struct config_item){.text = word, .bytes = strlen(word), .line = key->line, .plain = true};
}
