/* A value in several messages, without a stream: what is put together, and what is refused. */
#include "tests/unit/unit.h"
#include "worker/fragments.h"

#include <string.h>

enum { HEAD_BYTES = 2, ID = 7 };

struct fragments_fixture {
    struct fragments *fragments;
    struct from_peer answer;
    struct rpc_message *message; /* the newest that is to be acted on; NULL: none */
    struct reason reason;
};

static void fragments_set_up(struct fragments_fixture *f)
{
    (void)f;
}

static void fragments_tear_down(struct fragments_fixture *f)
{
    rpc_message_unref(f->message);
    fragments_free(f->fragments);
}

/* A message comes: a header of two bytes, and then this text of the value. */
static enum err comes(struct fragments_fixture *f, struct from_peer came, const char *text)
{
    char bytes[64] = "hh";
    strncat(bytes, text, sizeof bytes - HEAD_BYTES - 1);
    struct rpc_message *message = rpc_message_new((struct slice){(uint8_t *)bytes, strlen(bytes)});
    came.payload_offset = HEAD_BYTES;
    came.payload_bytes = strlen(text);
    rpc_message_unref(f->message);
    f->message = NULL;
    enum err err =
        fragments_gather(&f->fragments, &came, message, &f->answer, &f->message, &f->reason);
    rpc_message_unref(message);
    return err;
}

static enum err have(struct fragments_fixture *f, const char *text, uint64_t rest)
{
    return comes(f, (struct from_peer){.kind = FROM_PEER_HAVE, .have = {ID, 99, rest}}, text);
}

static enum err fragment(struct fragments_fixture *f, const char *text, uint64_t rest)
{
    return comes(f, (struct from_peer){.kind = FROM_PEER_FRAGMENT, .fragment = {rest}}, text);
}

static void assert_whole(struct fragments_fixture *f, const char *text)
{
    char bytes[64] = "";
    assert_non_null(f->message);
    assert_int_equal(f->answer.kind, FROM_PEER_HAVE);
    assert_int_equal(f->answer.have.id, ID);
    assert_int_equal(f->answer.have.digest, 99);
    assert_int_equal(f->answer.have.rest, 0);
    assert_int_equal(f->answer.payload_bytes, strlen(text));
    rpc_message_copy(f->message, f->message->bytes - strlen(text), strlen(text), bytes);
    assert_string_equal(bytes, text);
}

TEST_F(a_value_in_one_message_is_that_message, fragments)
{
    assert_int_equal(have(f, "value", 0), ERR_OK);
    assert_int_equal(f->message->bytes, HEAD_BYTES + 5);
    assert_whole(f, "value");
}

TEST_F(a_value_is_whole_with_its_last_message, fragments)
{
    assert_int_equal(have(f, "one ", 9), ERR_OK);
    assert_null(f->message);
    assert_int_equal(fragment(f, "two ", 5), ERR_OK);
    assert_null(f->message);
    assert_int_equal(fragment(f, "three", 0), ERR_OK);
    assert_whole(f, "one two three");
    assert_int_equal(have(f, "next", 0), ERR_OK);
    assert_whole(f, "next");
}

TEST_F(other_answers_pass_between, fragments)
{
    assert_int_equal(have(f, "one ", 3), ERR_OK);
    assert_int_equal(comes(f, (struct from_peer){.kind = FROM_PEER_PARKED, .parked = {8}}, ""),
                     ERR_OK);
    assert_non_null(f->message);
    assert_int_equal(f->answer.kind, FROM_PEER_PARKED);
    assert_int_equal(f->answer.parked.id, 8);
    assert_int_equal(fragment(f, "two", 0), ERR_OK);
    assert_whole(f, "one two");
}

/* Who waits copies what has come, and then what has come since. */
TEST_F(what_has_come_is_told, fragments)
{
    struct fragment list[WIRE_FRAGMENTS_MAX];
    struct fragments_had had = {0};
    assert_int_equal(fragments_behind(NULL, ID, 13, &had, list), 0);
    assert_int_equal(have(f, "one ", 9), ERR_OK);
    assert_int_equal(fragment(f, "two ", 5), ERR_OK);
    assert_int_equal(fragments_behind(f->fragments, ID, 13, &had, list), 2);
    rpc_message_unref(list[0].message);
    rpc_message_unref(list[1].message);
    had.count = 1;
    assert_int_equal(fragments_behind(f->fragments, ID, 13, &had, list), 1);
    assert_int_equal(list[0].message->bytes - list[0].offset, 4);
    assert_memory_equal(list[0].message->slices[0].data + list[0].offset, "two ", 4);
    rpc_message_unref(list[0].message);
    had.count = 2;
    assert_int_equal(fragments_behind(f->fragments, ID, 13, &had, list), 0);
    assert_int_equal(fragments_behind(f->fragments, ID + 1, 13, &had, list), 0);
    assert_int_equal(fragments_behind(f->fragments, ID, 12, &had, list), 0); /* no room for it */
    assert_int_equal(fragment(f, "three", 0), ERR_OK);
    assert_int_equal(fragments_number(f->message), had.number);
}

/* A want is answered once more, over the same stream: nothing of the first answer counts. */
TEST_F(another_answer_begins_at_its_beginning, fragments)
{
    struct fragment list[WIRE_FRAGMENTS_MAX];
    struct fragments_had had = {0};
    assert_int_equal(have(f, "one two thre", 1), ERR_OK);
    assert_int_equal(fragments_behind(f->fragments, ID, 13, &had, list), 1);
    rpc_message_unref(list[0].message);
    had.count = 1;
    had.bytes = 12;
    assert_int_equal(fragment(f, "e", 0), ERR_OK);
    assert_int_equal(have(f, "o", 12), ERR_OK);
    assert_int_equal(fragment(f, "ne two thre", 1), ERR_OK);
    assert_int_equal(fragments_behind(f->fragments, ID, 13, &had, list), 2);
    assert_int_equal(had.bytes, 0);
    assert_int_equal(had.count, 0);
    rpc_message_unref(list[0].message);
    rpc_message_unref(list[1].message);
}

TEST_F(a_fragment_of_no_value_is_refused, fragments)
{
    assert_int_equal(fragment(f, "two", 0), ERR_MALFORMED);
    assert_non_null(strstr(f->reason.text, "a fragment of no value"));
}

TEST_F(a_value_inside_another_one_is_refused, fragments)
{
    assert_int_equal(have(f, "one ", 9), ERR_OK);
    assert_int_equal(have(f, "one ", 9), ERR_MALFORMED);
    assert_int_equal(have(f, "value", 0), ERR_MALFORMED);
}

TEST_F(a_fragment_that_leaves_another_rest_is_refused, fragments)
{
    assert_int_equal(have(f, "one ", 9), ERR_OK);
    assert_int_equal(fragment(f, "two ", 6), ERR_MALFORMED);
    assert_int_equal(fragment(f, "more than nine", 0), ERR_MALFORMED);
    assert_int_equal(fragment(f, "", 9), ERR_MALFORMED);
}

TEST_F(a_value_in_too_many_messages_is_refused, fragments)
{
    assert_int_equal(have(f, "o", 200), ERR_OK);
    for (unsigned i = 1; i < WIRE_FRAGMENTS_MAX; i++)
        assert_int_equal(fragment(f, "o", 200 - i), ERR_OK);
    assert_int_equal(fragment(f, "o", 200 - WIRE_FRAGMENTS_MAX), ERR_MALFORMED);
}

TEST_F(a_value_that_will_be_too_long_is_refused, fragments)
{
    assert_int_equal(have(f, "one ", WIRE_VALUE_BYTES_MAX - 4), ERR_OK);
    fragments_free(f->fragments);
    f->fragments = NULL;
    assert_int_equal(have(f, "one ", WIRE_VALUE_BYTES_MAX - 3), ERR_MALFORMED);
}

TEST(the_longest_value_fits_its_messages)
{
    for (size_t bytes = 1; bytes <= WIRE_VALUE_BYTES_MAX; bytes += bytes / 2 + 1)
        assert_true((bytes + fragments_bytes(bytes) - 1) / fragments_bytes(bytes) <=
                    WIRE_FRAGMENTS_MAX);
    assert_true(WIRE_VALUE_BYTES_MAX / fragments_bytes(WIRE_VALUE_BYTES_MAX) <= WIRE_FRAGMENTS_MAX);
}
