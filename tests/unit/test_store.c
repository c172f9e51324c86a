/* The facts that a cluster must not forget, in SQLite. Each test has a file of its own. */
#include "tests/unit/folder.h"

#include "server/disk/store.h"

#include <sys/stat.h>
#include <unistd.h>

struct store_fixture {
    void *folder;
    const char *path;
    struct store *store;
    uint64_t term;
};

static void reopen(struct store_fixture *f)
{
    store_free(f->store);
    f->store = NULL;
    assert_int_equal(store_open_sqlite(f->path, &f->store, NULL), ERR_OK);
}

static void store_set_up(struct store_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    f->path = folder_path(&f->folder, "roost.db");
    reopen(f);
    assert_int_equal(store_take_term(f->store, &f->term, NULL), ERR_OK);
}

static void store_tear_down(struct store_fixture *f)
{
    store_free(f->store);
    folder_remove(&f->folder);
}

static struct store_run run_in(const char *directory)
{
    struct store_run run = {.servers_min = 2,
                            .samples = 1000,
                            .validation_samples = 50,
                            .unigram_entropy = 3.25,
                            .state = RUN_STARTING};
    run.directory = strdup(directory);
    run.spec = strdup("train: {steps: 3}");
    run.restore = strdup("");
    run.data_digest[31] = 9;
    return run;
}

static uint64_t add_run(struct store_fixture *f, const char *directory)
{
    struct store_run run = run_in(directory);
    assert_int_equal(store_add_run(f->store, f->term, &run, NULL, NULL), ERR_OK);
    uint64_t number = run.run;
    store_run_release(&run);
    return number;
}

static struct cut_record cut_of(uint64_t generation, uint64_t version)
{
    struct cut_record cut = {.name = {generation, version},
                             .counters = {8 * version, version, 1},
                             .server_count = 2,
                             .servers = {{.name = "s0"}, {.name = "s1"}}};
    cut.servers[1].digest[0] = (uint8_t)version;
    return cut;
}

static void put_cut(struct store_fixture *f, uint64_t run, uint64_t generation, uint64_t version)
{
    struct cut_record cut = cut_of(generation, version);
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 2, NULL, NULL), ERR_OK);
}

TEST_F(p3_every_start_has_a_new_boot_number, store)
{
    uint64_t first, second;
    assert_int_equal(store_next_boot(f->store, &first, NULL), ERR_OK);
    reopen(f);
    assert_int_equal(store_next_boot(f->store, &second, NULL), ERR_OK);
    assert_true(second > first && first > 0);
}

/* Its directory was lost: what it gave before must not be given again. Terms begin at one of 2^20
 * numbers: one of three may be near the one before, by chance. */
TEST_F(p3_p7_a_new_store_counts_from_anywhere, store)
{
    uint64_t boot, boot_before = 0, term_before = f->term, far = 0;
    assert_int_equal(store_next_boot(f->store, &boot_before, NULL), ERR_OK);
    assert_true(f->term <= UINT32_MAX / 2);
    for (int i = 0; i < 3; i++, term_before = f->term, boot_before = boot) {
        store_free(f->store);
        f->store = NULL;
        folder_remove(&f->folder);
        store_set_up(f);
        assert_int_equal(store_next_boot(f->store, &boot, NULL), ERR_OK);
        assert_true(boot + 100 < boot_before || boot_before + 100 < boot);
        far += f->term + 100 < term_before || term_before + 100 < f->term;
    }
    assert_true(far > 1);
}

TEST_F(p7_a_term_is_replaced_by_its_own_coordinator_only, store)
{
    uint64_t next;
    assert_int_equal(store_put_term(f->store, f->term + 1, f->term + 9, NULL), ERR_OLD_TERM);
    assert_int_equal(store_put_term(f->store, f->term, f->term + 9, NULL), ERR_OK);
    assert_int_equal(store_take_term(f->store, &next, NULL), ERR_OK);
    assert_true(next > f->term + 9);
}

/* It forgot the last numbers: of three starts two may have the same step by chance. */
TEST_F(p3_p7_a_store_from_a_backup_counts_elsewhere, store)
{
    uint64_t term = f->term, boot, next, boot_next, other = 0;
    assert_int_equal(store_next_boot(f->store, &boot, NULL), ERR_OK);
    for (int i = 0; i < 3; i++, term = next, boot = boot_next) {
        assert_int_equal(store_take_term(f->store, &next, NULL), ERR_OK);
        assert_int_equal(store_next_boot(f->store, &boot_next, NULL), ERR_OK);
        assert_true(next > term && next <= term + 4096);
        assert_true(boot_next > boot);
        other += next > term + 1 && boot_next > boot + 1;
    }
    assert_true(other > 1);
}

struct beside_fixture {
    struct store *store;
    int calls;
    enum err takes_term, returns;
};

static enum err write_beside(void *owner, struct reason *reason)
{
    struct beside_fixture *beside = owner;
    uint64_t term;
    (void)reason;
    beside->calls++;
    beside->takes_term = store_take_term(beside->store, &term, NULL);
    return beside->returns;
}

TEST_F(p7_a_cut_s_files_are_written_while_nobody_takes_another_term, store)
{
    uint64_t run = add_run(f, "a"), successor;
    struct cut_record cut = cut_of(1, 0), newest;
    uint32_t count;
    struct beside_fixture beside = {.store = f->store, .returns = ERR_NO_SPACE};
    const struct store_beside files = {write_beside, &beside};
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 3, &files, NULL), ERR_NO_SPACE);
    assert_int_equal(store_get_cuts(f->store, run, &newest, 1, &count, NULL), ERR_OK);
    assert_int_equal(count, 0); /* the files come first */
    beside.returns = ERR_OK;
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 3, &files, NULL), ERR_OK);
    assert_int_not_equal(beside.takes_term, ERR_OK);
    assert_int_equal(beside.calls, 2);
    assert_int_equal(store_take_term(f->store, &successor, NULL), ERR_OK);
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 3, &files, NULL), ERR_OLD_TERM);
    assert_int_equal(beside.calls, 2);
}

TEST_F(p7_what_an_old_coordinator_writes_is_refused, store)
{
    struct reason reason;
    struct coordinator_past past;
    uint64_t successor;
    const uint8_t fingerprint[WIRE_DIGEST_BYTES] = {1};
    struct cut_record cut = cut_of(1, 1);
    uint64_t run = add_run(f, "a");
    put_cut(f, run, 1, 0);
    assert_int_equal(store_take_term(f->store, &successor, NULL), ERR_OK);
    assert_true(successor > f->term);
    assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 3, NULL, &reason), ERR_OLD_TERM);
    assert_int_equal(store_put_generation(f->store, f->term, 1, 9, NULL), ERR_OLD_TERM);
    assert_int_equal(store_put_fingerprint(f->store, f->term, run, fingerprint, NULL),
                     ERR_OLD_TERM);
    assert_int_equal(store_put_state(f->store, f->term, run, RUN_FAILED, "", NULL), ERR_OLD_TERM);
    struct store_run other = run_in("b");
    assert_int_equal(store_add_run(f->store, f->term, &other, NULL, NULL), ERR_OLD_TERM);
    store_run_release(&other);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.generation, 0);
    assert_int_equal(past.cut.name.version, 0);
    assert_false(past.has_fingerprint);
    assert_int_equal(store_put_generation(f->store, successor, 1, 9, NULL), ERR_OK);
}

TEST_F(a_run_comes_back_as_it_was_started, store)
{
    uint64_t number = add_run(f, "a");
    reopen(f);
    scoped(store_run_release) struct store_run run = {0};
    assert_int_equal(store_find_run(f->store, "a", &run, NULL), ERR_OK);
    assert_int_equal(run.run, number);
    assert_string_equal(run.directory, "a");
    assert_string_equal(run.spec, "train: {steps: 3}");
    assert_string_equal(run.restore, "");
    assert_int_equal(run.servers_min, 2);
    assert_int_equal(run.samples, 1000);
    assert_int_equal(run.validation_samples, 50);
    assert_int_equal(run.data_digest[31], 9);
    assert_true(run.unigram_entropy == 3.25);
    assert_int_equal(run.state, RUN_STARTING);
    assert_false(run.has_fingerprint);
}

TEST_F(a_directory_has_one_run, store)
{
    struct reason reason;
    uint64_t untrained = add_run(f, "a");
    uint64_t first = add_run(f, "a"); /* the one before has nothing to lose */
    assert_true(first > untrained);
    struct cut_record cut = cut_of(1, 0);
    assert_int_equal(store_put_cut(f->store, f->term, first, &cut, 1, NULL, NULL), ERR_OK);
    struct store_run again = run_in("a");
    assert_int_equal(store_add_run(f->store, f->term, &again, NULL, &reason), ERR_EXISTS);
    store_run_release(&again);
    assert_true(add_run(f, "b") > first);
    struct store_run none;
    assert_int_equal(store_find_run(f->store, "c", &none, &reason), ERR_NOT_FOUND);
}

TEST_F(the_active_run_is_the_newest_that_has_not_ended, store)
{
    struct store_run run;
    assert_int_equal(store_find_active_run(f->store, &run, NULL), ERR_NOT_FOUND);
    assert_int_equal(store_find_newest_run(f->store, &run, NULL), ERR_NOT_FOUND);
    uint64_t first = add_run(f, "a"), second = add_run(f, "b");
    assert_int_equal(store_put_state(f->store, f->term, first, RUN_ENDED, "", NULL), ERR_OK);
    assert_int_equal(store_put_state(f->store, f->term, second, RUN_TRAINING, "", NULL), ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &run, NULL), ERR_OK);
    assert_int_equal(run.run, second);
    store_run_release(&run);
    assert_int_equal(store_put_state(f->store, f->term, second, RUN_FAILED, "no space", NULL),
                     ERR_OK);
    assert_int_equal(store_find_active_run(f->store, &run, NULL), ERR_NOT_FOUND);
    assert_int_equal(store_find_run(f->store, "b", &run, NULL), ERR_OK);
    assert_string_equal(run.reason, "no space");
    store_run_release(&run);
    assert_int_equal(store_find_newest_run(f->store, &run, NULL), ERR_OK);
    assert_int_equal(run.run, second);
    store_run_release(&run);
    assert_int_equal(store_put_state(f->store, f->term, 77, RUN_FAILED, "", NULL), ERR_NOT_FOUND);
}

TEST_F(a_runs_settings_change_while_it_trains, store)
{
    struct store_run run;
    uint64_t number = add_run(f, "a");
    assert_int_equal(store_put_state(f->store, f->term, number, RUN_TRAINING, "", NULL), ERR_OK);
    assert_int_equal(store_put_spec(f->store, f->term, number, "train: {steps: 6}", NULL), ERR_OK);
    assert_int_equal(store_put_spec(f->store, f->term + 1, number, "no", NULL), ERR_OLD_TERM);
    assert_int_equal(store_put_spec(f->store, f->term, number + 1, "no", NULL), ERR_NOT_FOUND);
    assert_int_equal(store_find_active_run(f->store, &run, NULL), ERR_OK);
    assert_string_equal(run.spec, "train: {steps: 6}");
    store_run_release(&run);
}

TEST_F(a_continued_run_keeps_its_number_under_its_new_settings, store)
{
    struct store_run run;
    uint64_t number = add_run(f, "a");
    assert_int_equal(store_find_run(f->store, "a", &run, NULL), ERR_OK);
    free(run.spec);
    run.spec = strdup("train: {steps: 6}");
    run.servers_min = 3;
    assert_int_equal(store_change_run(f->store, f->term, &run, NULL), ERR_OK);
    store_run_release(&run);
    assert_int_equal(store_find_run(f->store, "a", &run, NULL), ERR_OK);
    assert_int_equal(run.run, number);
    assert_string_equal(run.spec, "train: {steps: 6}");
    assert_int_equal(run.servers_min, 3);
    store_run_release(&run);
}

TEST_F(p7_a_stop_is_known_after_a_restart_until_the_run_is_changed, store)
{
    uint64_t number = add_run(f, "a"), other = add_run(f, "b");
    struct coordinator_past past;
    assert_int_equal(store_put_stop(f->store, f->term + 1, number, "no", NULL), ERR_OLD_TERM);
    assert_int_equal(store_get_past(f->store, number, &past, NULL), ERR_OK);
    assert_false(past.stops);
    assert_int_equal(store_put_stop(f->store, f->term, number, "first", NULL), ERR_OK);
    assert_int_equal(store_put_stop(f->store, f->term, number, "enough", NULL), ERR_OK);
    reopen(f);
    assert_int_equal(store_get_past(f->store, number, &past, NULL), ERR_OK);
    assert_true(past.stops);
    assert_string_equal(past.stop, "enough");
    assert_int_equal(store_get_past(f->store, other, &past, NULL), ERR_OK);
    assert_false(past.stops);
    struct store_run run = run_in("a");
    run.run = number;
    assert_int_equal(store_change_run(f->store, f->term, &run, NULL), ERR_OK);
    store_run_release(&run);
    assert_int_equal(store_get_past(f->store, number, &past, NULL), ERR_OK);
    assert_false(past.stops);
}

TEST_F(p8_the_newest_cut_comes_back_with_its_counters, store)
{
    struct coordinator_past past;
    const uint8_t fingerprint[WIRE_DIGEST_BYTES] = {5};
    uint64_t run = add_run(f, "a"), other = add_run(f, "b");
    put_cut(f, run, 1, 0);
    put_cut(f, run, 2, 100);
    put_cut(f, run, 1, 300); /* of before a rewind: generations count first */
    put_cut(f, other, 7, 7);
    assert_int_equal(store_put_generation(f->store, f->term, 1, 7, NULL), ERR_OK);
    assert_int_equal(store_put_fingerprint(f->store, f->term, run, fingerprint, NULL), ERR_OK);
    reopen(f);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    struct cut_record expected = cut_of(2, 100);
    assert_int_equal(past.generation, 7);
    assert_int_equal(past.fingerprint[0], 5);
    assert_memory_equal(&past.cut.name, &expected.name, sizeof expected.name);
    assert_memory_equal(&past.cut.counters, &expected.counters, sizeof expected.counters);
    assert_int_equal(past.cut.server_count, 2);
    assert_memory_equal(past.cut.servers, expected.servers, 2 * sizeof expected.servers[0]);
}

/* A crash, or a full disk, leaves no run that would begin again from nothing. */
TEST_F(a_run_of_another_store_comes_with_its_past_or_not_at_all, store)
{
    struct reason reason;
    const struct coordinator_past past = {
        .generation = 5, .has_fingerprint = true, .fingerprint = {3}, .cut = cut_of(4, 60)};
    const struct cut_record older = cut_of(4, 40);
    struct coordinator_past refused = past, known;
    struct cut_name oldest;
    refused.cut = cut_of(9, 9);
    put_cut(f, 1, 9, 9); /* the first run's number: its cut cannot be written twice */
    struct store_run run = run_in("a"), none;
    assert_int_not_equal(
        store_add_run(f->store, f->term, &run, &(struct store_past){&refused, {0}}, &reason),
        ERR_OK);
    assert_int_equal(store_find_run(f->store, "a", &none, NULL), ERR_NOT_FOUND);
    assert_int_equal(store_get_past(f->store, 1, &known, NULL), ERR_OK);
    assert_int_equal(known.generation, 0);
    assert_int_equal(store_put_generation(f->store, f->term, 1, 3, NULL), ERR_OK);
    uint64_t before = add_run(f, "b");
    assert_int_equal(
        store_add_run(f->store, f->term, &run, &(struct store_past){&past, {&older, 1}}, NULL),
        ERR_OK);
    assert_true(run.run > before);
    reopen(f);
    assert_int_equal(store_oldest_cut(f->store, run.run, &oldest, NULL), ERR_OK);
    assert_int_equal(oldest.version, 40);
    assert_int_equal(store_get_past(f->store, run.run, &known, NULL), ERR_OK);
    assert_int_equal(known.generation, 5);
    assert_int_equal(known.fingerprint[0], 3);
    assert_int_equal(known.cut.name.version, 60);
    store_run_release(&run);
    assert_int_equal(store_put_generation(f->store, f->term, 1, 8, NULL), ERR_OK);
    run = run_in("c");
    assert_int_equal(store_add_run(f->store, f->term, &run, &(struct store_past){&past, {0}}, NULL),
                     ERR_OK);
    assert_int_equal(store_get_past(f->store, run.run, &known, NULL), ERR_OK);
    assert_int_equal(known.generation, 8); /* this store has used higher ones */
    store_run_release(&run);
}

TEST_F(damaged_cuts_are_forgotten_and_the_next_one_is_the_newest, store)
{
    struct cut_record cuts[4];
    struct coordinator_past past;
    struct cut_name oldest;
    uint32_t count;
    uint64_t run = add_run(f, "a");
    assert_int_equal(store_get_cuts(f->store, run, cuts, 4, &count, NULL), ERR_OK);
    assert_int_equal(count, 0);
    assert_int_equal(store_oldest_cut(f->store, run, &oldest, NULL), ERR_NOT_FOUND);
    for (uint64_t version = 1; version <= 3; version++) {
        struct cut_record cut = cut_of(version, 10 * version);
        assert_int_equal(store_put_cut(f->store, f->term, run, &cut, 3, NULL, NULL), ERR_OK);
    }
    assert_int_equal(store_get_cuts(f->store, run, cuts, 2, &count, NULL), ERR_OK);
    assert_int_equal(count, 2);
    assert_int_equal(cuts[0].name.version, 30);
    assert_int_equal(cuts[1].name.version, 20);
    assert_int_equal(store_forget_cuts(f->store, f->term + 1, run, cuts[1].name, NULL),
                     ERR_OLD_TERM);
    for (int i = 0; i < 2; i++) /* again after a crash */
        assert_int_equal(store_forget_cuts(f->store, f->term, run, cuts[1].name, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.version, 20);
    assert_int_equal(store_oldest_cut(f->store, run, &oldest, NULL), ERR_OK);
    assert_int_equal(oldest.generation, 1);
    assert_int_equal(oldest.version, 10);
    assert_int_equal(past.cut.counters.samples, 160);
}

TEST_F(a_cut_is_found_by_its_name_and_the_next_older_one_from_there, store)
{
    struct cut_record cut;
    uint64_t run = add_run(f, "a");
    put_cut(f, run, 1, 300);
    put_cut(f, run, 2, 200);
    assert_int_equal(store_get_cut(f->store, run, (struct cut_name){1, 300}, &cut, NULL), ERR_OK);
    assert_int_equal(cut.counters.samples, 2400);
    assert_int_equal(store_get_cut(f->store, run, (struct cut_name){1, 200}, &cut, NULL),
                     ERR_NOT_FOUND);
    assert_int_equal(store_older_cut(f->store, run, (struct cut_name){2, 200}, &cut, NULL), ERR_OK);
    assert_int_equal(cut.name.version, 300);
    assert_int_equal(store_older_cut(f->store, run, cut.name, &cut, NULL), ERR_NOT_FOUND);
}

TEST_F(other_runs_that_are_active_are_stopped_and_ended_ones_stay, store)
{
    static const char *const names[] = {"older", "own", "ended", "newer"};
    static const enum run_state states[] = {RUN_STOPPED, RUN_STARTING, RUN_FAILED, RUN_STOPPED};
    uint64_t runs[4];
    for (int i = 0; i < 4; i++)
        runs[i] = add_run(f, names[i]);
    assert_int_equal(store_put_state(f->store, f->term, runs[2], RUN_FAILED, "why", NULL), ERR_OK);
    assert_int_equal(store_stop_others(f->store, f->term + 1, runs[1], "own", NULL), ERR_OLD_TERM);
    for (int i = 0; i < 2; i++) /* once with none */
        assert_int_equal(store_stop_others(f->store, f->term, runs[1], "own", NULL), ERR_OK);
    for (int i = 0; i < 4; i++) {
        scoped(store_run_release) struct store_run run = {0};
        assert_int_equal(store_find_run(f->store, names[i], &run, NULL), ERR_OK);
        assert_int_equal(run.state, states[i]);
        assert_int_equal(strcmp(run.reason, "own") == 0, run.state == RUN_STOPPED);
    }
}

TEST_F(cuts_of_a_directory_are_adopted_and_known_ones_stay, store)
{
    struct cut_record cuts[] = {cut_of(6, 300), cut_of(5, 200)}, known;
    struct coordinator_past past;
    uint64_t run = add_run(f, "a");
    put_cut(f, run, 5, 200);
    memset(cuts[1].servers, 0, sizeof cuts[1].servers); /* a cut's file has no names */
    const struct store_cuts adopted = {cuts, 2};
    assert_int_equal(store_adopt_cuts(f->store, f->term + 1, run, adopted, false, NULL),
                     ERR_OLD_TERM);
    for (int i = 0; i < 2; i++) /* again after a crash */
        assert_int_equal(store_adopt_cuts(f->store, f->term, run, adopted, false, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.version, 300);
    assert_int_equal(past.generation, 6);
    assert_int_equal(store_get_cut(f->store, run, (struct cut_name){5, 200}, &known, NULL), ERR_OK);
    assert_string_equal(known.servers[1].name, "s1");
}

TEST_F(what_is_newer_than_cuts_that_a_directory_has_alone_is_forgotten, store)
{
    struct cut_record cut = cut_of(5, 200);
    struct coordinator_past past;
    uint64_t run = add_run(f, "a");
    put_cut(f, run, 6, 300);
    const struct store_cuts adopted = {&cut, 1};
    assert_int_equal(store_adopt_cuts(f->store, f->term, run, adopted, false, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.version, 300);
    assert_int_equal(store_adopt_cuts(f->store, f->term, run, adopted, true, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.version, 200);
}

static struct conviction conviction_of(uint64_t member)
{
    struct conviction conviction = {.member = member,
                                    .certificate = UINT64_MAX,
                                    .by_certificate = true,
                                    .name = "a 'worker'",
                                    .host = "10.0.0.1",
                                    .step = 12,
                                    .wrong_bits = true,
                                    .reason = "other bits",
                                    .undo = true,
                                    .undo_from = 11};
    return conviction;
}

TEST_F(who_was_convicted_is_known_after_a_restart_in_that_run_alone, store)
{
    struct coordinator_past past, another;
    uint64_t run = add_run(f, "a"), second = add_run(f, "b");
    struct conviction conviction = conviction_of(1);
    assert_int_equal(store_put_conviction(f->store, f->term + 1, run, &conviction, NULL),
                     ERR_OLD_TERM);
    for (uint64_t member = 1; member <= CONVICTIONS_MAX + 2; member++) {
        conviction.member = member;
        conviction.certificate = UINT64_MAX - member;
        assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
        assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
    }
    reopen(f);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.convictions.count, CONVICTIONS_MAX);
    const struct conviction *last = &past.convictions.list[CONVICTIONS_MAX - 1];
    assert_int_equal(last->member, CONVICTIONS_MAX + 2);
    assert_int_equal(last->certificate, UINT64_MAX - last->member);
    assert_true(last->by_certificate && last->wrong_bits);
    assert_string_equal(last->name, "a 'worker'");
    assert_string_equal(last->host, "10.0.0.1");
    assert_int_equal(last->step, 12);
    assert_string_equal(last->reason, "other bits");
    assert_true(last->undo && last->undo_from == 11);
    assert_int_equal(store_get_past(f->store, second, &another, NULL), ERR_OK);
    assert_int_equal(another.convictions.count, 0);
}

TEST_F(convictions_of_one_worker_are_one_and_what_is_to_be_undone_is_kept, store)
{
    struct coordinator_past past;
    uint64_t run = add_run(f, "a");
    struct conviction first = conviction_of(1), conviction = conviction_of(2);
    first.certificate = 7;
    assert_int_equal(store_put_conviction(f->store, f->term, run, &first, NULL), ERR_OK);
    conviction.undo = false;
    conviction.by_certificate = false;
    for (uint64_t member = 2; member < 2 * CONVICTIONS_MAX; member++) {
        conviction.member = member;
        assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
    }
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.convictions.count, 2);
    assert_int_equal(past.convictions.list[1].member, conviction.member);
    for (uint64_t member = 1000; member < 1000 + 2 * CONVICTIONS_MAX; member++) {
        conviction.member = member;
        snprintf(conviction.name, sizeof conviction.name, "w%u", (unsigned)member);
        assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
    }
    conviction = conviction_of(3);
    conviction.certificate = 9; /* whose member joined long before the others */
    assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(past.convictions.count, CONVICTIONS_MAX);
    assert_int_equal(past.convictions.list[0].member, 1);
    assert_true(past.convictions.list[0].undo);
    assert_int_equal(past.convictions.list[1].member, 3);
}

TEST_F(p10_with_a_runs_generation_it_has_gone_back_for_its_convictions, store)
{
    struct coordinator_past past, another;
    uint64_t run = add_run(f, "a"), second = add_run(f, "b");
    const struct conviction conviction = conviction_of(1);
    assert_int_equal(store_put_conviction(f->store, f->term, run, &conviction, NULL), ERR_OK);
    assert_int_equal(store_put_conviction(f->store, f->term, second, &conviction, NULL), ERR_OK);
    assert_int_equal(store_put_generation(f->store, f->term, run, 3, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, run, &past, NULL), ERR_OK);
    assert_int_equal(store_get_past(f->store, second, &another, NULL), ERR_OK);
    assert_false(past.convictions.list[0].undo);
    assert_true(another.convictions.list[0].undo);
}

TEST_F(a_run_without_a_cut_has_an_empty_past, store)
{
    struct coordinator_past past;
    assert_int_equal(store_get_past(f->store, add_run(f, "a"), &past, NULL), ERR_OK);
    assert_int_equal(past.cut.name.generation, 0);
    assert_false(past.has_fingerprint);
}

TEST_F(two_daemons_never_share_a_store, store)
{
    struct store *second;
    struct reason reason;
    assert_int_equal(store_open_sqlite(f->path, &second, &reason), ERR_BUSY);
    assert_non_null(strstr(reason.text, "another daemon has it open"));
}

TEST_F(a_file_that_is_no_store_is_named, store)
{
    struct store *store;
    struct reason reason;
    const char *path = folder_path(&f->folder, "no.db");
    static const char text[] = "This is not a database, but it is long enough to be looked at by "
                               "somebody who expects one of at least a hundred bytes.";
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0600,
                                       (struct slice){(const uint8_t *)text, sizeof text}, NULL),
                     ERR_OK);
    assert_int_equal(store_open_sqlite(path, &store, &reason), ERR_CORRUPT);
    assert_non_null(strstr(reason.text, path));
    assert_int_equal(store_open_sqlite("/nowhere/at/all.db", &store, &reason), ERR_IO);
    assert_non_null(strstr(reason.text, "/nowhere/at/all.db"));
}

/* As somebody whom modes bind; root is bound by none. */
static enum err open_as_anybody(const char *path, struct reason *reason)
{
    enum { NOBODY = 65534 };
    struct store *store = NULL;
    uid_t own = geteuid();
    assert_int_equal(seteuid(own == 0 ? NOBODY : own), 0);
    enum err err = store_open_sqlite(path, &store, reason);
    assert_int_equal(seteuid(own), 0);
    store_free(store);
    return err;
}

TEST_F(a_file_that_may_not_be_opened_says_why, store)
{
    struct reason reason;
    const char *folder = folder_path(&f->folder, ".");
    const char *path = folder_path(&f->folder, "closed.db");
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0, (struct slice){0}, NULL), ERR_OK);
    assert_int_equal(chmod(folder, 0555), 0);
    assert_int_equal(open_as_anybody(path, &reason), ERR_DENIED);
    assert_non_null(strstr(reason.text, "closed.db: Permission denied"));
    path = folder_path(&f->folder, "new.db");
    assert_int_equal(open_as_anybody(path, &reason), ERR_DENIED);
    assert_non_null(strstr(reason.text, "new.db: Permission denied"));
    assert_int_equal(chmod(folder, 0755), 0);
    path = folder_path(&f->folder, "folder.db");
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(open_as_anybody(path, &reason), ERR_INVALID);
    assert_non_null(strstr(reason.text, "folder.db: Is a directory"));
}

TEST_F(a_run_keeps_its_secret_and_has_it_alone, store)
{
    uint8_t secret[DIGEST_KEY_BYTES], again[DIGEST_KEY_BYTES], other[DIGEST_KEY_BYTES];
    uint64_t run = add_run(f, "a"), second = add_run(f, "b");
    assert_int_equal(store_run_secret(f->store, f->term + 1, run, secret, NULL), ERR_OLD_TERM);
    assert_int_equal(store_run_secret(f->store, f->term, run, secret, NULL), ERR_OK);
    assert_int_equal(store_run_secret(f->store, f->term, second, other, NULL), ERR_OK);
    assert_memory_not_equal(secret, other, sizeof secret);
    reopen(f);
    assert_int_equal(store_run_secret(f->store, f->term, run, again, NULL), ERR_OK);
    assert_memory_equal(secret, again, sizeof secret);
}
