/* What a client makes of a call's end. */
#include "tests/unit/unit.h"

#include "common/rpc/grpc/core.h"

#define ALL_ADDRESSES "failed to connect to all addresses; last error: UNKNOWN"

/* Of one that no server of ours has ended. */
static void read_unavailable(const char *text, struct reason *ret_reason)
{
    struct rpc_ending ending;
    rpc_ending_init(&ending);
    ending.code = GRPC_STATUS_UNAVAILABLE;
    ending.text = grpc_slice_from_copied_string(text);
    enum err err = rpc_ending_read(&ending, false, NULL, ret_reason);
    rpc_ending_release(&ending);
    assert_int_equal(err, ERR_UNREACHABLE);
}

TEST(an_address_that_does_not_answer_is_said_plainly)
{
    struct reason reason = {0};
    read_unavailable(ALL_ADDRESSES ": ipv4:127.0.0.1:1: Failed to connect to remote host: "
                                   "Connection refused",
                     &reason);
    assert_string_equal(reason.text, "cannot connect to 127.0.0.1:1: Connection refused");
    read_unavailable(ALL_ADDRESSES ": ipv6:%5B::1%5D:1: No route to host", &reason);
    assert_string_equal(reason.text, "cannot connect to [::1]:1: No route to host");
    read_unavailable(ALL_ADDRESSES ": ipv6:%5bfe80::1%251%5d:9: No route to host", &reason);
    assert_string_equal(reason.text, "cannot connect to [fe80::1%1]:9: No route to host");
}

/* A foreign server may choose the sentence: what would steer a terminal stays as it is written. */
TEST(an_escape_that_is_none_stays)
{
    struct reason reason = {0};
    read_unavailable(ALL_ADDRESSES ": ipv4:a%1Bb%4 %zz%4", &reason);
    assert_string_equal(reason.text, "cannot connect to a%1Bb%4 %zz%4");
}

TEST(an_address_of_no_kind_is_none)
{
    struct reason reason = {0};
    read_unavailable(ALL_ADDRESSES ": ipv5:here: Connection refused", &reason);
    assert_string_equal(reason.text, ALL_ADDRESSES ": ipv5:here: Connection refused");
}

/* A sentence that a foreign server chose: where it is cut, the address has only begun. */
TEST(an_address_that_is_cut_off_is_none)
{
    enum { CUT_BYTES = 599 };
    char text[CUT_BYTES + 100];
    struct reason reason = {0};
    for (size_t begun = 1; begun <= strlen(": ipv4:"); begun++) {
        memset(text, 'x', sizeof text);
        memcpy(text, ALL_ADDRESSES, strlen(ALL_ADDRESSES));
        snprintf(text + CUT_BYTES - begun, sizeof text + begun - CUT_BYTES, ": ipv4:127.0.0.1:1");
        read_unavailable(text, &reason);
        if (begun < strlen(": ipv4:"))
            assert_memory_equal(reason.text, ALL_ADDRESSES, strlen(ALL_ADDRESSES));
    }
}
