/* Deadlines, and how durations and moments are written and read; clocks are not read here. */
#include "tests/unit/unit.h"

#include "common/time.h"

TEST(a_deadline_never_wraps)
{
    assert_true(time_after_ms(5, 2) == 2000005);
    assert_true(time_after_ms(5, UINT64_MAX) == TIME_NEVER);
    assert_true(time_after_ms(TIME_NEVER - 10, 1) == TIME_NEVER);
}

TEST(durations_read_well)
{
    static const struct {
        double seconds;
        const char *text;
    } rows[] = {
        {0, "0.00s"},      {0.251, "0.25s"},   {9.99, "9.99s"},   {9.999, "10.0s"},
        {12.34, "12.3s"},  {59.94, "59.9s"},   {59.96, "1m 00s"}, {72, "1m 12s"},
        {3599, "59m 59s"}, {3599.6, "1h 00m"}, {11220, "3h 07m"}, {187200, "2d 04h"},
        {-1, "?"},         {1e300, "?"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(time_format_duration(rows[i].seconds).text, rows[i].text);
}

TEST(moments_are_written_in_utc)
{
    assert_string_equal(time_format_utc(0).text, "1970-01-01T00:00:00.000Z");
    assert_string_equal(time_format_utc(1709210096789999999).text, "2024-02-29T12:34:56.789Z");
}

TEST(dates_of_http_are_read)
{
    uint64_t wall_ns;
    assert_true(time_parse_date("Mon, 19 Sep 2016 18:29:47 GMT", &wall_ns));
    assert_string_equal(time_format_utc(wall_ns).text, "2016-09-19T18:29:47.000Z");
    assert_true(time_parse_date("Thu, 29 Feb 2024 00:00:00 GMT", &wall_ns));
    assert_string_equal(time_format_utc(wall_ns).text, "2024-02-29T00:00:00.000Z");
    static const char *const none[] = {
        "",
        "soon",
        "2016-09-19T18:29:47Z",
        "Mon, 19 Sep 2016 18:29:47",
        "Mon, 19 Sep 2016 18:29:47 GMT+1",
        "Mon, 39 Sep 2016 18:29:47 GMT",
        "Wed, 31 Dec 1969 23:59:59 GMT",
        "Mon, 19 Sep 2616 18:29:47 GMT",
    };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_false(time_parse_date(none[i], &wall_ns));
}
