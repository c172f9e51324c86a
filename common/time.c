/* The clocks, and how durations and moments are written and read. */
#include "common/time.h"

#include "common/check.h"

#include <time.h>

static uint64_t read_clock(clockid_t clock)
{
    struct timespec moment;
    check(clock_gettime(clock, &moment) == 0);
    return (uint64_t)moment.tv_sec * 1000000000 + (uint64_t)moment.tv_nsec;
}

uint64_t time_now_ns(void)
{
    uint64_t now_ns = read_clock(CLOCK_MONOTONIC);
    check(now_ns != 0);
    return now_ns;
}

uint64_t time_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

double time_wall_s(void)
{
    return (double)time_wall_ns() / 1e9;
}

uint64_t time_after_ms(uint64_t now_ns, uint64_t timeout_ms)
{
    uint64_t room_ns = TIME_NEVER - now_ns;
    return timeout_ms > room_ns / 1000000 ? TIME_NEVER : now_ns + timeout_ms * 1000000;
}

struct time_text time_format_duration(double seconds)
{
    struct time_text text;
    const size_t room = sizeof text.text;
    if (!(seconds >= 0 && seconds < 1e15)) {
        snprintf(text.text, room, "?");
    } else if (seconds < 9.995) {
        snprintf(text.text, room, "%.2fs", seconds);
    } else if (seconds < 59.95) {
        snprintf(text.text, room, "%.1fs", seconds);
    } else {
        unsigned long long whole = (unsigned long long)(seconds + 0.5);
        if (whole < 3600)
            snprintf(text.text, room, "%llum %02llus", whole / 60, whole % 60);
        else if (whole < 86400)
            snprintf(text.text, room, "%lluh %02llum", whole / 3600, whole / 60 % 60);
        else
            snprintf(text.text, room, "%llud %02lluh", whole / 86400, whole / 3600 % 24);
    }
    return text;
}

struct time_text time_format_utc(uint64_t wall_ns)
{
    time_t seconds = (time_t)(wall_ns / 1000000000);
    struct tm parts;
    check(gmtime_r(&seconds, &parts) != NULL);
    struct time_text text;
    size_t length = strftime(text.text, sizeof text.text, "%Y-%m-%dT%H:%M:%S", &parts);
    check(length != 0);
    snprintf(text.text + length, sizeof text.text - length, ".%03uZ",
             (unsigned)(wall_ns / 1000000 % 1000));
    return text;
}

bool time_parse_date(const char *text, uint64_t *ret_wall_ns)
{
    struct tm parts = {0};
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    if (end == NULL || *end != 0)
        return false;
    time_t seconds = timegm(&parts);
    if (seconds < 0 || (uint64_t)seconds > UINT64_MAX / 1000000000)
        return false;
    *ret_wall_ns = (uint64_t)seconds * 1000000000;
    return true;
}
