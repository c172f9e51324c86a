/* Which GPU a worker takes. */
#include "tests/unit/unit.h"

#include "common/settings/options.h"

#include "worker/devices.h"

static void assert_chosen(const char *visible, uint32_t count, uint32_t wanted,
                          const char *expected)
{
    char name[16];
    assert_int_equal(devices_choose(visible, count, wanted, name, sizeof name), expected != NULL);
    if (expected != NULL)
        assert_string_equal(name, expected);
}

TEST(workers_take_gpus_in_turn)
{
    assert_chosen(NULL, 4, 0, "0");
    assert_chosen(NULL, 4, 3, "3");
    assert_chosen(NULL, 4, 6, "2");
    assert_chosen(NULL, 0, 1, NULL);
}

TEST(a_list_of_visible_gpus_is_gone_round)
{
    assert_chosen("5", 4, 0, "5");
    assert_chosen("5", 4, 7, "5");
    assert_chosen("2,GPU-8a,6", 4, 1, "GPU-8a");
    assert_chosen("2,GPU-8a,6", 0, 5, "6");
    assert_chosen("GPU-8a0c1111-2222", 1, 0, NULL); /* longer than its room */
}

/* As the driver reads the variable. */
TEST(a_hidden_gpu_is_not_taken)
{
    assert_chosen("", 4, 0, NULL);
    assert_chosen("-1", 4, 0, NULL);
    assert_chosen("2,-1,3", 4, 0, "2");
    assert_chosen("2,-1,3", 4, 1, "2");
    assert_chosen("2,,3", 4, 1, "2");
    assert_chosen("2,3,", 4, 2, "2");
}

static void assert_listed(const char *visible, uint32_t there, struct devices_range wanted,
                          const char *expected)
{
    char names[16];
    assert_int_equal(devices_list(visible, there, wanted, names, sizeof names), expected != NULL);
    if (expected != NULL)
        assert_string_equal(names, expected);
}

TEST(a_worker_of_several_devices_takes_each_once)
{
    assert_listed(NULL, 4, (struct devices_range){0, 1}, "0");
    assert_listed(NULL, 4, (struct devices_range){2, 2}, "2,3");
    assert_listed(NULL, 4, (struct devices_range){3, 3}, "3,0,1");
    assert_listed(NULL, 2, (struct devices_range){1, 4}, "1,0");
    assert_listed("5,GPU-8a", 4, (struct devices_range){1, 2}, "GPU-8a,5");
    assert_listed("5,GPU-8a,-1,6", 4, (struct devices_range){0, 4}, "5,GPU-8a");
    assert_listed("", 4, (struct devices_range){0, 2}, NULL);
    assert_listed(NULL, 0, (struct devices_range){0, 2}, NULL);
    assert_listed(NULL, 16, (struct devices_range){0, 16}, NULL); /* longer than its room */
}

static void assert_taken(const char *visible, struct devices_range wanted, uint32_t first,
                         const char *left)
{
    assert_int_equal(setenv("CUDA_VISIBLE_DEVICES", visible, 1), 0);
    assert_int_equal(devices_take(wanted), first);
    assert_string_equal(options_environment("CUDA_VISIBLE_DEVICES", NULL), left);
}

TEST(a_process_sees_the_gpus_that_it_takes)
{
    assert_taken("5,GPU-8a", (struct devices_range){1, 1}, 0, "GPU-8a");
    assert_taken("5,GPU-8a", (struct devices_range){1, 2}, 0, "GPU-8a,5");
}

/* A driver may show them without such files. */
TEST(of_gpus_that_are_not_known_the_first_has_its_number)
{
    assert_taken("", (struct devices_range){3, 2}, 3, "");
}
