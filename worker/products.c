#include "worker/products.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "common/time.h"
#include "proto/wire.h"

_Static_assert(SPEC_PRODUCTS_BYTES <= WIRE_PRODUCTS_BYTES_MAX, "a message holds them");

enum { CALL_MS = 10000 };

static enum err time_all(const struct kernels *k, const struct logger *logger, char *ret_products,
                         struct reason *reason)
{
    uint64_t begin_ns = time_now_ns();
    k->time_products(k, NULL, NULL);
    const char *failure = k->synchronize(k);
    if (failure != NULL)
        return reason_set(reason, ERR_IO, "products are timed: %s", failure);
    k->write_products(k, ret_products, SPEC_PRODUCTS_BYTES);
    log_info(logger, "products timed", log_uint("ms", (time_now_ns() - begin_ns) / 1000000));
    return ERR_OK;
}

enum err products_settle(const struct kernels *k, const struct products_run *run,
                         char *ret_products, struct reason *reason)
{
    scoped(buf_release) struct buf bytes = {0};
    scoped(buf_release) struct buf response = {0};
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    struct products_reply reply;
    TRY(time_all(k, run->logger, ret_products, reason));
    const struct products_request request = {run->number, ret_products};
    TRY(wire_encode_products_request(&request, &bytes));
    TRY(rpc_call(run->channel, "/roost.v1.Cluster/Products", buf_slice(&bytes), CALL_MS, &response,
                 reason));
    TRY(wire_decode_products_reply(buf_slice(&response), &arena, &reply, reason));
    snprintf(ret_products, SPEC_PRODUCTS_BYTES, "%s", reply.products);
    return ERR_OK;
}
