/* The only file that reads clocks. Moments are nanoseconds of the monotonic clock; pure cores take
 * them as arguments. A deadline is a moment, a timeout a duration. */
#ifndef ROOST_COMMON_TIME_H
#define ROOST_COMMON_TIME_H

#include <stdbool.h>
#include <stdint.h>

#define TIME_NEVER UINT64_MAX /* the deadline that never passes */

uint64_t time_now_ns(void);  /* monotonic; never 0 */
uint64_t time_wall_ns(void); /* since 1970, UTC; for logs, files and the dates of others */
double time_wall_s(void);

/* Pure helpers. */
uint64_t time_after_ms(uint64_t now_ns, uint64_t timeout_ms); /* the deadline; at most TIME_NEVER */

/* "0.25s", "12.3s", "1m 12s", "3h 07m", "2d 04h". */
struct time_text {
    char text[40];
};
struct time_text time_format_duration(double seconds);
struct time_text time_format_utc(uint64_t wall_ns); /* "2026-11-20T11:12:21.123Z" */
/* Reads a date as HTTP writes it, "Mon, 19 Sep 2016 18:29:47 GMT" (RFC 1123). False: it is none, or
 * wall_ns has no room for it. */
bool time_parse_date(const char *text, uint64_t *ret_wall_ns);

#endif
