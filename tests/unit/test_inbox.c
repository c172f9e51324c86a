/* The bounded queue into an owner thread. */
#include "tests/unit/unit.h"

#include "common/inbox.h"
#include "common/thread.h"
#include "common/time.h"

struct item {
    uint32_t sender;
    uint32_t number;
};

#define PAST_NS 1 /* a moment that has passed on any machine */

static struct inbox *with_room_for(size_t items_max)
{
    struct inbox *inbox;
    assert_int_equal(inbox_new((struct inbox_limits){sizeof(struct item), items_max}, &inbox),
                     ERR_OK);
    return inbox;
}

TEST(items_come_out_in_the_order_they_went_in)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(5);
    struct item taken[8];
    uint32_t in = 0, out = 0;
    for (int turn = 0; turn < 50; turn++) { /* the ring's end falls inside batches, too */
        for (int i = 0; i < 1 + turn % 5; i++, in++)
            assert_int_equal(inbox_post(inbox, &(struct item){.number = in}), ERR_OK);
        while (out < in) {
            size_t count = 0;
            assert_int_equal(inbox_take(inbox, 0, 1 + (size_t)turn % 3, taken, &count), ERR_OK);
            assert_in_range(count, 1, 1 + turn % 3);
            for (size_t i = 0; i < count; i++, out++)
                assert_int_equal(taken[i].number, out);
        }
    }
}

TEST(a_full_inbox_refuses_and_keeps_what_it_has)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(2);
    struct item taken[3];
    size_t count = 0;
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 1}), ERR_OK);
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 2}), ERR_OK);
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 3}), ERR_BUSY);
    assert_int_equal(inbox_take(inbox, 0, 3, taken, &count), ERR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(taken[1].number, 2);
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 3}), ERR_OK);
}

TEST(who_posts_below_a_limit_leaves_the_other_places)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(3);
    const struct item item = {0};
    assert_int_equal(inbox_post(inbox, &item), ERR_OK);
    assert_int_equal(inbox_post_below(inbox, &item, 2), ERR_OK);
    assert_int_equal(inbox_post_below(inbox, &item, 2), ERR_BUSY);
    assert_int_equal(inbox_post(inbox, &item), ERR_OK);
    assert_int_equal(inbox_post(inbox, &item), ERR_BUSY);
}

TEST(an_empty_inbox_answers_at_the_deadline)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(2);
    struct item item;
    size_t count = 77;
    assert_int_equal(inbox_take(inbox, 0, 1, &item, &count), ERR_DEADLINE);
    assert_int_equal(inbox_take(inbox, PAST_NS, 1, &item, &count), ERR_DEADLINE);
    assert_int_equal(count, 77);
}

TEST(a_closed_inbox_is_emptied_and_then_says_so)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(2);
    struct item item;
    size_t count = 0;
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 9}), ERR_OK);
    inbox_close(inbox);
    assert_int_equal(inbox_post(inbox, &(struct item){.number = 10}), ERR_CANCELLED);
    assert_int_equal(inbox_take(inbox, TIME_NEVER, 1, &item, &count), ERR_OK);
    assert_int_equal(item.number, 9);
    assert_int_equal(inbox_take(inbox, TIME_NEVER, 1, &item, &count), ERR_CANCELLED);
}

TEST(more_than_memory_is_refused)
{
    struct inbox *inbox = NULL;
    assert_int_equal(inbox_new((struct inbox_limits){SIZE_MAX / 2, 4}, &inbox), ERR_NOMEM);
    assert_null(inbox);
    inbox_free(NULL);
}

#define SENDERS 4
#define NUMBERS 5000

struct sender {
    struct thread thread;
    struct inbox *inbox;
    uint32_t sender;
};

static void send_all(void *argument)
{
    const struct sender *sender = argument;
    for (uint32_t number = 0; number < NUMBERS; number++)
        while (inbox_post(sender->inbox, &(struct item){sender->sender, number}) == ERR_BUSY)
            continue;
}

TEST(each_senders_items_arrive_once_and_in_its_order)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(64);
    struct sender senders[SENDERS];
    for (uint32_t i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){.inbox = inbox, .sender = i};
        assert_int_equal(thread_start(&senders[i].thread, "sender", send_all, &senders[i]), ERR_OK);
    }
    uint32_t next[SENDERS] = {0};
    for (size_t total = 0, count; total < SENDERS * NUMBERS; total += count) {
        struct item items[16];
        assert_int_equal(inbox_take(inbox, TIME_NEVER, 16, items, &count), ERR_OK);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(items[i].number, next[items[i].sender]++);
    }
    for (uint32_t i = 0; i < SENDERS; i++)
        thread_join(&senders[i].thread);
    struct item item;
    size_t count;
    assert_int_equal(inbox_take(inbox, 0, 1, &item, &count), ERR_DEADLINE);
}

static void take_until_closed(void *argument)
{
    struct item item;
    size_t count;
    while (inbox_take(argument, TIME_NEVER, 1, &item, &count) == ERR_OK)
        continue;
}

TEST(closing_ends_an_owners_wait)
{
    scoped(inbox_free_scoped) struct inbox *inbox = with_room_for(1);
    struct thread owner;
    assert_int_equal(thread_start(&owner, "a name of more than 15", take_until_closed, inbox),
                     ERR_OK);
    inbox_close(inbox);
    thread_join(&owner);
}
