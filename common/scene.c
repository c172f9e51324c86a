/* The output of a failed check, and the end of the process. */
#include "common/scene.h"

#include "common/check.h"
#include "common/time.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local struct {
    struct scene *innermost;
    const struct scene_memory *memory; /* NULL: nothing is remembered */
} here;

void scene_enter(struct scene *scene)
{
    scene->outer = here.innermost;
    here.innermost = scene;
}

void scene_leave(struct scene *scene)
{
    here.innermost = scene->outer;
}

static uint64_t wall_ms(void)
{
    return time_wall_ns() / 1000000;
}

void scene_remember(struct scene_memory *memory)
{
    memory->began_ms = wall_ms();
    here.memory = memory;
}

const struct scene_memory *scene_memory(void)
{
    return here.memory;
}

void scene_inherit(const struct scene_memory *memory)
{
    here.memory = memory;
}

/* The last process of this kind ended by a failed check just before this one began. */
static bool has_failed_before(const struct scene_memory *memory)
{
    struct stat file;
    if (stat(memory->path, &file) != 0)
        return false;
    uint64_t failed_ms = (uint64_t)file.st_mtim.tv_sec * 1000;
    return failed_ms + SCENE_AGAIN_MS >= memory->began_ms;
}

void check_print(void)
{
    char text[SCENE_TEXT_BYTES] = "";
    for (const struct scene *scene = here.innermost; scene != NULL; scene = scene->outer) {
        if (scene->describe != NULL)
            scene->describe(scene->object, text, sizeof text);
        fprintf(stderr, "check failed: event=\"%s\" number=%llu state=\"%s\"\n", scene->event,
                (unsigned long long)scene->number, text);
        text[0] = 0;
    }
}

void check_end(void)
{
    const struct scene_memory *memory = here.memory;
    if (memory == NULL)
        return;
    if (wall_ms() < memory->began_ms + SCENE_AGAIN_MS && has_failed_before(memory)) {
        fprintf(stderr, "check failed: again right after the restart  next=\"stop: %s\"\n",
                memory->path);
        _exit(SCENE_EXIT_AGAIN);
    }
    int file = open(memory->path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, "x", 1) != 1)
        fprintf(stderr, "check failed: not remembered in %s\n", memory->path);
}
