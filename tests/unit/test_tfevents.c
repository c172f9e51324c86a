/* TensorBoard event files, against records computed independently. */
#include "tests/unit/folder.h"

#include "common/files/tfevents.h"

static void assert_hex(const struct buf *bytes, const char *hex)
{
    size_t at = 0;
    for (const char *c = hex; *c != 0; c += *c == ' ' ? 1 : 2) {
        if (*c == ' ')
            continue;
        unsigned byte;
        assert_int_equal(sscanf(c, "%2x", &byte), 1);
        assert_true(at < bytes->bytes);
        assert_int_equal(bytes->data[at++], byte);
    }
    assert_int_equal(at, bytes->bytes);
}

TEST(the_version_record_is_the_known_one)
{
    scoped(buf_release) struct buf out = {0};
    assert_int_equal(tfevents_put_version(&out, 1.0), ERR_OK);
    assert_hex(&out, "1800000000000000 a37f4b22 "
                     "09000000000000f03f1a0d627261696e2e4576656e743a32 86bf577a");
}

TEST(a_scalar_record_is_the_known_one)
{
    scoped(buf_release) struct buf out = {0};
    const struct tfevents_scalar scalar = {1.0, 7, "loss", 2.5f};
    assert_int_equal(tfevents_put_scalar(&out, &scalar), ERR_OK);
    assert_hex(&out, "1a00000000000000 129bd82d "
                     "09000000000000f03f10072a0d0a0b0a046c6f73731500002040 87ccc43d");
}

TEST(large_steps_and_long_tags_take_longer_varints)
{
    char tag[201];
    memset(tag, 't', 200);
    tag[200] = 0;
    scoped(buf_release) struct buf out = {0};
    const struct tfevents_scalar scalar = {1.0, 300, tag, 0};
    assert_int_equal(tfevents_put_scalar(&out, &scalar), ERR_OK);
    /* 9 (wall) + 3 (step 300: ac 02) + 3 + 3 + 3 + 200 + 5 */
    assert_int_equal(out.bytes, 12 + 226 + 4);
    assert_int_equal(out.data[0], 226);
    static const uint8_t middle[] = {0x10, 0xac, 0x02, 0x2a, 0xd3, 0x01, 0x0a,
                                     0xd0, 0x01, 0x0a, 0xc8, 0x01, 't'};
    assert_memory_equal(out.data + 12 + 9, middle, sizeof middle);
}

TEST_IN_FOLDER(a_file_begins_with_its_version_and_is_named_for_tensorboard)
{
    const char *folder = folder_path(state, ".");
    scoped(buf_release) struct buf expected = {0}, found = {0};
    assert_int_equal(tfevents_put_version(&expected, 1700000000.25), ERR_OK);
    scoped(tfevents_release) struct tfevents events = {0};
    assert_int_equal(tfevents_open(&file_ops_real, folder, 1700000000.25, &events, NULL), ERR_OK);
    scoped(file_names_release) struct file_names names = {0};
    const char *pattern = folder_path(state, "events.out.tfevents.1700000000.*.*.0");
    assert_int_equal(file_glob(pattern, &names, NULL), ERR_OK);
    assert_int_equal(file_read(names.names[0], 1000, &found, NULL), ERR_OK);
    assert_int_equal(found.bytes, expected.bytes);
    assert_memory_equal(found.data, expected.data, found.bytes);
}

TEST_IN_FOLDER(a_folder_that_is_not_there_is_named)
{
    struct reason reason;
    struct tfevents events;
    const char *folder = folder_path(state, "none");
    assert_int_equal(tfevents_open(&file_ops_real, folder, 1, &events, &reason), ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, folder));
}
