/* What a thread is doing, and with which object: the event, and the object's state in a line. A
 * failed check prints it into the log.
 *
 *     scoped(scene_leave) struct scene scene = {"report", link, describe, coordinator};
 *     scene_enter(&scene);
 *
 * Scenes of one thread nest; a failed check prints them from the innermost on. The thread-local
 * list is this file's, as nothing else reaches the place where a check fails. */
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

struct scene {
    const char *event;
    uint64_t number; /* of the event: whose it is, or its kind */
    void (*describe)(const void *object, char *text, size_t bytes); /* NULL: no object */
    const void *object;
    struct scene *outer; /* scene_enter()'s */
};

void scene_enter(struct scene *scene);
void scene_leave(struct scene *scene);

/* The process remembers a failed check in the file `path`, which is its own: from now on one that
 * fails again right after a restart ends it with SCENE_EXIT_AGAIN instead of SIGABRT, which means:
 * start it again. Once, by main, before threads are started; the text is borrowed for good. */
void scene_remember(const char *path);

#endif
