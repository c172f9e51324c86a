#include "common/memory.h"

#include "common/file.h"
#include "common/scoped.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GROUPS_BYTES_MAX = 65536, LIMIT_BYTES_MAX = 4096, PATH_BYTES = 4096 };

/* A hierarchy that may limit memory: its folder below the others, and its file. */
struct hierarchy {
    const char *controllers; /* as a line of the groups' file names them */
    const char *folder, *file;
};
static const struct hierarchy hierarchies[] = {{"", "", "memory.max"},
                                               {"", "", "memory.high"},
                                               {"memory", "/memory", "memory.limit_in_bytes"}};

/* UINT64_MAX: the file names no limit ("max"), or there is none. */
static uint64_t read_limit(const char *path)
{
    scoped(buf_release) struct buf text = {0};
    if (file_read(path, LIMIT_BYTES_MAX, &text, NULL) != ERR_OK ||
        buf_append(&text, "", 1) != ERR_OK)
        return UINT64_MAX;
    char *end;
    unsigned long long limit = strtoull((const char *)text.data, &end, 10);
    return end == (const char *)text.data || limit == 0 ? UINT64_MAX : limit;
}

/* Of the group and those around it. A container may see its group as the root. */
static uint64_t least_limit(const struct memory_sources *sources, const struct hierarchy *hierarchy,
                            const char *group)
{
    char path[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    for (size_t length = strlen(group);; length--) {
        bool whole = length == 0 || group[length] == 0 || group[length] == '/';
        int bytes = snprintf(path, sizeof path, "%s%s%.*s/%s", sources->hierarchy,
                             hierarchy->folder, (int)length, group, hierarchy->file);
        uint64_t limit =
            whole && bytes > 0 && (size_t)bytes < sizeof path ? read_limit(path) : UINT64_MAX;
        least = limit < least ? limit : least;
        if (length == 0)
            return least;
    }
}

/* "4:memory:/some/group", "0::/some/group". */
static uint64_t line_limit(const struct memory_sources *sources, char *line)
{
    char *controllers = strchr(line, ':');
    char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (group == NULL)
        return UINT64_MAX;
    uint64_t least = UINT64_MAX;
    controllers++;
    *group++ = 0;
    for (size_t i = 0; i < sizeof hierarchies / sizeof hierarchies[0]; i++) {
        if (strcmp(controllers, hierarchies[i].controllers) != 0)
            continue;
        uint64_t limit = least_limit(sources, &hierarchies[i], group);
        least = limit < least ? limit : least;
    }
    return least;
}

uint64_t memory_limit_of(const struct memory_sources *sources, uint64_t machine)
{
    scoped(buf_release) struct buf text = {0};
    uint64_t least = machine;
    if (file_read(sources->groups, GROUPS_BYTES_MAX, &text, NULL) != ERR_OK ||
        buf_append(&text, "", 1) != ERR_OK)
        return machine;
    char *rest = NULL;
    for (char *line = strtok_r((char *)text.data, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        uint64_t limit = line_limit(sources, line);
        least = limit < least ? limit : least;
    }
    return least;
}

uint64_t memory_limit(void)
{
    const struct memory_sources sources = {"/proc/self/cgroup", "/sys/fs/cgroup"};
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
    return memory_limit_of(&sources, machine);
}
