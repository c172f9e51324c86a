/* What the worker calls; both ways of a value's bytes. */
#include "worker/peers.h"

#include "common/program/values.h"
#include "common/shared/shared_pool.h"
#include "worker/peers_core.h"

#include <stdlib.h>
#include <string.h>

enum {
    MESSAGE_SLACK_BYTES = 64,
    RUN_BYTES = 8 << 10, /* is in the smallest cache between the copy and the digest */
};

_Static_assert(VALUES_BYTES_MAX == WIRE_VALUE_BYTES_MAX, "what is judged well passes");

void peers_settings(struct rpc_settings *settings)
{
    uint32_t bytes = WIRE_VALUE_BYTES_MAX + WIRE_HEADER_BYTES_MAX + MESSAGE_SLACK_BYTES;
    if (settings->message_bytes_max < bytes)
        settings->message_bytes_max = bytes;
}

/* ---- life ---- */

static void end_lent(struct peers_lane *lane)
{
    rpc_message_unref(lane->lent);
    lane->lent = NULL;
}

static void release_message(void *value)
{
    rpc_message_unref(value);
}

static enum err make_lane(const struct peers *peers, struct peers_lane *lane)
{
    const struct wants_options wants = {.boundaries = &peers->boundaries,
                                        .answer_ms = peers->options.answer_ms,
                                        .seed = time_now_ns() + lane->number,
                                        .release = release_message};
    TRY(digest_fast_init(&lane->digest));
    return wants_new(&wants, &lane->wants);
}

static enum err make_cores(struct peers *peers)
{
    const struct peers_options *options = &peers->options;
    TRY(boundaries_init(&peers->boundaries, options->spec, options->model));
    const struct outbox_options outbox = {.boundaries = &peers->boundaries,
                                          .insecure = options->identity == NULL};
    check(options->lanes > 0 && options->lanes <= PEERS_LANES_MAX);
    for (uint32_t i = 0; i < options->lanes; i++)
        TRY(make_lane(peers, &peers->lanes[i]));
    return outbox_new(&outbox, &peers->outbox);
}

static enum err listen_there(struct peers *peers, struct reason *reason)
{
    const struct peers_options *options = &peers->options;
    peers->method = peers_serve_method(peers);
    const struct rpc_server_config config = {.loop = options->loop,
                                             .address = options->address,
                                             .identity = options->identity,
                                             .methods = &peers->method,
                                             .method_count = 1};
    TRY(rpc_server_new(&config, &peers->server, reason));
    return rpc_address_of(options->advertise != NULL ? options->advertise : options->address,
                          rpc_server_port(peers->server), peers->address, sizeof peers->address,
                          reason);
}

enum err peers_new(const struct peers_options *options, struct peers **ret_peers,
                   struct reason *reason)
{
    struct peers *peers = calloc(1, sizeof *peers);
    if (peers == NULL)
        return ERR_NOMEM;
    peers->options = *options;
    thread_mutex_init(&peers->mutex);
    thread_cond_init(&peers->changed);
    ring_init(&peers->serving);
    for (uint32_t i = 0; i < PEERS_LANES_MAX; i++)
        peers->lanes[i] = (struct peers_lane){.peers = peers, .number = i};
    enum err err = make_cores(peers);
    if (err == ERR_OK)
        err = listen_there(peers, reason);
    if (err != ERR_OK) {
        peers_free(peers);
        return err;
    }
    *ret_peers = peers;
    return ERR_OK;
}

void peers_free(struct peers *peers)
{
    if (peers == NULL)
        return;
    for (uint32_t i = 0; i < PEERS_LANES_MAX; i++)
        peers_ask_end(&peers->lanes[i]);
    rpc_server_free(peers->server);
    check(ring_is_empty(&peers->serving)); /* each has had its last event */
    outbox_free(peers->outbox);
    for (uint32_t i = 0; i < PEERS_LANES_MAX; i++) {
        end_lent(&peers->lanes[i]);
        wants_free(peers->lanes[i].wants);
        digest_fast_release(&peers->lanes[i].digest);
    }
    boundaries_release(&peers->boundaries);
    thread_cond_release(&peers->changed);
    thread_mutex_release(&peers->mutex);
    free(peers);
}

const char *peers_address(const struct peers *peers)
{
    return peers->address;
}

struct peers_lane *peers_lane(struct peers *peers, uint32_t number)
{
    check(number < peers->options.lanes);
    return &peers->lanes[number];
}

/* ---- the main thread ---- */

static void note_kept_locked(struct peers *peers)
{
    atomic_store(&peers->kept_bytes, outbox_bytes(peers->outbox));
}

/* What is known of leases has changed: those who ask and who waits may go on. */
static void unlock_changed(struct peers *peers)
{
    note_kept_locked(peers);
    thread_wake_all(&peers->changed);
    thread_unlock(&peers->mutex);
    peers_serve_answers(peers);
}

void peers_joined(struct peers *peers, uint32_t lease_ms)
{
    uint32_t half_ms = lease_ms / 2 > 0 ? lease_ms / 2 : 1;
    uint32_t longest_ms = peers->options.answer_ms;
    thread_lock(&peers->mutex);
    for (uint32_t i = 0; i < peers->options.lanes; i++)
        wants_answer_within(peers->lanes[i].wants, half_ms < longest_ms ? half_ms : longest_ms);
    thread_unlock(&peers->mutex);
}

enum err peers_lease(struct peers_lane *lane, uint64_t member, const struct ticket *ticket,
                     const struct place *place, const struct places *places)
{
    struct peers *peers = lane->peers;
    thread_lock(&peers->mutex);
    enum err err = outbox_lease(peers->outbox, ticket, place, places);
    if (err == ERR_OK) {
        wants_lease(lane->wants, ticket, place, places);
        lane->ticket = *ticket;
        lane->place = *place;
        lane->member = member;
        lane->cancelled = false;
        atomic_store(&lane->kept_bytes, 0);
    }
    unlock_changed(peers);
    return err;
}

void peers_places(struct peers *peers, const struct places *places)
{
    thread_lock(&peers->mutex);
    outbox_places(peers->outbox, places);
    for (uint32_t i = 0; i < peers->options.lanes; i++)
        wants_places(peers->lanes[i].wants, peers_now_ms(), places);
    unlock_changed(peers);
}

void peers_keep(struct peers *peers, const uint64_t *attempts, uint32_t count)
{
    thread_lock(&peers->mutex);
    outbox_keep(peers->outbox, attempts, count);
    unlock_changed(peers);
}

void peers_generation(struct peers *peers, uint64_t generation)
{
    thread_lock(&peers->mutex);
    outbox_generation(peers->outbox, generation);
    unlock_changed(peers);
}

void peers_cancel(struct peers_lane *lane)
{
    struct peers *peers = lane->peers;
    thread_lock(&peers->mutex);
    lane->cancelled = true;
    thread_wake_all(&peers->changed);
    thread_unlock(&peers->mutex);
}

/* ---- the lane's thread ---- */

/* What it works for. */
struct task {
    struct ticket ticket;
    struct place place;
};

static struct task task_of(struct peers_lane *lane)
{
    thread_lock(&lane->peers->mutex);
    const struct task task = {lane->ticket, lane->place};
    thread_unlock(&lane->peers->mutex);
    return task;
}

/* The digest of a value begins with its name: eight numbers of 64 bits, little-endian; of a partial
 * sum the last four are its own. */
static void digest_name(struct peers_lane *lane, const struct value_name *name)
{
    bool sum = boundaries_is_sum(name);
    const uint64_t numbers[] = {name->generation,
                                name->kind,
                                name->step,
                                name->version,
                                sum ? name->try_number : name->slot,
                                sum ? name->sequence : name->microbatch,
                                sum ? name->round : name->boundary,
                                sum ? name->rank : name->way};
    uint8_t bytes[sizeof numbers];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(numbers[i / 8] >> i % 8 * 8);
    digest_fast_add(&lane->digest, (struct slice){bytes, sizeof bytes});
}

static void add_to_sums(struct peers_lane *lane, const struct ticket *ticket,
                        const struct value_name *name, bool given, uint64_t digest)
{
    struct passage passage;
    if (!boundaries_pass(&lane->peers->boundaries, ticket, name, &passage))
        return;
    boundary_sums_add(&lane->sums,
                      &(struct boundary_sum){.boundary = name->boundary,
                                             .way = name->way,
                                             .given = given,
                                             .stage = given ? passage.to : passage.from,
                                             .sum = digest});
}

void peers_sums(struct peers_lane *lane, struct boundary_sums *ret_sums)
{
    *ret_sums = lane->sums;
    lane->sums = (struct boundary_sums){0};
}

/* Copies, and adds the copy to the digest: in runs, so that no byte comes from memory twice (0.21
 * instead of 0.25 s for 496 MiB: tests/bench/RESULTS.md). */
static void copy_bytes(struct peers_lane *lane, const uint8_t *from, size_t count, uint8_t *to)
{
    for (size_t at = 0; at < count; at += RUN_BYTES) {
        size_t bytes = count - at < RUN_BYTES ? count - at : RUN_BYTES;
        memcpy(to + at, from + at, bytes);
        digest_fast_add(&lane->digest, (struct slice){to + at, bytes});
    }
}

static uint64_t fill_value(struct peers_lane *lane, const struct value_name *name,
                           const uint8_t *from, struct counted *value)
{
    digest_name(lane, name);
    copy_bytes(lane, from, value->bytes, value->data);
    return digest_fast_finish(&lane->digest);
}

static enum err give_named(struct peers_lane *lane, const struct task *task,
                           const struct value_name *name, const void *bytes, size_t count)
{
    struct peers *peers = lane->peers;
    if (count > WIRE_VALUE_BYTES_MAX)
        return ERR_INVALID;
    struct counted *copy = shared_pool_counted(rpc_loop_pool(peers->options.loop), count);
    if (copy == NULL)
        return ERR_NOMEM;
    uint64_t digest = fill_value(lane, name, bytes, copy);
    add_to_sums(lane, &task->ticket, name, true, digest);
    thread_lock(&peers->mutex);
    enum err err = outbox_give(peers->outbox, task->ticket.attempt, name, copy, digest);
    note_kept_locked(peers);
    atomic_store(&lane->kept_bytes, outbox_bytes(peers->outbox));
    thread_unlock(&peers->mutex);
    peers_serve_answers(peers);
    return err;
}

enum err peers_give(struct peers_lane *lane, const struct executor_value *value, const void *bytes)
{
    const struct task task = task_of(lane);
    const struct value_name name = boundaries_name(&task.ticket, task.place.rank, value);
    return give_named(lane, &task, &name, bytes, value->bytes);
}

enum err peers_give_part(struct peers_lane *lane, uint32_t sequence, uint32_t round,
                         const void *bytes, size_t count)
{
    const struct task task = task_of(lane);
    const struct executor_part part = {sequence, round, task.place.rank};
    const struct value_name name = boundaries_sum_name(&task.ticket, &task.place, &part);
    return give_named(lane, &task, &name, bytes, count);
}

/* The value's bytes in one piece, as they came; NULL: they are in several, or may change yet. */
static const uint8_t *piece_of(const struct wants_value *value)
{
    const struct rpc_message *message = value->value;
    const struct slice *last = &message->slices[message->slice_count - 1];
    return !message->lent && last->bytes >= value->bytes ? last->data + last->bytes - value->bytes
                                                         : NULL;
}

/* Copies the message's bytes behind the first `skip`, and returns how many these are. */
static size_t copy_message(struct peers_lane *lane, const struct rpc_message *message, size_t skip,
                           uint8_t *ret_bytes)
{
    size_t copied = 0;
    for (uint32_t i = 0; i < message->slice_count; i++) {
        struct slice slice = message->slices[i];
        size_t before = skip < slice.bytes ? skip : slice.bytes;
        size_t bytes = slice.bytes - before;
        skip -= before;
        if (bytes == 0)
            continue;
        copy_bytes(lane, slice.data + before, bytes, ret_bytes + copied);
        copied += bytes;
    }
    return copied;
}

/* Where a value is to be: copied there, or where it came, if `ret_lent` is not NULL. */
struct destination {
    void *bytes;
    const void **ret_lent;
};

static void drop_digest(struct peers_lane *lane)
{
    if (lane->digests)
        ignore(digest_fast_finish(&lane->digest)); /* the next one begins anew */
    lane->digests = false;
}

static void begin_digest(struct peers_lane *lane, const struct value_name *name)
{
    drop_digest(lane); /* of an answer whose end did not come */
    digest_name(lane, name);
    lane->digests = true;
}

static uint64_t end_digest(struct peers_lane *lane)
{
    lane->digests = false;
    return digest_fast_finish(&lane->digest);
}

/* Copies what has come of the value behind what was copied of this answer. */
static void copy_arrived(struct peers_lane *lane, const struct value_name *name,
                         const struct arrival *arrival, uint8_t *ret_bytes,
                         struct fragments_had *copied)
{
    if (copied->count == 0)
        begin_digest(lane, name);
    for (uint32_t i = 0; i < arrival->count; i++) {
        const struct fragment *fragment = &arrival->fragments[i];
        copied->bytes +=
            copy_message(lane, fragment->message, fragment->offset, ret_bytes + copied->bytes);
        rpc_message_unref(fragment->message);
    }
    copied->count += arrival->count;
}

/* Copies what is still to be copied of the value, the message's last bytes. */
static uint64_t copy_value(struct peers_lane *lane, const struct value_name *name,
                           const struct wants_value *value, uint8_t *ret_bytes,
                           struct fragments_had *copied)
{
    const struct rpc_message *message = value->value;
    if (copied->count == 0 || copied->number != fragments_number(message)) {
        begin_digest(lane, name);
        *copied = (struct fragments_had){0};
    }
    ignore(copy_message(lane, message, message->bytes - value->bytes + copied->bytes,
                        ret_bytes + copied->bytes)); /* to the value's end */
    *copied = (struct fragments_had){0};
    return end_digest(lane);
}

static uint64_t bring_value(struct peers_lane *lane, const struct value_name *name,
                            const struct wants_value *value, const struct destination *to,
                            struct fragments_had *copied)
{
    const uint8_t *piece = to->ret_lent != NULL ? piece_of(value) : NULL;
    if (piece == NULL) {
        if (to->ret_lent != NULL)
            *to->ret_lent = to->bytes; /* one that was refused may have lain elsewhere */
        return copy_value(lane, name, value, to->bytes, copied);
    }
    lane->lent = rpc_message_ref(value->value);
    *to->ret_lent = piece;
    begin_digest(lane, name);
    digest_fast_add(&lane->digest, (struct slice){piece, value->bytes});
    return end_digest(lane);
}

/* Whether the bytes are the value; BEHIND: it is waited for once more. */
static enum err take_value(struct peers_lane *lane, const struct ticket *ticket,
                           const struct value_name *name, const struct wants_value *value,
                           const struct destination *to, struct fragments_had *copied)
{
    struct peers *peers = lane->peers;
    uint64_t digest = bring_value(lane, name, value, to, copied), bytes = value->bytes;
    bool right = digest == value->digest;
    thread_lock(&peers->mutex);
    enum err err = wants_judge(lane->wants, name, right);
    thread_unlock(&peers->mutex);
    if (!right)
        end_lent(lane);
    if (right) {
        add_to_sums(lane, ticket, name, false, digest);
        atomic_fetch_add(&lane->taken_bytes, bytes);
    } else {
        log_warning(peers->options.logger, "value refused", log_uint("member", value->member),
                    log_text("err", err_name(ERR_WRONG_BITS)), log_text("next", "ask again"));
    }
    return err;
}

static enum err take_named(struct peers_lane *lane, const struct ticket *ticket,
                           const struct value_name *name, const struct destination *to,
                           size_t count)
{
    struct peers *peers = lane->peers;
    struct fragments_had copied = {0};
    end_lent(lane);
    atomic_store(&lane->blamed, 0);
    thread_lock(&peers->mutex);
    enum err err = lane->cancelled || ticket->attempt == 0
                       ? ERR_CANCELLED
                       : wants_begin(lane->wants, peers_now_ms(), name, count);
    thread_unlock(&peers->mutex);
    if (err != ERR_OK)
        return err;
    do {
        struct arrival arrival;
        err = peers_ask_wait(lane, name, count, &copied, &arrival);
        if (err == ERR_OK && arrival.count == 0) {
            err = take_value(lane, ticket, name, &arrival.value, to, &copied);
        } else if (err == ERR_OK) {
            copy_arrived(lane, name, &arrival, to->bytes, &copied);
            err = ERR_BEHIND;
        }
    } while (err == ERR_BEHIND);
    drop_digest(lane);
    return err;
}

enum err peers_take(struct peers_lane *lane, const struct executor_value *value, void *ret_bytes)
{
    const struct task task = task_of(lane);
    const struct value_name name = boundaries_name(&task.ticket, task.place.rank, value);
    return take_named(lane, &task.ticket, &name, &(struct destination){ret_bytes, NULL},
                      value->bytes);
}

enum err peers_take_part(struct peers_lane *lane, const struct executor_part *part, void *ret_bytes,
                         size_t count)
{
    const struct task task = task_of(lane);
    const struct value_name name = boundaries_sum_name(&task.ticket, &task.place, part);
    return take_named(lane, &task.ticket, &name, &(struct destination){ret_bytes, NULL}, count);
}

enum err peers_lend_part(struct peers_lane *lane, const struct executor_part *part, void *scratch,
                         size_t count, const void **ret_bytes)
{
    const struct task task = task_of(lane);
    const struct value_name name = boundaries_sum_name(&task.ticket, &task.place, part);
    *ret_bytes = scratch;
    return take_named(lane, &task.ticket, &name, &(struct destination){scratch, ret_bytes}, count);
}

void peers_expect_part(struct peers_lane *lane, const struct executor_part *part, size_t count)
{
    const struct task task = task_of(lane);
    const struct value_name name = boundaries_sum_name(&task.ticket, &task.place, part);
    thread_lock(&lane->peers->mutex);
    if (!lane->cancelled && task.ticket.attempt != 0)
        wants_expect(lane->wants, &name, count);
    thread_unlock(&lane->peers->mutex);
}

/* ---- any thread ---- */

uint64_t peers_blamed(const struct peers_lane *lane)
{
    return atomic_load(&lane->blamed);
}

uint64_t peers_bytes(const struct peers_lane *lane)
{
    return atomic_load(&lane->taken_bytes);
}

uint64_t peers_lane_kept_bytes(const struct peers_lane *lane)
{
    return atomic_load(&lane->kept_bytes);
}

uint64_t peers_kept_bytes(const struct peers *peers)
{
    return atomic_load(&peers->kept_bytes);
}

uint32_t peers_waits(struct peers *peers, uint64_t ret_attempts[static WIRE_LEASES_MAX])
{
    uint32_t count = 0;
    thread_lock(&peers->mutex);
    for (uint32_t i = 0; i < peers->options.lanes; i++)
        if (wants_waits(peers->lanes[i].wants))
            ret_attempts[count++] = peers->lanes[i].ticket.attempt;
    thread_unlock(&peers->mutex);
    return count;
}
