/* cs231n's spiral set (Stanford, "Minimal neural network case study"): each class is an arm
 *     r = i / (points - 1), t = 4 class + 4 r + noise * normal, point = (r sin t, r cos t). */
#ifndef ROOST_COMMON_DATA_SPIRAL_H
#define ROOST_COMMON_DATA_SPIRAL_H

#include "common/err.h"

#include <stdint.h>

#define SPIRAL_POINTS_MAX (1u << 20)
#define SPIRAL_CLASSES_MAX 1024u
#define SPIRAL_NOISE_MAX 100.0

struct spiral_settings {
    uint64_t seed;
    uint32_t points; /* a class */
    uint32_t classes;
    double noise; /* standard deviation of the angle, radians */
};

struct spiral_point {
    float x, y;
    int32_t label;
};

/* ERR_INVALID: a setting is 0, negative or above its maximum; the reason names it. */
enum err spiral_check(const struct spiral_settings *settings, struct reason *reason) MUST_USE;
/* All points * classes points, the classes mixed by a permutation keyed with the seed. */
void spiral_generate(const struct spiral_settings *settings, struct spiral_point *ret_points);

#endif
