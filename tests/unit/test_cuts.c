/* Which cut is durable. */
#include "tests/unit/unit.h"

#include "server/coordinator/cuts.h"
#include "server/coordinator/map.h"

enum { SERVERS = 2 };

static const uint8_t digest[WIRE_DIGEST_BYTES] = {7};

static struct cuts cuts_of(uint64_t generation, uint64_t version)
{
    struct cuts cuts;
    struct cut_record newest = {.name = {generation, version}};
    assert_int_equal(cuts_init(&cuts, &newest), ERR_OK);
    return cuts;
}

static struct cut_name order(struct cuts *cuts, uint64_t generation, uint64_t version)
{
    struct cut_record record = {.name = {generation, version},
                                .server_count = SERVERS,
                                .servers = {{.name = "a"}, {.name = "b"}}};
    struct map map = {.chunk_count = 1, .range_count = 1, .ranges = calloc(1, sizeof *map.ranges)};
    cuts_order(cuts, &record, &map);
    return record.name;
}

/* Both servers' manifests; the record that is to be written down, if it is. */
static const struct cut_record *manifests(struct cuts *cuts, struct cut_name name)
{
    assert_null(cuts_manifest(cuts, name, "a", digest));
    return cuts_manifest(cuts, name, "b", digest);
}

TEST(p9_a_cut_needs_every_servers_manifest)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(0, 0);
    struct cut_name name = order(&cuts, 1, 0);
    assert_null(cuts_manifest(&cuts, name, "b", digest));
    assert_null(cuts_manifest(&cuts, name, "b", digest)); /* twice is not both */
    assert_null(cuts_manifest(&cuts, name, "c", digest));
    const struct cut_record *record = cuts_manifest(&cuts, name, "a", digest);
    assert_non_null(record);
    assert_int_equal(record->servers[1].digest[0], 7);
    assert_int_equal(cuts.newest.name.generation, 0); /* not yet: it is to be written down */
    assert_true(cuts_recorded(&cuts, name));
    assert_int_equal(cuts.newest.name.generation, 1);
    assert_int_equal(cuts.map.range_count, 1); /* P10: its map is what a rewind restores */
    assert_int_equal(cuts_file(&cuts.newest, "b"), 1);
    assert_int_equal(cuts_file(&cuts.newest, "c"), WIRE_SERVERS_MAX);
    assert_false(cuts_recorded(&cuts, name));
}

TEST(p9_only_newer_cuts_are_recorded)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(3, 10);
    struct cut_name old_generation = order(&cuts, 2, 50), same = order(&cuts, 3, 10);
    struct cut_name newer = order(&cuts, 3, 11);
    assert_null(manifests(&cuts, old_generation));
    assert_null(manifests(&cuts, same));
    assert_non_null(manifests(&cuts, newer));
    assert_true(cuts_recorded(&cuts, newer));
}

TEST(p9_an_older_cut_does_not_follow_one_that_is_being_written_down)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(3, 10);
    struct cut_name older = order(&cuts, 3, 11), newer = order(&cuts, 3, 12);
    assert_non_null(manifests(&cuts, newer));
    assert_null(manifests(&cuts, older));
    assert_true(cuts_recorded(&cuts, newer));
}

TEST(what_is_older_than_a_recorded_cut_is_forgotten)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    struct cut_name first = order(&cuts, 1, 1), second = order(&cuts, 1, 2);
    struct cut_name third = order(&cuts, 1, 3);
    assert_non_null(manifests(&cuts, second));
    assert_true(cuts_recorded(&cuts, second));
    assert_false(cuts_ordered(&cuts, first));
    assert_true(cuts_ordered(&cuts, third));
}

TEST(a_failed_cut_is_forgotten_alone)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    struct cut_name first = order(&cuts, 1, 1), second = order(&cuts, 1, 2);
    assert_true(cuts_fail(&cuts, first));
    assert_false(cuts_fail(&cuts, first));
    assert_null(manifests(&cuts, first));
    assert_non_null(manifests(&cuts, second));
}

TEST(a_cut_without_room_is_waited_for_until_it_is_recorded_or_forgotten)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    struct cut_name first = order(&cuts, 1, 1), second = order(&cuts, 1, 2);
    cuts_wait(&cuts, first, 1000);
    assert_non_null(manifests(&cuts, first));
    assert_true(cuts_waits(&cuts));
    assert_true(cuts_recorded(&cuts, first));
    assert_false(cuts_waits(&cuts));
    cuts_wait(&cuts, second, 1000);
    cuts_forget(&cuts);
    assert_false(cuts_waits(&cuts));
}

TEST(p10_what_is_being_written_down_outlives_a_rewind)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    struct cut_name first = order(&cuts, 1, 1), second = order(&cuts, 1, 2);
    assert_false(cuts_are_written(&cuts));
    assert_non_null(manifests(&cuts, first));
    assert_true(cuts_are_written(&cuts));
    cuts_forget(&cuts);
    assert_true(cuts_ordered(&cuts, first));
    assert_false(cuts_ordered(&cuts, second));
    assert_true(cuts_recorded(&cuts, first));
    assert_false(cuts_are_written(&cuts));
}

TEST(p11_a_server_is_needed_by_the_newest_cut_and_by_those_that_are_pending)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    cuts.newest.server_count = 1;
    memcpy(cuts.newest.servers[0].name, "c", 2);
    assert_true(cuts_need(&cuts, "c"));
    assert_true(cuts_last_needs(&cuts, "c"));
    assert_false(cuts_need(&cuts, "a"));
    struct cut_name first = order(&cuts, 1, 1);
    assert_true(cuts_need(&cuts, "c"));
    assert_false(cuts_last_needs(&cuts, "c"));
    assert_true(cuts_need(&cuts, "a"));
    assert_true(cuts_fail(&cuts, first));
    assert_false(cuts_need(&cuts, "a"));
}

TEST(when_too_many_are_pending_the_oldest_is_given_up)
{
    scoped(cuts_release) struct cuts cuts = cuts_of(1, 0);
    for (uint64_t version = 1; version <= CUTS_PENDING_MAX + 1; version++)
        order(&cuts, 1, version);
    assert_int_equal(cuts.pending_count, CUTS_PENDING_MAX);
    assert_false(cuts_ordered(&cuts, (struct cut_name){1, 1}));
    assert_true(cuts_ordered(&cuts, (struct cut_name){1, CUTS_PENDING_MAX + 1}));
    cuts_forget(&cuts);
    assert_false(cuts_ordered(&cuts, (struct cut_name){1, 2}));
}
