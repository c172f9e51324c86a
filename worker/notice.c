/* A cloud's notices of the machine's end. */
#include "worker/notice.h"

#include "common/files/json.h"
#include "common/time.h"

#include <string.h>

const char *notice_cloud_name(enum notice_cloud cloud)
{
    static const char *const names[NOTICE_CLOUD_COUNT] = {
        [NOTICE_AWS] = "aws", [NOTICE_GCP] = "gcp", [NOTICE_AZURE] = "azure"};
    return names[cloud];
}

bool notice_word(struct slice body, char *ret_text, size_t text_bytes)
{
    size_t bytes = body.bytes;
    while (bytes > 0 && (body.data[bytes - 1] == '\n' || body.data[bytes - 1] == '\r'))
        bytes--;
    if (bytes == 0 || bytes >= text_bytes)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (body.data[i] <= ' ' || body.data[i] > '~')
            return false;
    memcpy(ret_text, body.data, bytes);
    ret_text[bytes] = 0;
    return true;
}

/* A text of an answer, for people: "" where it is missing or strange. */
struct word {
    char text[40];
};

static struct word word_of(const struct json *object, const char *key)
{
    struct word word = {{0}};
    const char *text;
    if (json_get_text(object, key, &text, NULL) != ERR_OK ||
        !notice_word((struct slice){(const uint8_t *)text, strlen(text)}, word.text,
                     sizeof word.text))
        word.text[0] = 0;
    return word;
}

/* An answer that cannot be parsed still means that the instance is marked. */
static enum notice_verdict judge_aws_spot(unsigned status, struct slice body,
                                          struct notice_machine *machine,
                                          char ret_text[static NOTICE_TEXT_BYTES])
{
    (void)machine;
    scoped(json_free_scoped) struct json *json = NULL;
    if (status != 200)
        return NOTICE_NOTHING;
    if (json_parse("instance-action", body, &json, NULL) != ERR_OK)
        json = NULL;
    snprintf(ret_text, NOTICE_TEXT_BYTES, "spot %s %s",
             json != NULL ? word_of(json, "action").text : "",
             json != NULL ? word_of(json, "time").text : "");
    return NOTICE_LEAVE;
}

static enum notice_verdict judge_aws_rebalance(unsigned status, struct slice body,
                                               struct notice_machine *machine,
                                               char ret_text[static NOTICE_TEXT_BYTES])
{
    (void)machine;
    scoped(json_free_scoped) struct json *json = NULL;
    if (status != 200 || json_parse("rebalance", body, &json, NULL) != ERR_OK)
        return NOTICE_NOTHING;
    snprintf(ret_text, NOTICE_TEXT_BYTES, "rebalance recommendation %s",
             word_of(json, "noticeTime").text);
    return NOTICE_WARNING;
}

static enum notice_verdict judge_gcp(unsigned status, struct slice body,
                                     struct notice_machine *machine,
                                     char ret_text[static NOTICE_TEXT_BYTES])
{
    (void)machine;
    char word[8];
    if (status != 200 || !notice_word(body, word, sizeof word) || strcmp(word, "TRUE") != 0)
        return NOTICE_NOTHING;
    snprintf(ret_text, NOTICE_TEXT_BYTES, "instance preempted");
    return NOTICE_LEAVE;
}

/* What an event does to the machine. */
enum fate { FATE_STAYS, FATE_COMES_BACK, FATE_GOES };

/* A freeze of some seconds is none: the lease may outlast it. */
static enum fate fate_of(const char *type)
{
    static const struct {
        const char *type;
        enum fate fate;
    } rows[] = {{"Preempt", FATE_GOES},
                {"Terminate", FATE_GOES},
                {"Redeploy", FATE_COMES_BACK},
                {"Reboot", FATE_COMES_BACK}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].type, type) == 0)
            return rows[i].fate;
    return FATE_STAYS;
}

static bool concerns(const struct json *event, const char *machine)
{
    const struct json *resources;
    if (json_get_array(event, "Resources", &resources, NULL) != ERR_OK)
        return false;
    for (size_t i = 0; i < json_count(resources); i++) {
        const char *name = json_text(json_at(resources, i));
        if (name != NULL && strcmp(name, machine) == 0)
            return true;
    }
    return false;
}

static bool has_started(const struct json *event)
{
    return strcmp(word_of(event, "EventStatus").text, "Started") == 0;
}

/* When it may begin; 0: it has started, or does not say. */
static uint64_t begins_ns(const struct json *event)
{
    const char *date;
    uint64_t wall_ns;
    if (has_started(event) || json_get_text(event, "NotBefore", &date, NULL) != ERR_OK ||
        !time_parse_date(date, &wall_ns))
        return 0;
    return wall_ns;
}

/* ret_behind: it is listed still, though the machine may be back from it. */
static enum notice_verdict judge_event(const struct json *event,
                                       const struct notice_machine *machine, bool *ret_behind,
                                       char ret_text[static NOTICE_TEXT_BYTES])
{
    struct word type = word_of(event, "EventType");
    enum fate fate = fate_of(type.text);
    uint64_t wall_ns = begins_ns(event);
    if (fate == FATE_STAYS || !concerns(event, machine->name))
        return NOTICE_NOTHING;
    if (machine->may_be_back && fate == FATE_COMES_BACK && has_started(event)) {
        *ret_behind = true;
        snprintf(ret_text, NOTICE_TEXT_BYTES, "%s started before this worker", type.text);
        return NOTICE_WARNING;
    }
    if (wall_ns > machine->soon_ns) {
        snprintf(ret_text, NOTICE_TEXT_BYTES, "%s not before %s", type.text,
                 time_format_utc(wall_ns).text);
        return NOTICE_WARNING;
    }
    snprintf(ret_text, NOTICE_TEXT_BYTES, "%s", type.text);
    return NOTICE_LEAVE;
}

static enum notice_verdict judge_azure(unsigned status, struct slice body,
                                       struct notice_machine *machine,
                                       char ret_text[static NOTICE_TEXT_BYTES])
{
    scoped(json_free_scoped) struct json *json = NULL;
    const struct json *events;
    enum notice_verdict verdict = NOTICE_NOTHING;
    bool any_behind = false;
    if (status != 200 || json_parse("scheduledevents", body, &json, NULL) != ERR_OK ||
        json_get_array(json, "Events", &events, NULL) != ERR_OK)
        return NOTICE_NOTHING;
    for (size_t i = 0; i < json_count(events); i++) {
        char text[NOTICE_TEXT_BYTES];
        enum notice_verdict one = judge_event(json_at(events, i), machine, &any_behind, text);
        if (one <= verdict)
            continue;
        verdict = one;
        snprintf(ret_text, NOTICE_TEXT_BYTES, "%s", text);
    }
    machine->may_be_back = any_behind;
    return verdict;
}

const struct notice_questions *notice_questions(enum notice_cloud cloud)
{
    static const struct notice_questions clouds[NOTICE_CLOUD_COUNT] = {
        [NOTICE_AWS] = {.secret_method = "PUT",
                        .secret_path = "/latest/api/token",
                        .secret_header = "X-aws-ec2-metadata-token-ttl-seconds: 21600",
                        .secret_name = "X-aws-ec2-metadata-token",
                        .probe_path = "/latest/meta-data/instance-id",
                        .count = 2,
                        .questions = {{"/latest/meta-data/spot/instance-action", judge_aws_spot},
                                      {"/latest/meta-data/events/recommendations/rebalance",
                                       judge_aws_rebalance}}},
        [NOTICE_GCP] = {.header = "Metadata-Flavor: Google",
                        .probe_path = "/computeMetadata/v1/instance/id",
                        .count = 1,
                        .questions = {{"/computeMetadata/v1/instance/preempted", judge_gcp}}},
        [NOTICE_AZURE] = {.header = "Metadata: true",
                          .probe_path = "/metadata/instance/compute/name"
                                        "?api-version=2021-02-01&format=text",
                          .probe_is_name = true,
                          .count = 1,
                          .questions = {{"/metadata/scheduledevents?api-version=2020-07-01",
                                         judge_azure}}},
    };
    return &clouds[cloud];
}
