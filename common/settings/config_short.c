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

void config_short_expand(struct config_document *document, const char *name, const char *number)
{
    struct config_entry *mapping = entry_of(document, name), *key = mapping + 1;
    size_t bytes = strlen(name);
    if (mapping == NULL || mapping->kind != CONFIG_YAML_SECTION || keys_in(document, name) != 1 ||
        strcmp(key->path + bytes + 1, number + bytes + 1) != 0 ||
        entry_of(document, number) != NULL || document->items_count == CONFIG_YAML_ITEMS_MAX)
        return;
    key->path[bytes] = '_';
    mapping->kind = CONFIG_YAML_SCALAR;
    mapping->item_first = document->items_count;
    mapping->items_count = 1;
    document->items[document->items_count++] =
        (struct config_item){.text = key->path + bytes + 1,
                             .bytes = strlen(key->path) - bytes - 1,
                             .line = key->line,
                             .plain = true};
}
