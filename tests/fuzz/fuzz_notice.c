/* What a metadata service answers; the first byte chooses the question. What is said of it can be
 * printed. */
#include "tests/fuzz/fuzz.h"

#include "worker/notice.h"

#include <string.h>

#define SOON_NS (1474309787 * UINT64_C(1000000000)) /* Mon, 19 Sep 2016 18:29:47 GMT */

static void check_text(const char *text)
{
    size_t bytes = strnlen(text, NOTICE_TEXT_BYTES);
    check(bytes < NOTICE_TEXT_BYTES);
    for (size_t i = 0; i < bytes; i++)
        check(text[i] >= ' ' && text[i] <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    const struct notice_questions *cloud = notice_questions(data[0] % NOTICE_CLOUD_COUNT);
    struct slice body = {data + 1, bytes - 1};
    char word[32];
    for (uint32_t i = 0; i < cloud->count; i++) {
        char text[NOTICE_TEXT_BYTES] = "";
        struct notice_machine machine = {
            .name = "trainer_7", .soon_ns = SOON_NS, .may_be_back = true};
        for (int answer = 0; answer < 2; answer++)
            if (cloud->questions[i].judge(200, body, &machine, text) != NOTICE_NOTHING)
                check_text(text);
    }
    if (notice_word(body, word, sizeof word))
        check_text(word);
    return 0;
}
