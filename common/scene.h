/* What a thread is doing, and with which object: the event, and the object's state in a line. A
 * failed check prints it into the log.
 *
 *     scoped(scene_leave) struct scene scene = {"report", link, describe, coordinator};
 *     scene_enter(&scene);
 *
 * Scenes of one thread nest; a failed check prints them from the innermost on.
 *
 * A check may fail in any function, and is given no object: what it prints, and how it ends the
 * process, is found through the one thread-local variable of scene.c. It is the project's only
 * variable outside a struct that somebody owns. It holds no state of its own: it points to the
 * thread's scenes, which are on its stack, and to main's scene_memory, which a thread has from the
 * one that started it. */
#ifndef ROOST_COMMON_SCENE_H
#define ROOST_COMMON_SCENE_H

#include <stddef.h>
#include <stdint.h>

enum {
    SCENE_TEXT_BYTES = 1024,
    /* The exit status of a process whose check fails again right after a restart, so that nobody
     * starts it again (sysexits.h: EX_SOFTWARE). */
    SCENE_EXIT_AGAIN = 70,
    /* the check fails this soon after the start, and the start was this soon after the last
     * failed check */
    SCENE_AGAIN_MS = 60000
};

/* Which file remembers a failed check of this process. Main's; as long as the process lives. */
struct scene_memory {
    const char *path;  /* the process's own */
    uint64_t began_ms; /* when the process did: scene_remember()'s */
};

struct scene {
    const char *event;
    uint64_t number; /* of the event: whose it is, or its kind */
    void (*describe)(const void *object, char *text, size_t bytes); /* NULL: no object */
    const void *object;
    struct scene *outer; /* scene_enter()'s */
};

void scene_enter(struct scene *scene);
void scene_leave(struct scene *scene);

/* The process remembers a failed check in the file memory->path: from now on one that fails again
 * right after a restart ends it with SCENE_EXIT_AGAIN instead of SIGABRT, which means: start it
 * again. By main, before threads are started. */
void scene_remember(struct scene_memory *memory);

/* For thread_start(): what the starting thread remembers in is the new thread's, too. NULL: it does
 * not remember. */
const struct scene_memory *scene_memory(void);
void scene_inherit(const struct scene_memory *memory);

#endif
