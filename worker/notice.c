/* A cloud's notices of the machine's end. */
#include "worker/notice.h"

#include "common/files/json.h"

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
static enum notice_verdict judge_aws_spot(unsigned status, struct slice body, const char *machine,
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
                                               const char *machine,
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

static enum notice_verdict judge_gcp(unsigned status, struct slice body, const char *machine,
                                     char ret_text[static NOTICE_TEXT_BYTES])
{
    (void)machine;
    char word[8];
    if (status != 200 || !notice_word(body, word, sizeof word) || strcmp(word, "TRUE") != 0)
        return NOTICE_NOTHING;
    snprintf(ret_text, NOTICE_TEXT_BYTES, "instance preempted");
    return NOTICE_LEAVE;
}

/* Whether the event ends the machine. A freeze of some seconds does not: the lease may outlast
 * it. */
static bool ends_machine(const char *type)
{
    static const char *const types[] = {"Preempt", "Terminate", "Redeploy", "Reboot"};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i], type) == 0)
            return true;
    return false;
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

static enum notice_verdict judge_azure(unsigned status, struct slice body, const char *machine,
                                       char ret_text[static NOTICE_TEXT_BYTES])
{
    scoped(json_free_scoped) struct json *json = NULL;
    const struct json *events;
    if (status != 200 || json_parse("scheduledevents", body, &json, NULL) != ERR_OK ||
        json_get_array(json, "Events", &events, NULL) != ERR_OK)
        return NOTICE_NOTHING;
    for (size_t i = 0; i < json_count(events); i++) {
        const struct json *event = json_at(events, i);
        struct word type = word_of(event, "EventType");
        if (!ends_machine(type.text) || !concerns(event, machine))
            continue;
        snprintf(ret_text, NOTICE_TEXT_BYTES, "%s", type.text);
        return NOTICE_LEAVE;
    }
    return NOTICE_NOTHING;
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
