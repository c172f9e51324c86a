/* Which cut is durable. */
#include "server/coordinator/cuts.h"

#include "server/coordinator/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An attempt at a cut reads all weights: one and a half a minute at last. */
enum { AGAIN_MS = 1000, AGAIN_DOUBLINGS_MAX = 5 };

enum err cuts_init(struct cuts *cuts, const struct cut_record *newest)
{
    *cuts = (struct cuts){0};
    if (newest != NULL)
        cuts->newest = *newest;
    cuts->pending = calloc(CUTS_PENDING_MAX, sizeof *cuts->pending);
    return cuts->pending == NULL ? ERR_NOMEM : ERR_OK;
}

void cuts_release(struct cuts *cuts)
{
    for (uint32_t i = 0; i < cuts->pending_count; i++)
        map_release(&cuts->pending[i].map);
    map_release(&cuts->map);
    free(cuts->pending);
    *cuts = (struct cuts){0};
}

void cuts_ask(struct cuts *cuts)
{
    cuts->wanted = true;
}

void cuts_ask_at(struct cuts *cuts, uint64_t version)
{
    if (version > cuts->asked_at)
        cuts->asked_at = version;
}

bool cuts_asked(const struct cuts *cuts, uint64_t version)
{
    return cuts->wanted || (cuts->asked_at > 0 && version >= cuts->asked_at);
}

void cuts_ask_done(struct cuts *cuts)
{
    check(cuts->pending_count > 0);
    struct pending_cut *newest = &cuts->pending[cuts->pending_count - 1];
    uint64_t version = newest->record.name.version;
    newest->asked = cuts_asked(cuts, version);
    cuts->wanted = false;
    if (version >= cuts->asked_at)
        cuts->asked_at = 0;
}

bool cuts_same(struct cut_name a, struct cut_name b)
{
    return a.generation == b.generation && a.version == b.version;
}

bool cuts_is_newer(struct cut_name a, struct cut_name b)
{
    return a.generation > b.generation || (a.generation == b.generation && a.version > b.version);
}

static struct pending_cut *find_pending(const struct cuts *cuts, struct cut_name name)
{
    for (uint32_t i = 0; i < cuts->pending_count; i++)
        if (cuts_same(cuts->pending[i].record.name, name))
            return &cuts->pending[i];
    return NULL;
}

/* Forgets the pending cuts below `count`. */
static void shift(struct cuts *cuts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        map_release(&cuts->pending[i].map);
    cuts->pending_count -= count;
    memmove(cuts->pending, cuts->pending + count, cuts->pending_count * sizeof *cuts->pending);
}

static void give_up(struct cuts *cuts, struct pending_cut *pending)
{
    map_release(&pending->map);
    size_t behind = (size_t)(&cuts->pending[cuts->pending_count] - pending) - 1;
    memmove(pending, pending + 1, behind * sizeof *pending);
    cuts->pending_count--;
}

static struct pending_cut *oldest_unfinished(struct cuts *cuts)
{
    struct pending_cut *pending = cuts->pending;
    while (pending->complete && pending < &cuts->pending[cuts->pending_count - 1])
        pending++;
    return pending;
}

void cuts_order(struct cuts *cuts, const struct cut_record *record, struct map *take_map)
{
    uint32_t count = cuts->pending_count;
    check(record->server_count > 0 && record->server_count <= WIRE_SERVERS_MAX);
    check(count == 0 || cuts_is_newer(record->name, cuts->pending[count - 1].record.name));
    if (cuts->pending_count == CUTS_PENDING_MAX)
        give_up(cuts, oldest_unfinished(cuts));
    struct pending_cut *pending = &cuts->pending[cuts->pending_count++];
    *pending = (struct pending_cut){.record = *record, .map = *take_map};
    *take_map = (struct map){0};
}

bool cuts_full(const struct cuts *cuts)
{
    return cuts->pending_count == CUTS_PENDING_MAX;
}

bool cuts_ordered(const struct cuts *cuts, struct cut_name name)
{
    return find_pending(cuts, name) != NULL;
}

bool cuts_complete(const struct cuts *cuts, struct cut_name name)
{
    const struct pending_cut *pending = find_pending(cuts, name);
    return pending != NULL && pending->complete;
}

/* P9: only a newer cut is recorded, however long writing one down takes. */
static bool newer_is_complete(const struct cuts *cuts, struct cut_name name)
{
    for (uint32_t i = 0; i < cuts->pending_count; i++)
        if (cuts->pending[i].complete && cuts_is_newer(cuts->pending[i].record.name, name))
            return true;
    return false;
}

bool cuts_are_written(const struct cuts *cuts)
{
    for (uint32_t i = 0; i < cuts->pending_count; i++)
        if (cuts->pending[i].complete)
            return true;
    return false;
}

bool cuts_need(const struct cuts *cuts, const char *server)
{
    for (uint32_t i = 0; i < cuts->pending_count; i++)
        if (cuts_file(&cuts->pending[i].record, server) != WIRE_SERVERS_MAX)
            return true;
    return cuts_file(&cuts->newest, server) != WIRE_SERVERS_MAX;
}

bool cuts_last_needs(const struct cuts *cuts, const char *server)
{
    const struct cut_record *last =
        cuts->pending_count == 0 ? &cuts->newest : &cuts->pending[cuts->pending_count - 1].record;
    return cuts_file(last, server) != WIRE_SERVERS_MAX;
}

uint32_t cuts_file(const struct cut_record *record, const char *server)
{
    for (uint32_t i = 0; i < record->server_count; i++)
        if (strcmp(record->servers[i].name, server) == 0)
            return i;
    return WIRE_SERVERS_MAX;
}

bool cuts_is_nameless(const struct cut_record *record)
{
    return record->server_count > 0 && record->servers[0].name[0] == 0;
}

const struct cut_record *cuts_manifest(struct cuts *cuts, struct cut_name name, const char *server,
                                       const uint8_t digest[static WIRE_DIGEST_BYTES])
{
    struct pending_cut *pending = find_pending(cuts, name);
    uint32_t file = pending == NULL ? WIRE_SERVERS_MAX : cuts_file(&pending->record, server);
    if (file == WIRE_SERVERS_MAX || pending->have[file])
        return NULL;
    pending->have[file] = true;
    pending->have_count++;
    check(pending->have_count <= pending->record.server_count);
    memcpy(pending->record.servers[file].digest, digest, WIRE_DIGEST_BYTES);
    bool complete = pending->have_count == pending->record.server_count;
    pending->complete =
        complete && cuts_is_newer(name, cuts->newest.name) && !newer_is_complete(cuts, name);
    return pending->complete ? &pending->record : NULL;
}

const struct cut_record *cuts_by_seed(struct cuts *cuts, struct cut_name name)
{
    struct pending_cut *pending = find_pending(cuts, name);
    if (pending == NULL || !pending->record.by_seed || pending->complete)
        return NULL;
    pending->complete = true;
    return &pending->record;
}

static void wait_no_more(struct cuts *cuts)
{
    cuts->waiting = (struct cut_name){0};
    cuts->attempt = 0;
    cuts->again_ms = 0;
}

bool cuts_recorded(struct cuts *cuts, struct cut_name name)
{
    struct pending_cut *pending = find_pending(cuts, name);
    if (pending == NULL || !cuts_is_newer(name, cuts->newest.name))
        return false;
    cuts->newest = pending->record;
    map_release(&cuts->map);
    cuts->map = pending->map;
    pending->map = (struct map){0};
    cuts->error[0] = 0;
    cuts->fails = 0;
    if (cuts_same(cuts->waiting, name))
        wait_no_more(cuts);
    shift(cuts, (uint32_t)(pending - cuts->pending) + 1);
    return true;
}

void cuts_go_back(struct cuts *cuts, const struct cut_record *whole)
{
    cuts->newest = *whole;
    map_release(&cuts->map);
}

bool cuts_fail(struct cuts *cuts, struct cut_name name)
{
    struct pending_cut *pending = find_pending(cuts, name);
    if (pending == NULL)
        return false;
    give_up(cuts, pending);
    return true;
}

void cuts_note_error(struct cuts *cuts, struct cut_name name, const struct cut_failure *failure)
{
    char needed[64] = "";
    if (failure->code == ERR_NO_SPACE && failure->bytes > 0)
        snprintf(needed, sizeof needed, "; a checkpoint takes %.1f MB",
                 (double)failure->bytes / 1e6);
    const char *why = failure->code == ERR_BUSY ? "its disk is too slow for the chunks that wait"
                                                : err_text(failure->code);
    snprintf(cuts->error, sizeof cuts->error,
             "%s could not write the checkpoint of version %llu: %s%s", failure->who,
             (unsigned long long)name.version, why, needed);
}

void cuts_wait(struct cuts *cuts, struct cut_name name, uint64_t now_ms)
{
    uint32_t doublings = cuts->fails < AGAIN_DOUBLINGS_MAX ? cuts->fails : AGAIN_DOUBLINGS_MAX;
    cuts->waiting = name;
    cuts->fails++;
    cuts->again_ms = now_ms + ((uint64_t)AGAIN_MS << doublings);
}

void cuts_resume(struct cuts *cuts, struct cut_name name, uint32_t attempt, uint64_t now_ms)
{
    cuts->waiting = name;
    cuts->attempt = attempt;
    cuts->fails = 0;
    cuts->again_ms = now_ms > 0 ? now_ms : 1;
}

void cuts_try_again(struct cuts *cuts)
{
    check(cuts_waits(cuts));
    cuts->attempt++;
    cuts->again_ms = 0;
}

bool cuts_again_is_due(const struct cuts *cuts, uint64_t now_ms)
{
    return cuts_waits(cuts) && cuts->again_ms > 0 && cuts->again_ms <= now_ms;
}

bool cuts_waits(const struct cuts *cuts)
{
    return cuts->waiting.generation > 0;
}

uint32_t cuts_attempt(const struct cuts *cuts, struct cut_name name)
{
    return cuts_same(cuts->waiting, name) ? cuts->attempt : 0;
}

bool cuts_server_lost(struct cuts *cuts, const char *server)
{
    uint32_t before = cuts->pending_count;
    for (uint32_t i = before; i-- > 0;) {
        struct pending_cut *pending = &cuts->pending[i];
        if (!pending->complete && cuts_file(&pending->record, server) != WIRE_SERVERS_MAX)
            give_up(cuts, pending);
    }
    return cuts->pending_count < before;
}

void cuts_forget(struct cuts *cuts)
{
    wait_no_more(cuts);
    for (uint32_t i = cuts->pending_count; i-- > 0;) {
        struct pending_cut *pending = &cuts->pending[i];
        uint64_t version = pending->record.name.version;
        if (pending->complete)
            continue;
        if (pending->asked)
            cuts_ask_at(cuts, version);
        give_up(cuts, pending);
    }
}
