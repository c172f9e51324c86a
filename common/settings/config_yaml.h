/* A YAML file as a flat list of dotted keys and their values, each with its line. For config.c. */
#ifndef ROOST_COMMON_SETTINGS_CONFIG_YAML_H
#define ROOST_COMMON_SETTINGS_CONFIG_YAML_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CONFIG_YAML_ENTRIES_MAX 256
#define CONFIG_YAML_ITEMS_MAX 4096
#define CONFIG_YAML_PATH_BYTES 96
#define CONFIG_YAML_DEPTH_MAX 4

enum config_yaml_kind { CONFIG_YAML_SCALAR, CONFIG_YAML_LIST, CONFIG_YAML_SECTION };

/* A scalar; `text` ends in 0 and may hold others. Lines count from 1. */
struct config_item {
    const char *text;
    size_t bytes;
    uint32_t line;
    bool plain; /* written without quotes */
};

struct config_entry {
    char path[CONFIG_YAML_PATH_BYTES]; /* "train.steps" */
    uint32_t line;                     /* of the key */
    enum config_yaml_kind kind;
    uint32_t item_first, items_count; /* SCALAR: one; LIST: any number; SECTION: none */
};

struct config_document {
    uint32_t entries_count, items_count;
    struct config_entry entries[CONFIG_YAML_ENTRIES_MAX]; /* in file order, sections too */
    struct config_item items[CONFIG_YAML_ITEMS_MAX];
    struct buf pool; /* the items' texts; never moves */
};

/* ERR_INVALID: not YAML, or beyond the subset (one document, mappings of words, lists of scalars,
 * no key twice, no anchors, aliases, tags). ERR_NOMEM. Free with config_document_free(). */
enum err config_yaml_read(struct slice text, const char *file,
                          struct config_document **ret_document, struct reason *reason) MUST_USE;
void config_document_free(struct config_document *document);

#endif
