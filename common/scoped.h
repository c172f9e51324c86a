/* Cleanup by scope: `scoped(buf_release) struct buf bytes = {0};` calls buf_release(&bytes) on
 * every way out. For pointers whose free function takes the object itself, `SCOPED_FREE(file,
 * file_free)` defines `file_free_scoped(struct file **)`. */
#ifndef ROOST_COMMON_SCOPED_H
#define ROOST_COMMON_SCOPED_H

#include <stdlib.h>

#define scoped(function) __attribute__((cleanup(function)))

#define SCOPED_FREE(type, function)                                                                \
    static inline void function##_scoped(type **pointer)                                           \
    {                                                                                              \
        function(*pointer);                                                                        \
    }

static inline void free_scoped(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

#endif
