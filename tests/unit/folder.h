/* A folder of its own for a test: TEST_IN_FOLDER(name); `folder_path(state, "a/b")` names something
 * in it. */
#ifndef ROOST_TESTS_UNIT_FOLDER_H
#define ROOST_TESTS_UNIT_FOLDER_H

#include "tests/unit/unit.h"

#include "common/file.h"

#define FOLDER_PATHS 32

struct folder {
    char path[256];
    char *paths[FOLDER_PATHS]; /* what folder_path() gave out last */
    unsigned count;
};

static inline int folder_make(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    const char *parent = getenv("TMPDIR");
    if (folder == NULL)
        return -1;
    snprintf(folder->path, sizeof folder->path, "%s/roost-unit-XXXXXX",
             parent == NULL ? "/tmp" : parent);
    *state = folder;
    return mkdtemp(folder->path) == NULL ? -1 : 0;
}

static inline int folder_remove(void **state)
{
    struct folder *folder = *state;
    struct reason reason;
    enum err err = file_remove_tree(folder->path, &reason);
    for (unsigned i = 0; i < FOLDER_PATHS; i++)
        free(folder->paths[i]);
    free(folder);
    return err == ERR_OK ? 0 : -1;
}

#define TEST_IN_FOLDER(title) TEST(title, .setup_func = folder_make, .teardown_func = folder_remove)

static inline const char *folder_path(void **state, const char *name)
{
    struct folder *folder = *state;
    char **path = &folder->paths[folder->count++ % FOLDER_PATHS];
    free(*path);
    assert_true(asprintf(path, "%s/%s", folder->path, name) > 0);
    return *path;
}

static inline const char *folder_write(void **state, const char *name, const void *data,
                                       size_t bytes)
{
    const char *path = folder_path(state, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    return path;
}

#endif
