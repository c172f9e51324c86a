/* Shard threads and cuts: what a server does with a run. */
#include "tests/unit/shards_fixture.h"

#include "common/files/checkpoint.h"
#include "server/threads/shard_thread.h"

#include <fcntl.h>
#include <unistd.h>

/* All slots of a step, its commit, and the weights it makes. */
static void train(struct shards_fixture *world, uint32_t threads, uint64_t step, bool cut)
{
    unsigned acks = tally_of(&world->tally, ACK), weights = tally_of(&world->tally, WEIGHTS);
    unsigned reduced = reports_of(world, SERVER_REDUCED);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, step, slot);
    tally_wait(&world->tally, ACK, acks + SLOTS);
    for (uint32_t i = 1; i <= threads; i++)
        assert_int_equal(wait_report(world, SERVER_REDUCED, reduced + i).reduced.step, step);
    commit_step(world, step, cut);
    pull_all(world, step + 1);
    tally_wait(&world->tally, WEIGHTS, weights + answers(world, threads));
}

/* Every weight after the first step: momentum's first step is lr * scale * sum. */
static void assert_stepped_once(const struct shards_fixture *world)
{
    float initial[MODEL_CHUNK_WEIGHTS_MAX];
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        if (world->model.chunks[c].parameter == world->model.loss_parameter)
            continue;
        model_initial(&world->model, 5, c, initial);
        float sum = (float)(c + 1) + (float)(c + 2);
        for (uint32_t i = 0; i < world->model.chunks[c].weights; i++)
            assert_true(world->values[world->offsets[c] + i] == initial[i] - 0.5f * (0.25f * sum));
    }
}

static void assert_cut_is_what_was_pulled(struct shards_fixture *world,
                                          const struct server_report *manifest)
{
    struct checkpoint_record record = {.name = {1, 1}, .run = 1, .spec = small, .server_count = 1};
    memcpy(record.manifests[0].bytes, manifest->manifest.digest, 32);
    assert_int_equal(checkpoint_record(&file_ops_real, world->dir, &record, NULL), ERR_OK);
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_open(world->dir, record.name, &checkpoint, NULL), ERR_OK);
    assert_int_equal(checkpoint_fits(checkpoint, &world->model, 1, NULL), ERR_OK);
    for (uint32_t c = 0; c < world->model.chunks_count; c++) {
        struct checkpoint_chunk chunk;
        assert_int_equal(checkpoint_read(checkpoint, c, &chunk, NULL), ERR_OK);
        if (world->model.chunks[c].parameter != world->model.loss_parameter)
            assert_memory_equal(chunk.values, world->values + world->offsets[c],
                                chunk.n * sizeof(float));
    }
}

static size_t values_bytes(const struct shards_fixture *world)
{
    uint32_t last = world->model.chunks_count - 1;
    return (world->offsets[last] + world->model.chunks[last].weights) * sizeof(float);
}

/* No file of that folder is mapped. */
static void check_unmapped(const char *folder)
{
    scoped(buf_release) struct buf maps = {0};
    assert_int_equal(file_read("/proc/self/maps", 1 << 20, &maps, NULL), ERR_OK);
    assert_int_equal(buf_append(&maps, "", 1), ERR_OK);
    assert_null(strstr((const char *)maps.data, folder));
}

/* Two steps with a cut between them; another server goes on from the cut, with another number of
 * threads, and makes the same bits. */
static void train_cut_and_resume(struct shards_fixture *world)
{
    uint32_t threads = world->threads;
    struct from_shard welcome = last_received(world);
    assert_int_equal(welcome.welcome.boot, BOOT);
    assert_int_equal(welcome.welcome.generation, 1);
    assert_int_equal(welcome.welcome.wire_version, WIRE_VERSION);
    pull_all(world, 0);
    tally_wait(&world->tally, WEIGHTS, answers(world, threads));
    assert_initial(world);
    train(world, threads, 0, true);
    assert_stepped_once(world);
    struct server_report committed = wait_report(world, SERVER_COMMITTED, 1);
    assert_int_equal(committed.committed.step, 0);
    assert_int_equal(committed.committed.generation, 1);
    struct server_report manifest = wait_report(world, SERVER_MANIFEST, 2);
    assert_int_equal(manifest.manifest.cut.version, 1);
    assert_cut_is_what_was_pulled(world, &manifest);
    train(world, threads, 1, false);
    scoped(free_scoped) float *expected = malloc(values_bytes(world));
    memcpy(expected, world->values, values_bytes(world));

    shards_down(world);
    tally_release(&world->tally);
    tally_init(&world->tally);
    world->report_count = world->received_count = 0;
    memset(world->values, 0, values_bytes(world));
    shards_up(world, 3 - threads);
    struct server_command again = prepare_command(world, small, 2);
    again.prepare.from_cut = true;
    again.prepare.cuts = false;
    again.prepare.cut = (struct cut_name){1, 1};
    command(world, again);
    struct server_report ready = wait_report(world, SERVER_READY, 1);
    assert_int_equal(ready.ready.code, ERR_OK);
    assert_int_equal(ready.ready.cut.version, 1);
    check_unmapped(world->dir); /* a cut that is pruned gives its space back */
    assert_int_equal(shards_held(world->shards).generation, 2);
    assert_int_equal(shards_held(world->shards).version, 1);
    world->generation = 2;
    open_stream(world);
    hello(world);
    train(world, 3 - threads, 1, false);
    assert_memory_equal(world->values, expected, values_bytes(world));
    assert_int_equal(reports_of(world, SERVER_MANIFEST), 0); /* the cut is there already */
}

TEST_F(a_step_with_one_thread, shards, .threads = 1, .prepared = true)
{
    train_cut_and_resume(f);
}

TEST_F(a_step_with_two_threads, shards, .threads = 2, .prepared = true)
{
    train_cut_and_resume(f);
}

TEST_F(many_parked_pulls_are_all_answered, shards, .threads = 1, .prepared = true)
{
    enum { PULLS = 600 }; /* more than a stream's queue holds */
    for (uint32_t i = 0; i < PULLS; i++) {
        uint32_t chunk = i % f->model.chunks_count;
        pull(f, 1, &chunk, 1);
        tally_wait(&f->tally, REFUSAL, i + 1); /* a parked pull holds no credit */
        assert_int_equal(last_received(f).refusal.code, ERR_TOO_EARLY);
    }
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(f, 0, slot);
    wait_report(f, SERVER_REDUCED, 1);
    commit_step(f, 0, false);
    tally_wait(&f->tally, WEIGHTS, PULLS);
}

TEST_F(a_gone_worker_s_pulls_are_forgotten, shards, .threads = 2, .prepared = true)
{
    for (uint32_t i = 0; i < 8; i++)
        pull_all(f, 1);
    tally_wait(&f->tally, REFUSAL, 8);
    rpc_stream_cancel(f->stream);
    tally_wait(&f->tally, CLOSED, 1);
    rpc_stream_unref(f->stream);
    open_stream(f);
    hello(f);
    tally_wait(&f->tally, WELCOME, 2);
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(f, 0, slot);
    wait_report(f, SERVER_REDUCED, 2);
    commit_step(f, 0, false);
    wait_report(f, SERVER_COMMITTED, 1);
    pull_all(f, 1);
    tally_wait(&f->tally, WEIGHTS, answers(f, 2));
    assert_int_equal(tally_of(&f->tally, WEIGHTS), answers(f, 2));
}

TEST_F(a_wrong_duplicate_names_the_member, shards, .threads = 1, .prepared = true)
{
    push_all(f, 0, 0);
    push_values(f, 0, 0, 0.5f);
    tally_wait(&f->tally, ACK, 2);
    assert_int_equal(last_received(f).ack.code, ERR_OK);
    struct server_report wrong = wait_report(f, SERVER_WRONG_BITS, 1);
    assert_int_equal(wrong.wrong_bits.member, proof_member_number(TERM, 42));
    assert_int_equal(wrong.wrong_bits.first_member, proof_member_number(TERM, 42));
    assert_int_equal(wrong.wrong_bits.step, 0);
}

TEST_F(without_a_run_everything_waits, shards, .threads = 2, .welcome = true)
{
    push_all(f, 0, 0);
    tally_wait(&f->tally, ACK, 1);
    assert_int_equal(last_received(f).ack.code, ERR_BEHIND); /* no command has brought the key */
    assert_int_equal(last_received(f).ack.first_refused, 0);
    command(f, (struct server_command){.kind = SERVER_END});
    pull_all(f, 0);
    tally_wait(&f->tally, REFUSAL, 1);
    assert_int_equal(last_received(f).refusal.code, ERR_NO_RUN);
}

TEST_F(what_cannot_be_prepared_says_why, shards, .threads = 2)
{
    command(f, prepare_command(f, "model: {kind: lama}", 1));
    assert_int_equal(wait_report(f, SERVER_READY, 1).ready.code, ERR_INVALID);
    assert_non_null(strstr(f->ready_text.text, "model.kind"));
    struct server_command missing = prepare_command(f, small, 2);
    missing.prepare.from_cut = true;
    missing.prepare.cut = (struct cut_name){1, 77};
    command(f, missing);
    assert_int_equal(wait_report(f, SERVER_READY, 2).ready.code, ERR_NOT_FOUND);
    assert_non_null(strstr(f->ready_text.text, "g1-v77"));
    command(f, missing); /* asked again: the same answer */
    assert_int_equal(wait_report(f, SERVER_READY, 3).ready.code, ERR_NOT_FOUND);
    struct server_command restore = prepare_command(f, small, 3);
    restore.prepare.restore = "/nowhere/model.safetensors";
    command(f, restore);
    assert_int_equal(wait_report(f, SERVER_READY, 4).ready.code, ERR_NOT_FOUND);
    assert_non_null(strstr(f->ready_text.text, "/nowhere/model.safetensors"));
    /* A later attempt is not hurt by the earlier ones. */
    command(f, prepare_command(f, small, 4));
    assert_int_equal(wait_report(f, SERVER_READY, 5).ready.code, ERR_OK);
}

TEST_F(commands_of_others_are_dropped, shards, .threads = 1, .prepared = true)
{
    struct server_command old = prepare_command(f, small, 7);
    old.boot = BOOT;
    old.term = TERM - 1;
    shards_command(f->shards, &old);
    old.term = TERM;
    old.boot = BOOT - 1;
    shards_command(f->shards, &old);
    assert_int_equal(shards_held(f->shards).generation, 1);
    command(f, prepare_command(f, small, 1)); /* held: only said again */
    assert_int_equal(wait_report(f, SERVER_READY, 2).ready.code, ERR_OK);
}

TEST_F(reports_are_said_again, shards, .threads = 2, .prepared = true)
{
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(f, 0, slot);
    wait_report(f, SERVER_REDUCED, 2);
    shards_report_again(f->shards);
    wait_report(f, SERVER_READY, 2);
    wait_report(f, SERVER_MANIFEST, 2);
    assert_int_equal(wait_report(f, SERVER_REDUCED, 4).reduced.step, 0);
    commit_step(f, 0, false);
    wait_report(f, SERVER_COMMITTED, 1);
    commit_step(f, 0, false);
    wait_report(f, SERVER_COMMITTED, 2);
    shards_report_again(f->shards);
    assert_int_equal(wait_report(f, SERVER_READY, 3).ready.cut.version, 1);
}

TEST_F(a_new_generation_ends_what_waits, shards, .threads = 1, .prepared = true)
{
    pull_all(f, 1);
    tally_wait(&f->tally, REFUSAL, 1);
    command(f, prepare_command(f, small, 2));
    tally_wait(&f->tally, REFUSAL, 2);
    assert_int_equal(last_received(f).refusal.code, ERR_OLD_GENERATION);
    wait_report(f, SERVER_READY, 2);
    pull_all(f, 0); /* of generation 1 */
    tally_wait(&f->tally, REFUSAL, 3);
    assert_int_equal(last_received(f).refusal.code, ERR_OLD_GENERATION);
    command(f, (struct server_command){.kind = SERVER_END});
    pull_all(f, 0);
    tally_wait(&f->tally, REFUSAL, 4);
    assert_int_equal(last_received(f).refusal.code, ERR_NO_RUN);
    assert_int_equal(shards_held(f->shards).generation, 0);
}

static void end_member(struct shards_fixture *f)
{
    const uint64_t member = hello_of(42).hello.member;
    struct server_command ended = {.kind = SERVER_ENDED};
    ended.ended.generation = f->generation;
    ended.ended.member_count = 1;
    ended.ended.members = &member;
    command(f, ended);
}

TEST_F(the_end_of_a_member_ends_what_waits, shards, .threads = 1, .prepared = true)
{
    pull_all(f, 1);
    tally_wait(&f->tally, REFUSAL, 1);
    end_member(f);
    tally_wait(&f->tally, REFUSAL, 2);
    assert_int_equal(last_received(f).refusal.code, ERR_UNKNOWN_MEMBER);
}

/* Its member ends between a message's admission and its coming to its thread. */
static struct shards_fixture *_Atomic ends_between;

/* The linker leads here (--wrap). */
enum err __real_shard_thread_message(struct shard_thread *thread,
                                     struct exchange_message *take_message);
enum err __wrap_shard_thread_message(struct shard_thread *thread,
                                     struct exchange_message *take_message);

enum err __wrap_shard_thread_message(struct shard_thread *thread,
                                     struct exchange_message *take_message)
{
    if (ends_between != NULL)
        end_member(ends_between);
    return __real_shard_thread_message(thread, take_message);
}

TEST_F(what_comes_behind_the_end_of_its_member_does_not_wait, shards, .threads = 1,
       .prepared = true)
{
    ends_between = f;
    pull_all(f, 1);
    for (unsigned i = 1; i <= 2; i++) { /* the pull, and what was parked of it: in any order */
        tally_wait(&f->tally, REFUSAL, i);
        assert_int_equal(last_received(f).refusal.code, ERR_UNKNOWN_MEMBER);
    }
    ends_between = NULL;
}

TEST_F(a_disk_that_refuses_fails_the_cut_only, shards, .threads = 2)
{
    folder_write(&f->folder, "checkpoints", "a file is in the way", 20);
    command(f, prepare_command(f, small, 1));
    assert_int_equal(wait_report(f, SERVER_READY, 1).ready.code, ERR_OK);
    struct server_report manifest = wait_report(f, SERVER_MANIFEST, 1);
    assert_int_not_equal(manifest.manifest.code, ERR_OK);
    open_stream(f);
    hello(f);
    pull_all(f, 0);
    tally_wait(&f->tally, WEIGHTS, answers(f, 2));
    assert_initial(f);
}

/* ---- a chunk that its new owner does not take ---- */

enum { NOT_TAKEN = CLOSED + 2, TIMES = 4 };

static enum err answer_of_new_owner;

static void answer_chunk(void *owner, struct rpc_request *request, struct slice bytes)
{
    (void)bytes;
    struct shards_fixture *world = owner;
    rpc_fail(request, answer_of_new_owner, "as the test wants it");
    tally_add(&world->tally, NOT_TAKEN);
}

/* What the log has when chunk 0, which leaves, was sent TIMES times, and was answered with that each
 * time. */
static void move_in_vain(struct shards_fixture *world, enum err answer, char ret_log[static 4096],
                         char ret_address[static 32])
{
    int ends[2];
    const struct rpc_method method = {.path = "/roost.v1.Shard/Transfer",
                                      .kind = RPC_UNARY,
                                      .roles = TLS_ROLES_ALL,
                                      .owner = world,
                                      .requested = answer_chunk};
    struct rpc_server *new_owner = server_new(world->loop, NULL, &method, 1);
    snprintf(ret_address, 32, "127.0.0.1:%u", rpc_server_port(new_owner));
    const struct server_move move = {.first = 0, .count = 1, .to = ret_address};
    struct server_command commit = commit_command(world, 0, false);
    commit.move_count = 1;
    commit.moves = &move;
    answer_of_new_owner = answer;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    world->logger = (struct logger){.level = LOG_LEVEL_WARNING, .fd = ends[1]};
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        push_all(world, 0, slot);
    wait_report(world, SERVER_REDUCED, 1);
    command(world, commit);
    tally_wait(&world->tally, NOT_TAKEN, TIMES);
    ssize_t bytes = read(ends[0], ret_log, 4095);
    ret_log[bytes > 0 ? bytes : 0] = 0;
    rpc_server_free(new_owner);
    close(ends[0]);
    close(ends[1]);
}

TEST_F(a_chunk_that_its_new_owner_refuses_is_named_once_a_minute, shards, .threads = 1,
       .prepared = true)
{
    char log[4096], address[32], words[128];
    move_in_vain(f, ERR_UNTRUSTED, log, address);
    snprintf(words, sizeof words,
             " warning chunk not sent  chunk=0 to=%s err=UNTRUSTED why=", address);
    assert_non_null(strstr(log, words));
    assert_non_null(strstr(log, "as the test wants it"));
    assert_ptr_equal(strchr(log, '\n'), log + strlen(log) - 1);
}

TEST_F(a_new_owner_that_has_not_come_so_far_is_not_named_at_once, shards, .threads = 1,
       .prepared = true)
{
    char log[4096], address[32];
    move_in_vain(f, ERR_TOO_EARLY, log, address);
    assert_string_equal(log, "");
}
