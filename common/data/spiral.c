/* See spiral.h. No libm: the same points on every machine. */
#include "common/data/spiral.h"

#include "common/elementary.h"
#include "common/rand.h"

enum { STREAM_NOISE, STREAM_ORDER };

enum err spiral_check(const struct spiral_settings *settings, struct reason *reason)
{
    if (settings->points == 0 || settings->points > SPIRAL_POINTS_MAX)
        return reason_set(reason, ERR_INVALID, "points of a spiral: %u is not 1 to %u",
                          settings->points, SPIRAL_POINTS_MAX);
    if (settings->classes == 0 || settings->classes > SPIRAL_CLASSES_MAX)
        return reason_set(reason, ERR_INVALID, "classes of a spiral: %u is not 1 to %u",
                          settings->classes, SPIRAL_CLASSES_MAX);
    if (!(settings->noise >= 0 && settings->noise <= SPIRAL_NOISE_MAX))
        return reason_set(reason, ERR_INVALID, "noise of a spiral: %g is not 0 to %g",
                          settings->noise, SPIRAL_NOISE_MAX);
    return ERR_OK;
}

static struct spiral_point make_point(const struct spiral_settings *settings, uint64_t number)
{
    uint32_t class = (uint32_t)(number / settings->points);
    uint32_t i = (uint32_t)(number % settings->points);
    double r = settings->points == 1 ? 0 : (double)i / (settings->points - 1);
    double normal = (double)rand_normal(rand_key(settings->seed, RAND_DATA, STREAM_NOISE), number);
    double t = 4.0 * class + 4 * r + settings->noise * normal;
    return (struct spiral_point){
        .x = (float)(r * elementary_sin(t)),
        .y = (float)(r * elementary_cos(t)),
        .label = (int32_t) class,
    };
}

void spiral_generate(const struct spiral_settings *settings, struct spiral_point *ret_points)
{
    const struct rand_key order = rand_key(settings->seed, RAND_DATA, STREAM_ORDER);
    uint64_t count = (uint64_t)settings->points * settings->classes;
    for (uint64_t i = 0; i < count; i++)
        ret_points[i] = make_point(settings, rand_permute(order, count, i));
}
