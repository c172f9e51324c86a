/* The products of a run whose workers time them: the first ones are kept, for all workers. */
#include "tests/unit/control_fixture.h"

#define TIMED                                                                                      \
    "model: {kind: mlp, layers: [2, 8, 3]}\n"                                                      \
    "data: {kind: spiral, points: 20, validation: 0.1}\n"                                          \
    "train: {steps: 10, slots: 2, slot_samples: 3, microbatch: 3, node_slots: 2, products: "       \
    "timed}\n"

static const char kept[] = "cuBLASLt 1 bf16, 2 SMs of sm_90:;NT 8x8x8/16.16.16 1.0 01;";
static const char others[] = "cuBLASLt 1 bf16, 2 SMs of sm_90:;NT 8x8x8/16.16.16 2.0 02;";

static enum err offer(struct control_fixture *f, uint64_t run, const char *products)
{
    struct call *call = call_new(f, CALL_PRODUCTS);
    call->products = (struct products_request){run, products};
    return say(f, call);
}

static void expect_products(const char *expected)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct products_reply reply;
    assert_int_equal(wire_decode_products_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    assert_string_equal(reply.products, expected);
}

/* What a worker is told of the run. */
static uint64_t describe(struct control_fixture *f, struct spec *ret_spec)
{
    scoped(arena_release) struct arena arena = {.bytes_max = CALL_BYTES_MAX};
    struct describe_reply reply;
    assert_int_equal(say(f, call_new(f, CALL_DESCRIBE)), ERR_OK);
    assert_int_equal(wire_decode_describe_reply(buf_slice(&answer.response), &arena, &reply, NULL),
                     ERR_OK);
    const struct slice text = {(const uint8_t *)reply.spec, strlen(reply.spec)};
    assert_int_equal(spec_parse(text, "the run's spec", NULL, ret_spec, NULL), ERR_OK);
    return reply.run;
}

TEST_F(the_products_that_come_first_are_the_runs, control)
{
    static struct spec told;
    struct store_run stored;
    assert_int_equal(say(f, run_call(f, TIMED, false)), ERR_OK);
    uint64_t run = describe(f, &told);
    assert_string_equal(told.train.products, "timed");
    assert_int_equal(offer(f, run, kept), ERR_OK);
    expect_products(kept);
    assert_int_equal(offer(f, run, others), ERR_OK);
    expect_products(kept);
    describe(f, &told);
    assert_string_equal(told.train.products, kept);
    assert_int_equal(store_find_active_run(f->store, &stored, NULL), ERR_OK);
    assert_non_null(strstr(stored.spec, kept));
    store_run_release(&stored);
    struct file_map yaml;
    assert_int_equal(file_map_open(folder_path(&f->folder, "run/run.yaml"), &yaml, NULL), ERR_OK);
    assert_non_null(memmem(yaml.bytes.data, yaml.bytes.bytes, kept, strlen(kept)));
    file_map_release(&yaml);
}

/* They borrow the text, and hold the run by its digest. */
TEST_F(servers_are_told_the_same_run_before_and_after, control)
{
    static struct spec told;
    assert_int_equal(say(f, run_call(f, TIMED, false)), ERR_OK);
    assert_int_equal(f->shards.prepared, 1);
    char *before = strdup(f->shards.spec);
    assert_null(strstr(before, "products"));
    assert_int_equal(offer(f, describe(f, &told), kept), ERR_OK);
    control_local_server(f->control, f->now_ns, NULL); /* it has started again */
    assert_int_equal(f->shards.prepared, 2);
    assert_string_equal(f->shards.spec, before);
    control_free(f->control); /* the coordinator, too */
    open_office(f);
    control_continue(f->control, f->now_ns);
    assert_int_equal(f->shards.prepared, 3);
    assert_string_equal(f->shards.spec, before);
    free(before);
}

TEST_F(what_are_no_products_of_the_run_is_refused, control)
{
    static struct spec told;
    assert_int_equal(offer(f, 1, kept), ERR_NO_RUN);
    assert_int_equal(say(f, run_call(f, TIMED, false)), ERR_OK);
    uint64_t run = describe(f, &told);
    assert_int_equal(offer(f, run + 1, kept), ERR_NO_RUN);
    assert_int_equal(offer(f, run, "timed"), ERR_INVALID);
    assert_int_equal(offer(f, run, "cuBLAS"), ERR_INVALID);
    assert_string_equal(answer.text, "these are not a run's products: cuBLAS");
    describe(f, &told);
    assert_string_equal(told.train.products, "timed");
}

TEST_F(a_run_that_times_none_keeps_none, control)
{
    static struct spec told;
    assert_int_equal(start_run(f), ERR_OK);
    uint64_t run = describe(f, &told);
    assert_int_equal(offer(f, run, kept), ERR_OK);
    expect_products("heuristic");
}
