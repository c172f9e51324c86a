/* What a cloud's metadata service says about the machine's end. */
#include "tests/unit/unit.h"

#include "worker/notice.h"

#define SOON_NS (1474309787 * UINT64_C(1000000000)) /* Mon, 19 Sep 2016 18:29:47 GMT */

/* Question i of the cloud, answered so. */
static enum notice_verdict judge(enum notice_cloud cloud, uint32_t i, unsigned status,
                                 const char *body, char ret_text[static NOTICE_TEXT_BYTES])
{
    const struct notice_questions *questions = notice_questions(cloud);
    assert_true(i < questions->count);
    struct notice_machine machine = {.name = "trainer_7", .soon_ns = SOON_NS};
    ret_text[0] = 0;
    return questions->questions[i].judge(status, slice_of(body), &machine, ret_text);
}

TEST(aws_marks_an_instance_whatever_the_words)
{
    char text[NOTICE_TEXT_BYTES];
    assert_int_equal(judge(NOTICE_AWS, 0, 404, "", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_AWS, 0, 500, "{}", text), NOTICE_NOTHING);
    assert_int_equal(
        judge(NOTICE_AWS, 0, 200, "{\"action\":\"stop\",\"time\":\"2026-11-20T08:22:00Z\"}", text),
        NOTICE_LEAVE);
    assert_string_equal(text, "spot stop 2026-11-20T08:22:00Z");
    assert_int_equal(judge(NOTICE_AWS, 0, 200, "soon", text), NOTICE_LEAVE);
    assert_int_equal(judge(NOTICE_AWS, 0, 200, "{\"action\":\"a\\u001b[2J\",\"time\":7}", text),
                     NOTICE_LEAVE);
    assert_string_equal(text, "spot  "); /* what is strange does not reach a terminal */
}

TEST(aws_recommends_without_force)
{
    char text[NOTICE_TEXT_BYTES];
    assert_int_equal(judge(NOTICE_AWS, 1, 404, "", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_AWS, 1, 200, "no JSON", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_AWS, 1, 200, "{\"noticeTime\":\"2026-11-20T08:22:00Z\"}", text),
                     NOTICE_WARNING);
    assert_string_equal(text, "rebalance recommendation 2026-11-20T08:22:00Z");
}

TEST(gcp_says_true)
{
    char text[NOTICE_TEXT_BYTES];
    assert_int_equal(judge(NOTICE_GCP, 0, 200, "FALSE", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_GCP, 0, 200, "", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_GCP, 0, 404, "TRUE", text), NOTICE_NOTHING);
    assert_int_equal(judge(NOTICE_GCP, 0, 200, "TRUE\n", text), NOTICE_LEAVE);
}

TEST(azure_s_events_concern_the_machines_they_name)
{
    char text[NOTICE_TEXT_BYTES];
    static const char *const nothing[] = {
        "",
        "[]",
        "{\"Events\":{}}",
        "{\"Events\":[]}",
        "{\"Events\":[7,{\"EventType\":\"Preempt\"}]}",
        "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"trainer_8\",7]}]}",
        "{\"Events\":[{\"EventType\":\"Freeze\",\"Resources\":[\"trainer_7\"]}]}",
    };
    for (size_t i = 0; i < sizeof nothing / sizeof nothing[0]; i++)
        assert_int_equal(judge(NOTICE_AZURE, 0, 200, nothing[i], text), NOTICE_NOTHING);
    assert_int_equal(
        judge(NOTICE_AZURE, 0, 200,
              "{\"Events\":[{\"EventType\":\"Freeze\",\"Resources\":[\"trainer_7\"]},"
              "{\"EventType\":\"Terminate\",\"Resources\":[\"trainer_8\",\"trainer_7\"]}]}",
              text),
        NOTICE_LEAVE);
    assert_string_equal(text, "Terminate");
}

TEST(azure_s_event_is_a_reason_to_leave_when_it_is_near)
{
    static const struct {
        const char *when;
        enum notice_verdict verdict;
    } rows[] = {
        {"\"EventStatus\":\"Scheduled\",\"NotBefore\":\"Sun, 25 Sep 2016 18:29:47 GMT\"",
         NOTICE_WARNING},
        {"\"NotBefore\":\"Mon, 19 Sep 2016 18:29:48 GMT\"", NOTICE_WARNING},
        {"\"NotBefore\":\"Mon, 19 Sep 2016 18:29:47 GMT\"", NOTICE_LEAVE},
        {"\"NotBefore\":\"Mon, 12 Sep 2016 18:29:47 GMT\"", NOTICE_LEAVE},
        {"\"EventStatus\":\"Started\",\"NotBefore\":\"\"", NOTICE_LEAVE},
        {"\"EventStatus\":\"Started\",\"NotBefore\":\"Sun, 25 Sep 2016 18:29:47 GMT\"",
         NOTICE_LEAVE},
        {"\"EventStatus\":\"Scheduled\",\"NotBefore\":\"\"", NOTICE_LEAVE},
        {"\"NotBefore\":\"in six days\"", NOTICE_LEAVE},
        {"\"NotBefore\":7", NOTICE_LEAVE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char body[256], text[NOTICE_TEXT_BYTES];
        snprintf(body, sizeof body,
                 "{\"Events\":[{\"EventType\":\"Redeploy\",\"Resources\":[\"trainer_7\"],%s}]}",
                 rows[i].when);
        assert_int_equal(judge(NOTICE_AZURE, 0, 200, body, text), rows[i].verdict);
        if (i == 0)
            assert_string_equal(text, "Redeploy not before 2016-09-25T18:29:47.000Z");
    }
}

#define DISTANT                                                                                    \
    "{\"EventType\":\"Redeploy\",\"EventStatus\":\"Scheduled\",\"Resources\":[\"trainer_7\"],"     \
    "\"NotBefore\":\"Sun, 25 Sep 2016 18:29:47 GMT\"}"
#define STARTED(type)                                                                              \
    "{\"EventType\":\"" type "\",\"EventStatus\":\"Started\",\"Resources\":[\"trainer_7\"],"       \
    "\"NotBefore\":\"\"}"

TEST(azure_s_distant_event_hides_no_near_one)
{
    char text[NOTICE_TEXT_BYTES];
    assert_int_equal(
        judge(NOTICE_AZURE, 0, 200, "{\"Events\":[" DISTANT "," STARTED("Reboot") "]}", text),
        NOTICE_LEAVE);
    assert_string_equal(text, "Reboot");
}

TEST(azure_s_reboot_that_the_machine_came_back_from_is_no_reason_to_leave)
{
    char text[NOTICE_TEXT_BYTES];
    struct notice_machine machine = {.name = "trainer_7", .soon_ns = SOON_NS, .may_be_back = true};
    static const struct {
        const char *body;
        enum notice_verdict verdict;
    } rows[] = {
        {"no JSON", NOTICE_NOTHING}, /* no answer yet */
        {"{\"Events\":[" STARTED("Reboot") "," DISTANT "]}", NOTICE_WARNING},
        {"{\"Events\":[" STARTED("Reboot") "]}", NOTICE_WARNING},
        {"{\"Events\":[" STARTED("Reboot") "," STARTED("Preempt") "]}", NOTICE_LEAVE},
        {"{\"Events\":[" DISTANT "]}", NOTICE_WARNING},
        {"{\"Events\":[" STARTED("Redeploy") "]}", NOTICE_LEAVE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(notice_questions(NOTICE_AZURE)
                             ->questions[0]
                             .judge(200, slice_of(rows[i].body), &machine, text),
                         rows[i].verdict);
        if (i == 1)
            assert_string_equal(text, "Reboot started before this worker");
    }
}

TEST(a_word_is_short_and_printable)
{
    char word[8];
    assert_true(notice_word(slice_of("token==\r\n"), word, sizeof word));
    assert_string_equal(word, "token==");
    assert_false(notice_word(slice_of("token==="), word, sizeof word));
    assert_false(notice_word(slice_of(""), word, sizeof word));
    assert_false(notice_word(slice_of("a b"), word, sizeof word));
    assert_false(notice_word(slice_of("a\r\nb"), word, sizeof word));
    assert_false(notice_word((struct slice){(const uint8_t *)"a\0b", 3}, word, sizeof word));
}
