#include "worker/devices.h"

#include "common/file.h"
#include "common/scoped.h"
#include "common/settings/options.h"

#include <string.h>

static const char variable[] = "CUDA_VISIBLE_DEVICES";

/* The entry of that number; NULL: the list has fewer. */
static const char *entry_of(const char *list, uint32_t number)
{
    while (list != NULL && number-- > 0) {
        list = strchr(list, ',');
        list = list != NULL ? list + 1 : NULL;
    }
    return list;
}

bool devices_choose(const char *visible, uint32_t count, uint32_t wanted, char *ret_name,
                    size_t ret_bytes)
{
    int bytes = 0;
    bool listed = visible[0] != 0;
    for (count = listed ? 0 : count; listed && entry_of(visible, count) != NULL;)
        count++;
    if (count > 0 && listed) {
        const char *entry = entry_of(visible, wanted % count);
        bytes = snprintf(ret_name, ret_bytes, "%.*s", (int)strcspn(entry, ","), entry);
    } else if (count > 0) {
        bytes = snprintf(ret_name, ret_bytes, "%u", wanted % count);
    }
    return bytes > 0 && (size_t)bytes < ret_bytes;
}

void devices_take(uint32_t wanted)
{
    char name[128];
    scoped(file_names_release) struct file_names files = {0};
    ignore(file_glob("/dev/nvidia[0-9]*", &files, NULL)); /* none: there is no GPU */
    if (devices_choose(options_environment(variable, ""), (uint32_t)files.count, wanted, name,
                       sizeof name))
        check(setenv(variable, name, 1) == 0);
}
