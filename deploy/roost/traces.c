#include "deploy/roost/traces.h"

#include "common/file.h"
#include "common/scoped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A worker's whole lines, without the bracket before them and the comma behind the last one. One
 * that was killed may have left a part of a line behind them. */
static struct slice lines_of(struct slice file)
{
    const size_t head = strlen("[\n"), tail = strlen(",\n");
    while (file.bytes > 0 && file.data[file.bytes - 1] != '\n')
        file.bytes--;
    if (file.bytes < head + tail)
        return (struct slice){0};
    return (struct slice){file.data + head, file.bytes - head - tail};
}

static enum err write_text(struct file_writer *writer, const char *text, struct reason *reason)
{
    return file_writer_write(writer, (struct slice){(const uint8_t *)text, strlen(text)}, reason);
}

static enum err add_file(struct file_writer *writer, const char *path, bool *first,
                         struct reason *reason)
{
    scoped(file_map_release) struct file_map file = {0};
    TRY(file_map_open(path, &file, reason));
    struct slice lines = lines_of(file.bytes);
    if (lines.bytes == 0)
        return ERR_OK;
    if (!*first)
        TRY(write_text(writer, ",\n", reason));
    *first = false;
    return file_writer_write(writer, lines, reason);
}

/* Of all workers, in order. */
static enum err list(const char *folder, struct file_names *ret_names, struct reason *reason)
{
    static const char begin[] = "worker-";
    const size_t end = strlen(TRACES_END);
    size_t kept = 0;
    TRY(file_list(folder, ret_names, reason));
    for (size_t i = 0; i < ret_names->count; i++) {
        char *name = ret_names->names[i];
        size_t bytes = strlen(name);
        if (strncmp(name, begin, strlen(begin)) == 0 && bytes > end &&
            strcmp(name + bytes - end, TRACES_END) == 0)
            ret_names->names[kept++] = name;
        else
            free(name);
    }
    ret_names->count = kept;
    file_names_sort(ret_names);
    return ERR_OK;
}

enum err traces_clear(const char *folder, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    char each[1024];
    TRY(list(folder, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        snprintf(each, sizeof each, "%s/%s", folder, names.names[i]);
        TRY(file_remove_tree(each, reason));
    }
    return ERR_OK;
}

enum err traces_join(const char *folder, const char *path, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    scoped(file_writer_release) struct file_writer writer = {0};
    char each[1024];
    bool first = true;
    TRY(list(folder, &names, reason));
    TRY(file_writer_open(&file_ops_real, path, 0644, &writer, reason));
    TRY(write_text(&writer, "{\"traceEvents\": [\n", reason));
    for (size_t i = 0; i < names.count; i++) {
        snprintf(each, sizeof each, "%s/%s", folder, names.names[i]);
        TRY(add_file(&writer, each, &first, reason));
    }
    TRY(write_text(&writer, "\n]}\n", reason));
    return file_writer_commit(&writer, reason);
}
