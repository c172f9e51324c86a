#include "worker/agent_leases.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

enum err agent_leases_init(struct agent_leases *leases, const struct agent_config *config)
{
    if (!spec_mesh_is_shared(&config->mesh))
        return ERR_OK;
    leases->all = calloc(AGENT_LEASES_MAX, sizeof *leases->all);
    leases->early = calloc(AGENT_EARLY_MAX, sizeof *leases->early);
    return leases->all != NULL && leases->early != NULL ? ERR_OK : ERR_NOMEM;
}

void agent_leases_release(struct agent_leases *leases)
{
    free(leases->all);
    free(leases->early);
}

/* ---- records ---- */

/* Attempt 0: a free record. NULL: none. */
static struct agent_lease *find(const struct agent_leases *leases, uint64_t attempt)
{
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++)
        if (leases->all[i].who.places.attempt == attempt)
            return &leases->all[i];
    return NULL;
}

static struct agent_places *find_early(const struct agent_leases *leases, uint64_t attempt)
{
    for (uint32_t i = 0; i < AGENT_EARLY_MAX; i++)
        if (leases->early[i].places.attempt == attempt)
            return &leases->early[i];
    return NULL;
}

static void take_places(struct agent_places *who, const struct places *places)
{
    who->places = *places;
    who->places.peers = who->peers;
    if (places->peer_count > 0)
        memmove(who->peers, places->peers, places->peer_count * sizeof *places->peers);
}

/* S7: what is older is ignored. That the lease is over is the last word of its number. */
static bool is_newer(const struct places *places, const struct places *known)
{
    return places->number > known->number ||
           (places->number == known->number && places->peer_count == 0 && known->peer_count > 0);
}

static void end_lease(struct agent_leases *leases, struct agent_lease *lease)
{
    lease->who.places = (struct places){0};
    leases->keep_due = true;
}

void agent_leases_clear(struct agent_leases *leases)
{
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++)
        if (leases->all[i].who.places.attempt != 0)
            end_lease(leases, &leases->all[i]);
}

void agent_leases_begin(struct agent_leases *leases, uint64_t generation)
{
    if (leases->all == NULL)
        return;
    agent_leases_clear(leases);
    memset(leases->early, 0, AGENT_EARLY_MAX * sizeof *leases->early);
    leases->generation = generation;
    leases->generation_due = true;
}

static bool is_named(const struct acquire_reply *reply, uint64_t attempt)
{
    for (uint32_t i = 0; i < reply->lease_count; i++)
        if (reply->leases[i] == attempt)
            return true;
    return reply->result == ACQUIRE_TICKET && reply->ticket.attempt == attempt;
}

void agent_leases_keep(struct agent_leases *leases, const struct acquire_reply *reply)
{
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++) {
        uint64_t attempt = leases->all[i].who.places.attempt;
        if (attempt != 0 && !is_named(reply, attempt))
            end_lease(leases, &leases->all[i]);
    }
}

/* Of what the answer and notices say, the newest counts, whichever came first. */
bool agent_leases_hold(struct agent_leases *leases, const struct acquire_reply *reply)
{
    uint64_t attempt = reply->ticket.attempt;
    if (leases->all == NULL)
        return true;
    struct agent_places *early = find_early(leases, attempt);
    struct agent_lease *lease = find(leases, attempt);
    if (lease == NULL)
        lease = find(leases, 0);
    check(lease != NULL);
    lease->ticket = reply->ticket;
    lease->place = reply->place;
    lease->begun = lease->told = lease->changed = false;
    if (is_newer(&reply->places, &lease->who.places) || lease->who.places.attempt == 0)
        take_places(&lease->who, &reply->places);
    if (early != NULL && is_newer(&early->places, &lease->who.places))
        take_places(&lease->who, &early->places);
    if (early != NULL)
        early->places = (struct places){0};
    if (lease->who.places.peer_count > 0)
        return true;
    end_lease(leases, lease);
    return false;
}

void agent_leases_forget(struct agent_leases *leases, uint64_t attempt)
{
    struct agent_lease *lease = attempt != 0 ? find(leases, attempt) : NULL;
    if (lease != NULL)
        end_lease(leases, lease);
}

static void hear_early(struct agent_leases *leases, const struct places *places)
{
    struct agent_places *early = find_early(leases, places->attempt);
    if (early == NULL) {
        early = &leases->early[leases->early_turn];
        leases->early_turn = (leases->early_turn + 1) % AGENT_EARLY_MAX;
        early->places = (struct places){0};
    }
    if (is_newer(places, &early->places))
        take_places(early, places);
}

bool agent_leases_hear(struct agent_leases *leases, const struct places *places)
{
    if (leases->all == NULL || places->attempt == 0)
        return false;
    struct agent_lease *lease = find(leases, places->attempt);
    if (lease == NULL) {
        hear_early(leases, places);
        return false;
    }
    if (!is_newer(places, &lease->who.places))
        return false;
    if (places->peer_count == 0) {
        end_lease(leases, lease);
        hear_early(leases, places); /* an answer that is older may still grant it */
        return true;
    }
    take_places(&lease->who, places);
    lease->changed = lease->told;
    return false;
}

void agent_leases_again(struct agent_leases *leases, uint64_t attempt)
{
    struct agent_lease *lease = attempt != 0 ? find(leases, attempt) : NULL;
    if (lease != NULL)
        lease->begun = false;
}

/* ---- questions ---- */

bool agent_leases_fits(const struct agent_config *config, const struct acquire_reply *reply)
{
    const struct spec_mesh *mesh = &config->mesh;
    if (!spec_mesh_is_shared(mesh))
        return !place_is_shared(&reply->place);
    return reply->place.stages == mesh->stages && reply->place.ranks == spec_mesh_ranks(mesh) &&
           reply->place.stage < mesh->stages && reply->place.rank < reply->place.ranks &&
           reply->ticket.attempt != 0 && reply->places.attempt == reply->ticket.attempt;
}

bool agent_leases_has(const struct agent_leases *leases, uint64_t attempt)
{
    return attempt != 0 && find(leases, attempt) != NULL;
}

bool agent_leases_told(const struct agent_leases *leases, uint64_t attempt)
{
    return agent_leases_has(leases, attempt) && find(leases, attempt)->told;
}

bool agent_leases_names(const struct agent_leases *leases, uint64_t attempt, uint64_t member)
{
    const struct agent_lease *lease = attempt != 0 ? find(leases, attempt) : NULL;
    for (uint32_t i = 0; lease != NULL && i < lease->who.places.peer_count; i++)
        if (lease->who.peers[i].member == member)
            return true;
    return false;
}

uint32_t agent_leases_count(const struct agent_leases *leases)
{
    uint32_t count = 0;
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++)
        count += leases->all[i].who.places.attempt != 0;
    return count;
}

/* ---- effects ---- */

static void tell(struct agent_lease *lease, enum agent_effect_kind kind,
                 struct agent_effect *effect)
{
    effect->kind = kind;
    lease->told = true;
    lease->changed = false;
    effect->ticket = lease->ticket;
    effect->place = lease->place;
    effect->places = lease->who.places;
}

static void tell_keep(struct agent_leases *leases, struct agent_effect *effect)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < AGENT_LEASES_MAX; i++)
        if (leases->all[i].who.places.attempt != 0)
            leases->kept[count++] = leases->all[i].who.places.attempt;
    effect->kind = AGENT_KEEP;
    effect->keep.attempts = leases->kept;
    effect->keep.count = count;
    leases->keep_due = false;
}

bool agent_leases_next(struct agent_leases *leases, struct agent_effect *effect)
{
    if (leases->generation_due) {
        leases->generation_due = false;
        effect->kind = AGENT_GENERATION;
        effect->generation = leases->generation;
        return true;
    }
    if (leases->keep_due) {
        tell_keep(leases, effect);
        return true;
    }
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++)
        if (leases->all[i].who.places.attempt != 0 && leases->all[i].changed) {
            tell(&leases->all[i], AGENT_PLACES, effect);
            return true;
        }
    return false;
}

bool agent_leases_next_first(struct agent_leases *leases, uint64_t attempt,
                             struct agent_effect *effect)
{
    struct agent_lease *lease = find(leases, attempt);
    if (lease == NULL || lease->begun)
        return false;
    tell(lease, AGENT_LEASE, effect);
    lease->begun = true;
    return true;
}

/* ---- invariants ---- */

void agent_leases_check(const struct agent_leases *leases)
{
    for (uint32_t i = 0; leases->all != NULL && i < AGENT_LEASES_MAX; i++) {
        const struct agent_lease *lease = &leases->all[i];
        const struct places *places = &lease->who.places;
        if (places->attempt == 0)
            continue;
        check(find(leases, places->attempt) == lease);
        check(find_early(leases, places->attempt) == NULL);
        check(places->peer_count > 0 && places->peer_count <= WIRE_PLACES_MAX);
        check(places->peers == lease->who.peers && lease->ticket.attempt == places->attempt);
        check(lease->told || (!lease->changed && !lease->begun));
    }
}
