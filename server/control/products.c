#include "server/control/products.h"

#include "common/scoped.h"
#include "server/control/control_effects.h"
#include "server/control/control_run.h"
#include "server/control/replies.h"

#include <string.h>

/* The run's spec with these products in place of the word, and as it is printed. */
static enum err spec_with(const struct control_run *run, const char *products,
                          struct spec *ret_spec, struct buf *ret_text, struct reason *reason)
{
    *ret_spec = run->spec;
    snprintf(ret_spec->train.products, sizeof ret_spec->train.products, "%s", products);
    TRY(spec_print(ret_spec, ret_text));
    TRY(buf_append(ret_text, "", 1));
    struct slice text = {ret_text->data, ret_text->bytes - 1};
    if (spec_times_products(products) ||
        spec_parse(text, "the run's spec", NULL, ret_spec, reason) != ERR_OK)
        return reason_set(reason, ERR_INVALID, "these are not a run's products: %.80s", products);
    return ERR_OK;
}

static enum err write_spec(void *owner, struct reason *reason)
{
    const struct store_run *stored = owner;
    return record_spec(stored->directory, stored->spec, reason);
}

/* P7: while the term is ours. */
static void tell_people(struct control *control)
{
    const struct store_beside beside = {write_spec, &control->run->stored};
    struct reason reason = {0};
    enum err err = store_write_beside(control->config.store, control->term, &beside, &reason);
    control_effects_end_if_not_synced(control, err, &reason);
    if (err != ERR_OK)
        log_warning(control->config.logger, "run.yaml lacks the products",
                    log_text("reason", reason.text), log_text("next", "checkpoints have them"));
}

static enum err keep(struct control *control, const char *products, struct reason *reason)
{
    struct control_run *run = control->run;
    scoped(buf_release) struct buf text = {0};
    scoped(free_scoped) struct spec *spec = malloc(sizeof *spec);
    if (spec == NULL)
        return ERR_NOMEM;
    TRY(spec_with(run, products, spec, &text, reason));
    char *stored = strdup((const char *)text.data);
    if (stored == NULL)
        return ERR_NOMEM;
    enum err err =
        store_put_spec(control->config.store, control->term, run->stored.run, stored, reason);
    if (err != ERR_OK) {
        control_effects_end_if_not_synced(control, err, reason);
        free(stored);
        return err;
    }
    free(run->stored.spec);
    run->stored.spec = stored;
    memcpy(run->spec.train.products, spec->train.products, sizeof spec->train.products);
    log_info(control->config.logger, "products kept", log_uint("run", run->stored.run),
             log_uint("bytes", strlen(products)));
    tell_people(control);
    return ERR_OK;
}

static enum err answer(struct control *control, const struct products_request *request,
                       struct buf *response, struct reason *reason)
{
    const struct control_run *run = control->run;
    if (run == NULL || run->stored.run != request->run || !control_active(control))
        return reason_set(reason, ERR_NO_RUN, "run %llu is not active here",
                          (unsigned long long)request->run);
    if (spec_times_products(run->spec.train.products))
        TRY(keep(control, request->products, reason));
    const struct products_reply reply = {run->spec.train.products};
    return wire_encode_products_reply(&reply, response);
}

void products_call(struct control *control, struct call *take_call)
{
    struct reason reason = {0};
    struct buf response = {.bytes_max = WIRE_CONTROL_BYTES_MAX};
    enum err err = answer(control, &take_call->products, &response, &reason);
    if (err == ERR_OK) {
        call_reply(take_call, &response);
        return;
    }
    buf_release(&response);
    call_fail(take_call, err, reason_text(err, &reason));
}
