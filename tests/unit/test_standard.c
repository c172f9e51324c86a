/* Health and reflection, byte by byte as any gRPC tool sends and reads them. */
#include "tests/unit/unit.h"

#include "proto/standard.h"

static struct slice text(const char *bytes, size_t count)
{
    return (struct slice){(const uint8_t *)bytes, count};
}

static bool contains(const struct buf *bytes, const char *words)
{
    return memmem(bytes->data, bytes->bytes, words, strlen(words)) != NULL;
}

TEST(health_of_the_whole_server_is_serving)
{
    scoped(buf_release) struct buf response = {0};
    assert_int_equal(standard_health(text("", 0), true, &response, NULL), ERR_OK);
    assert_int_equal(response.bytes, 2);
    assert_memory_equal(response.data, "\x08\x01", 2);
}

TEST(health_turns_to_not_serving)
{
    scoped(buf_release) struct buf response = {0};
    assert_int_equal(standard_health(text("\x0a\x0eroost.v1.Shard", 16), false, &response, NULL),
                     ERR_OK);
    assert_memory_equal(response.data, "\x08\x02", 2);
}

TEST(health_of_an_unknown_service_is_not_found)
{
    scoped(buf_release) struct buf response = {0};
    struct reason reason = {0};
    assert_int_equal(standard_health(text("\x0a\x01x", 3), true, &response, &reason),
                     ERR_NOT_FOUND);
    assert_int_equal(standard_health(text("\x0a\x09x", 3), true, &response, &reason),
                     ERR_MALFORMED);
}

TEST(reflection_lists_our_services)
{
    scoped(buf_release) struct buf response = {0};
    assert_int_equal(standard_reflection(text("\x3a\x01*", 3), &response, NULL), ERR_OK);
    assert_true(contains(&response, "roost.v1.Cluster"));
    assert_true(contains(&response, "roost.v1.Shard"));
    assert_true(contains(&response, "grpc.health.v1.Health"));
}

TEST(reflection_gives_the_file_of_a_symbol)
{
    scoped(buf_release) struct buf response = {0};
    assert_int_equal(standard_reflection(text("\x22\x10roost.v1.Cluster", 18), &response, NULL),
                     ERR_OK);
    assert_true(contains(&response, "AcquireRequest"));
    assert_true(contains(&response, "roost.proto"));
    assert_false(contains(&response, "HealthCheckRequest"));
}

TEST(reflection_says_not_found)
{
    scoped(buf_release) struct buf response = {0};
    assert_int_equal(standard_reflection(text("\x22\x07other.X", 9), &response, NULL), ERR_OK);
    assert_true(contains(&response, "no such file or symbol"));
}
