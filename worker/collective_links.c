#include "worker/collective_links.h"

#include "common/arena.h"
#include "common/scoped.h"
#include "common/time.h"

#include <string.h>

enum {
    SENDS_MAX = 2,            /* to one rank; more wait in their order */
    BLOCK_BYTES = 128 * 1024, /* at a time, so that both ends have something to do */
    ARENA_BYTES_MAX = 4096,
};

/* What goes to a rank, and what comes from it. */
struct lane {
    uint32_t send_count;
    struct running_effect sends[SENDS_MAX]; /* the first one may have begun */
    bool begun;
    size_t written;
    uint64_t coming; /* bytes of the part that comes */
};

struct collective_links {
    struct collective_links_options options;
    struct shared_link *links[COLLECTIVE_RANKS_MAX];
    struct lane lanes[COLLECTIVE_RANKS_MAX];
    void *memory;
    struct running *running;
    struct running_effect held; /* a send that waits for its lane; kind 0: none */
    struct buf header;
    uint32_t blamed;
};

enum err collective_links_new(const struct collective_links_options *options,
                              struct collective_links **ret_links, struct reason *reason)
{
    size_t bytes;
    TRY(running_bytes(&options->running, &bytes, reason));
    struct collective_links *links = calloc(1, sizeof *links);
    void *memory = links != NULL ? aligned_alloc(64, bytes) : NULL;
    if (memory == NULL) {
        free(links);
        return ERR_NOMEM;
    }
    links->options = *options;
    memcpy(links->links, options->links, options->running.ranks * sizeof links->links[0]);
    links->memory = memory;
    links->running = running_init(&options->running, memory);
    *ret_links = links;
    return ERR_OK;
}

void collective_links_free(struct collective_links *links)
{
    if (links == NULL)
        return;
    buf_release(&links->header);
    free(links->memory);
    free(links);
}

/* ---- send ---- */

/* Takes what is to be sent, as far as there are lanes. True: the collective is over, *ret_err says
 * how. */
static bool take_effects(struct collective_links *links, enum err *ret_err, struct reason *reason)
{
    struct running_effect *effect = &links->held;
    while (effect->kind == RUNNING_SEND || running_next(links->running, time_now_ns(), effect)) {
        if (effect->kind == RUNNING_DONE) {
            effect->kind = 0;
            *ret_err = ERR_OK;
            return true;
        }
        if (effect->kind == RUNNING_FAILED) {
            links->blamed = effect->rank;
            *ret_err = reason_set(reason, effect->err, "%s", effect->reason);
            return true;
        }
        struct lane *lane = &links->lanes[effect->rank];
        if (lane->send_count == SENDS_MAX)
            return false;
        lane->sends[lane->send_count++] = *effect;
        effect->kind = 0;
    }
    return false;
}

static enum err begin_send(struct collective_links *links, uint32_t to, struct reason *reason)
{
    const struct part *part = &links->lanes[to].sends[0].part;
    links->header.bytes = 0;
    TRY(wire_encode_part(part, &links->header));
    TRY(shared_link_begin(links->links[to], buf_slice(&links->header), part->bytes, reason));
    links->lanes[to].begun = true;
    links->lanes[to].written = 0;
    return ERR_OK;
}

/* The collective fails, which take_effects() says: nothing is to be waited for. */
static enum err lose(struct collective_links *links, uint32_t rank)
{
    running_lost(links->running, rank);
    return ERR_OK;
}

/* The next block to that rank. ERR_BUSY: there is nothing, or no room. */
static enum err send_some(struct collective_links *links, uint32_t to, struct reason *reason)
{
    struct lane *lane = &links->lanes[to];
    size_t written = 0;
    if (lane->send_count == 0)
        return ERR_BUSY;
    if (shared_link_ended(links->links[to]))
        return lose(links, to);
    if (!lane->begun)
        TRY(begin_send(links, to, reason));
    size_t left = (size_t)lane->sends[0].part.bytes - lane->written;
    if (left > 0)
        TRY(shared_link_write(links->links[to],
                              (const uint8_t *)lane->sends[0].bytes + lane->written,
                              left < BLOCK_BYTES ? left : BLOCK_BYTES, &written, reason));
    lane->written += written;
    if (written == left) {
        lane->begun = false;
        lane->sends[0] = lane->sends[1];
        lane->send_count--;
        running_sent(links->running, to);
        return ERR_OK;
    }
    return written > 0 ? ERR_OK : ERR_BUSY;
}

/* ---- receive ---- */

static enum err begin_receive(struct collective_links *links, uint32_t from, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = ARENA_BYTES_MAX};
    bool ended = shared_link_ended(links->links[from]);
    struct slice header;
    uint64_t bytes;
    struct part part;
    enum err err = shared_link_next(links->links[from], &header, &bytes, reason);
    if (err == ERR_BUSY && ended)
        return lose(links, from);
    TRY(err);
    TRY(wire_decode_part(header, &arena, &part, reason));
    if (part.bytes != bytes)
        return reason_set(reason, ERR_MALFORMED,
                          "rank %u sent a part that is not as long as it says", from);
    TRY(running_part(links->running, from, &part, reason));
    links->lanes[from].coming = bytes;
    return ERR_OK;
}

/* The next block of that rank. ERR_BUSY: there is nothing, or it is not its turn. */
static enum err receive_some(struct collective_links *links, uint32_t from, struct reason *reason)
{
    struct lane *lane = &links->lanes[from];
    struct slice bytes;
    if (lane->coming == 0) {
        if (!running_waits_for(links->running, from))
            return ERR_BUSY;
        return begin_receive(links, from, reason);
    }
    TRY(shared_link_look(links->links[from], &bytes, reason));
    if (bytes.bytes == 0)
        return shared_link_ended(links->links[from]) ? lose(links, from) : ERR_BUSY;
    if (bytes.bytes > BLOCK_BYTES)
        bytes.bytes = BLOCK_BYTES;
    running_payload(links->running, from, bytes.data, bytes.bytes);
    shared_link_took(links->links[from], bytes.bytes);
    lane->coming -= bytes.bytes;
    return ERR_OK;
}

/* ---- both ---- */

/* A block each way with each rank. ERR_BUSY: nothing could be done. */
static enum err move_some(struct collective_links *links, struct reason *reason)
{
    enum err moved = ERR_BUSY;
    for (uint32_t rank = 0; rank < links->options.running.ranks; rank++) {
        if (rank == links->options.running.rank)
            continue;
        links->blamed = rank;
        enum err sent = send_some(links, rank, reason);
        enum err received =
            sent == ERR_OK || sent == ERR_BUSY ? receive_some(links, rank, reason) : sent;
        if (received != ERR_OK && received != ERR_BUSY)
            return received;
        if (sent == ERR_OK || received == ERR_OK)
            moved = ERR_OK;
    }
    return moved;
}

enum err collective_links_run(struct collective_links *links, const struct running_work *work,
                              uint32_t *ret_rank, struct reason *reason)
{
    enum err err;
    TRY(running_begin(links->running, work, reason));
    while (!take_effects(links, &err, reason)) {
        err = move_some(links, reason);
        if (err == ERR_BUSY)
            ignore(shared_link_wait(links->links, links->options.running.ranks,
                                    work->deadline_ns)); /* the core looks at the clock */
        else if (err != ERR_OK)
            break;
    }
    *ret_rank = links->blamed;
    return err;
}
