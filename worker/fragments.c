#include "worker/fragments.h"

#include <stdlib.h>

enum { FRAGMENT_BYTES = 2 << 20 };

static _Atomic uint64_t numbers; /* of the process's answers */

size_t fragments_bytes(size_t value_bytes)
{
    size_t least = (value_bytes + WIRE_FRAGMENTS_MAX - 1) / WIRE_FRAGMENTS_MAX;
    return least > FRAGMENT_BYTES ? least : FRAGMENT_BYTES;
}

struct fragments {
    uint64_t number;
    struct from_peer have; /* the first message; its payload_bytes are those of all that came */
    uint64_t rest;
    size_t slices; /* of all messages */
    uint32_t count;
    struct fragment list[WIRE_FRAGMENTS_MAX];
};

uint32_t fragments_behind(const struct fragments *fragments, uint64_t id, size_t bytes,
                          struct fragments_had *had,
                          struct fragment ret_list[static WIRE_FRAGMENTS_MAX])
{
    uint32_t count = 0;
    if (fragments == NULL || fragments->have.have.id != id ||
        fragments->have.payload_bytes + fragments->rest != bytes)
        return 0;
    if (had->number != fragments->number)
        *had = (struct fragments_had){.number = fragments->number};
    for (uint32_t i = had->count; i < fragments->count; i++) {
        ret_list[count] = fragments->list[i];
        rpc_message_ref(ret_list[count++].message);
    }
    return count;
}

void fragments_free(struct fragments *fragments)
{
    for (uint32_t i = 0; fragments != NULL && i < fragments->count; i++)
        rpc_message_unref(fragments->list[i].message);
    free(fragments);
}

/* ---- a value that is whole ---- */

struct whole {
    struct rpc_message message;
    struct fragments *fragments; /* whose bytes it has */
    struct slice slices[];
};

static void whole_free(struct rpc_message *message)
{
    struct whole *whole = (struct whole *)message; /* its first member */
    fragments_free(whole->fragments);
    free(whole);
}

uint64_t fragments_number(const struct rpc_message *value)
{
    return value->released == whole_free ? ((const struct whole *)value)->fragments->number : 0;
}

/* The slices of the payload. */
static void add_slices(struct whole *whole, const struct rpc_message *message, size_t offset)
{
    for (uint32_t i = 0; i < message->slice_count; i++) {
        struct slice slice = message->slices[i];
        size_t before = offset < slice.bytes ? offset : slice.bytes;
        offset -= before;
        if (before < slice.bytes)
            whole->slices[whole->message.slice_count++] =
                (struct slice){slice.data + before, slice.bytes - before};
    }
    whole->message.lent |= message->lent;
}

/* NULL: no memory. */
static struct rpc_message *make_whole(struct fragments *fragments)
{
    struct whole *whole = malloc(sizeof *whole + fragments->slices * sizeof whole->slices[0]);
    if (whole == NULL)
        return NULL;
    *whole = (struct whole){.message = {.bytes = fragments->have.payload_bytes,
                                        .released = whole_free,
                                        .slices = whole->slices},
                            .fragments = fragments};
    atomic_init(&whole->message.references, 1);
    for (uint32_t i = 0; i < fragments->count; i++)
        add_slices(whole, fragments->list[i].message, fragments->list[i].offset);
    return &whole->message;
}

/* ---- messages ---- */

/* A value that is to come in several messages begins. */
static enum err begin(const struct from_peer *have, struct fragments **ret_fragments,
                      struct reason *reason)
{
    if (have->payload_bytes + have->have.rest > WIRE_VALUE_BYTES_MAX)
        return reason_set(reason, ERR_MALFORMED, "a value of %zu bytes and %llu that follow",
                          have->payload_bytes, (unsigned long long)have->have.rest);
    struct fragments *fragments = calloc(1, sizeof *fragments);
    if (fragments == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for a value");
    fragments->number = atomic_fetch_add(&numbers, 1) + 1;
    fragments->have = *have;
    fragments->have.have.rest = 0;
    fragments->have.payload_offset = fragments->have.payload_bytes = 0;
    fragments->rest = have->payload_bytes + have->have.rest;
    *ret_fragments = fragments;
    return ERR_OK;
}

/* The message has the value's next bytes, and leaves so many. */
static enum err add(struct fragments *fragments, const struct from_peer *came, uint64_t rest,
                    struct rpc_message *message, struct reason *reason)
{
    if (came->payload_bytes == 0 || came->payload_bytes + rest != fragments->rest)
        return reason_set(
            reason, ERR_MALFORMED, "%zu bytes of a value and %llu that follow, not %llu",
            came->payload_bytes, (unsigned long long)rest, (unsigned long long)fragments->rest);
    if (fragments->count == WIRE_FRAGMENTS_MAX)
        return reason_set(reason, ERR_MALFORMED, "a value in more than %d messages",
                          WIRE_FRAGMENTS_MAX);
    fragments->list[fragments->count].message = rpc_message_ref(message);
    fragments->list[fragments->count++].offset = came->payload_offset;
    fragments->slices += message->slice_count;
    fragments->have.payload_bytes += came->payload_bytes;
    fragments->rest = rest;
    return ERR_OK;
}

static bool is_part(const struct from_peer *came)
{
    return came->kind == FROM_PEER_FRAGMENT ||
           (came->kind == FROM_PEER_HAVE && came->have.rest > 0);
}

static enum err add_part(struct fragments **fragments, const struct from_peer *came,
                         struct rpc_message *message, struct reason *reason)
{
    bool begins = came->kind == FROM_PEER_HAVE;
    if (begins != (*fragments == NULL))
        return reason_set(reason, ERR_MALFORMED, "%s",
                          begins ? "a value begins inside another one" : "a fragment of no value");
    if (begins)
        TRY(begin(came, fragments, reason));
    return add(*fragments, came, begins ? came->have.rest : came->fragment.rest, message, reason);
}

static enum err gather_part(struct fragments **fragments, const struct from_peer *came,
                            struct rpc_message *message, struct from_peer *ret_answer,
                            struct rpc_message **ret_message, struct reason *reason)
{
    TRY(add_part(fragments, came, message, reason));
    if ((*fragments)->rest > 0)
        return ERR_OK;
    *ret_answer = (*fragments)->have;
    *ret_message = make_whole(*fragments);
    if (*ret_message == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory for a value");
    *fragments = NULL;
    return ERR_OK;
}

enum err fragments_gather(struct fragments **fragments, const struct from_peer *came,
                          struct rpc_message *message, struct from_peer *ret_answer,
                          struct rpc_message **ret_message, struct reason *reason)
{
    *ret_message = NULL;
    if (is_part(came))
        return gather_part(fragments, came, message, ret_answer, ret_message, reason);
    if (came->kind == FROM_PEER_HAVE && *fragments != NULL)
        return reason_set(reason, ERR_MALFORMED, "a value inside another one");
    *ret_answer = *came;
    *ret_message = rpc_message_ref(message);
    return ERR_OK;
}
