#include "worker/devices.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/settings/options.h"

#include <string.h>

static const char variable[] = "CUDA_VISIBLE_DEVICES";

/* The driver reads a list up to the first entry that names no GPU: -1, or nothing. */
static bool names_gpu(const char *entry)
{
    return entry[0] != 0 && entry[0] != ',' && entry[0] != '-';
}

/* The entry of that number; NULL: the list has fewer. */
static const char *entry_of(const char *list, uint32_t number)
{
    while (names_gpu(list)) {
        if (number-- == 0)
            return list;
        list += strcspn(list, ",");
        list += *list == ',';
    }
    return NULL;
}

bool devices_choose(const char *visible, uint32_t count, uint32_t wanted, char *ret_name,
                    size_t ret_bytes)
{
    int bytes = 0;
    for (count = visible != NULL ? 0 : count; visible != NULL && entry_of(visible, count) != NULL;)
        count++;
    if (count > 0 && visible != NULL) {
        const char *entry = entry_of(visible, wanted % count);
        bytes = snprintf(ret_name, ret_bytes, "%.*s", (int)strcspn(entry, ","), entry);
    } else if (count > 0) {
        bytes = snprintf(ret_name, ret_bytes, "%u", wanted % count);
    }
    return bytes > 0 && (size_t)bytes < ret_bytes;
}

bool devices_list(const char *visible, uint32_t there, struct devices_range wanted, char *ret_names,
                  size_t ret_bytes)
{
    char first[128], name[128];
    size_t used = 0;
    for (uint32_t i = 0; i < wanted.count; i++) {
        if (!devices_choose(visible, there, wanted.first + i, name, sizeof name))
            return false;
        if (i == 0)
            memcpy(first, name, sizeof first);
        else if (strcmp(name, first) == 0)
            break; /* once round: the driver takes a name once */
        int bytes = snprintf(ret_names + used, ret_bytes - used, "%s%s", i > 0 ? "," : "", name);
        if (bytes < 0 || (size_t)bytes >= ret_bytes - used)
            return false;
        used += (size_t)bytes;
    }
    return used > 0;
}

uint32_t devices_take(struct devices_range wanted)
{
    char names[1024];
    scoped(file_names_release) struct file_names files = {0};
    ignore(file_glob("/dev/nvidia[0-9]*", &files, NULL)); /* none: no GPU is known */
    if (!devices_list(options_environment(variable, NULL), (uint32_t)files.count, wanted, names,
                      sizeof names))
        return wanted.first;
    check(setenv(variable, names, 1) == 0);
    return 0;
}
