/* What a failed check prints, and how it ends the process. */
#include "common/scene.h"

#include "common/check.h"
#include "common/time.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

static _Thread_local struct scene *innermost;

static struct {
    const char *path; /* NULL: nothing is remembered */
    uint64_t began_ms;
} process;

void scene_enter(struct scene *scene)
{
    scene->outer = innermost;
    innermost = scene;
}

void scene_leave(struct scene *scene)
{
    innermost = scene->outer;
}

static uint64_t wall_ms(void)
{
    return time_wall_ns() / 1000000;
}

void scene_remember(const char *path)
{
    process.path = path;
    process.began_ms = wall_ms();
}

/* The last process of this kind ended by a failed check just before this one began. */
static bool has_failed_before(void)
{
    struct stat file;
    if (stat(process.path, &file) != 0)
        return false;
    uint64_t failed_ms = (uint64_t)file.st_mtim.tv_sec * 1000;
    return failed_ms + SCENE_AGAIN_MS >= process.began_ms;
}

void check_print(void)
{
    char text[SCENE_TEXT_BYTES] = "";
    for (const struct scene *scene = innermost; scene != NULL; scene = scene->outer) {
        if (scene->describe != NULL)
            scene->describe(scene->object, text, sizeof text);
        fprintf(stderr, "check failed: event=\"%s\" number=%llu state=\"%s\"\n", scene->event,
                (unsigned long long)scene->number, text);
        text[0] = 0;
    }
}

void check_end(void)
{
    if (process.path == NULL)
        return;
    if (wall_ms() < process.began_ms + SCENE_AGAIN_MS && has_failed_before()) {
        fprintf(stderr, "check failed: again right after the restart  next=\"stop: %s\"\n",
                process.path);
        _exit(SCENE_EXIT_AGAIN);
    }
    int file = open(process.path, O_CREAT | O_WRONLY | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0 || write(file, "x", 1) != 1)
        fprintf(stderr, "check failed: not remembered in %s\n", process.path);
}
