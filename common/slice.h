/* Borrowed bytes; the function that hands one out documents for how long. */
#ifndef ROOST_COMMON_SLICE_H
#define ROOST_COMMON_SLICE_H

#include <stddef.h>
#include <stdint.h>

struct slice {
    const uint8_t *data;
    size_t bytes;
};

#endif
