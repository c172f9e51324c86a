/* See paths.h. */
#include "common/data/paths.h"

#include "common/scoped.h"

#include <string.h>

static enum err add_resolved(struct file_names *files, const char *path, struct reason *reason)
{
    scoped(free_scoped) char *resolved = NULL;
    TRY(file_resolve(path, &resolved, reason));
    if (file_names_add(files, resolved) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory for the files of %s", path);
    return ERR_OK;
}

/* Links that lead nowhere, folders and devices are not what a folder or a pattern means. */
static enum err add_if_regular(struct file_names *files, const char *path, struct reason *reason)
{
    struct file_info info;
    enum err err = file_stat(path, &info, reason);
    if (err == ERR_NOT_FOUND || (err == ERR_OK && info.kind != FILE_REGULAR))
        return ERR_OK;
    TRY(err);
    return add_resolved(files, path, reason);
}

static enum err add_folder(struct file_names *files, const char *folder, struct reason *reason)
{
    scoped(file_names_release) struct file_names entries = {0};
    TRY(file_list(folder, &entries, reason));
    for (size_t i = 0; i < entries.count; i++) {
        if (entries.names[i][0] == '.')
            continue;
        scoped(buf_release) struct buf path = {0};
        if (buf_printf(&path, "%s/%s", folder, entries.names[i]) != ERR_OK)
            return reason_set(reason, ERR_NOMEM, "no memory for the files of %s", folder);
        TRY(add_if_regular(files, (const char *)path.data, reason));
    }
    return ERR_OK;
}

static enum err add_pattern(struct file_names *files, const char *pattern, struct reason *reason)
{
    scoped(file_names_release) struct file_names found = {0};
    TRY(file_glob(pattern, &found, reason));
    for (size_t i = 0; i < found.count; i++)
        TRY(add_if_regular(files, found.names[i], reason));
    return ERR_OK;
}

static enum err add_path(struct file_names *files, const char *path, struct reason *reason)
{
    struct file_info info;
    enum err err = file_stat(path, &info, reason);
    if (err == ERR_NOT_FOUND && strpbrk(path, "*?[") != NULL)
        return add_pattern(files, path, reason);
    TRY(err);
    if (info.kind == FILE_FOLDER)
        return add_folder(files, path, reason);
    return add_resolved(files, path, reason);
}

/* Of equal neighbours the first stays. */
static void drop_repeated(struct file_names *files)
{
    size_t kept = 0;
    for (size_t i = 0; i < files->count; i++)
        if (kept > 0 && strcmp(files->names[kept - 1], files->names[i]) == 0)
            free(files->names[i]);
        else
            files->names[kept++] = files->names[i];
    files->count = kept;
}

enum err paths_find(const char *const *paths, size_t path_count, struct file_names *ret_files,
                    struct reason *reason)
{
    scoped(file_names_release) struct file_names files = {0};
    for (size_t i = 0; i < path_count; i++) {
        size_t before = files.count;
        TRY(add_path(&files, paths[i], reason));
        if (files.count == before)
            return reason_set(reason, ERR_NOT_FOUND, "%s: there is no file", paths[i]);
    }
    file_names_sort(&files);
    drop_repeated(&files);
    *ret_files = files;
    files = (struct file_names){0};
    return ERR_OK;
}
