#include "server/member/admission.h"

#include <stdlib.h>
#include <string.h>

enum err admission_init(struct admission *admission)
{
    *admission = (struct admission){0};
    TRY(digest_mac_init(&admission->key));
    admission->ended.members = calloc(WIRE_ENDED_MAX, sizeof *admission->ended.members);
    return admission->ended.members == NULL ? ERR_NOMEM : ERR_OK;
}

void admission_release(struct admission *admission)
{
    digest_mac_release(&admission->key);
    free(admission->ended.members);
}

/* ---- members that have ended ---- */

bool admission_has_ended(const struct admission *admission, uint64_t member)
{
    for (uint32_t i = 0; i < admission->ended.count; i++)
        if (admission->ended.members[i] == member)
            return true;
    return false;
}

void admission_end(struct admission *admission, const struct server_command *command)
{
    struct admission_ended *ended = &admission->ended;
    if (command->ended.generation > ended->generation)
        ended->count = 0; /* P2 fences what those of an older generation bring */
    if (command->ended.generation < ended->generation)
        return;
    ended->generation = command->ended.generation;
    ended->step = command->ended.step;
    for (uint32_t i = 0; i < command->ended.member_count; i++) {
        if (admission_has_ended(admission, command->ended.members[i]))
            continue;
        if (ended->count == WIRE_ENDED_MAX) { /* the oldest makes room */
            ended->count--;
            memmove(ended->members, ended->members + 1, ended->count * sizeof *ended->members);
        }
        ended->members[ended->count++] = command->ended.members[i];
    }
}

void admission_decided(struct admission *admission, uint64_t generation, uint64_t step)
{
    if (generation == admission->ended.generation && step >= admission->ended.step)
        admission->ended.count = 0;
}

/* ---- members ---- */

void admission_set(struct admission *admission, const struct admission_term *term)
{
    static const uint8_t none[DIGEST_KEY_BYTES]; /* of a coordinator that knows of no proofs */
    admission->term = term->term;
    admission->run = digest_same(term->key, none, sizeof none) ? 0 : term->run;
    digest_mac_set_key(&admission->key, term->key);
}

/* Why a proof does not hold under the key that is known here. */
static enum err not_proved(const struct admission *admission, uint64_t member)
{
    uint64_t term = proof_member_term(member);
    if (term < admission->term)
        return ERR_OLD_GENERATION; /* its coordinator is gone: it joins the next one's run */
    if (term > admission->term)
        return ERR_BEHIND; /* the command that brings its key is under way */
    return admission->run == 0 ? ERR_NO_RUN : ERR_UNKNOWN_MEMBER;
}

/* The key decides, not the term: a coordinator that takes a higher term keeps its key and its
 * members. */
enum err admission_member(struct admission *admission, uint64_t member, const struct proof *secret)
{
    struct proof right = proof_member(&admission->key, admission->run, member);
    if (admission->run == 0 || !proof_same(&right, secret))
        return not_proved(admission, member);
    return admission_has_ended(admission, member) ? ERR_UNKNOWN_MEMBER : ERR_OK;
}

/* ---- pushes ---- */

static bool allows_entries(const struct ticket *ticket, const struct push *push)
{
    for (uint32_t i = 0; i < push->entry_count; i++)
        if (!ticket_names(ticket, push->entries[i].chunk, push->entries[i].part))
            return false;
    return true;
}

static enum err ticket_granted(struct admission *admission, const struct ticket *ticket,
                               struct push *push)
{
    bool audited = false;
    if (admission->run == 0 || !proof_granted(&admission->key, admission->run, ticket, &audited)) {
        enum err err = not_proved(admission, ticket->member);
        return err == ERR_UNKNOWN_MEMBER ? ERR_NO_GRANT : err;
    }
    bool fits = !admission_has_ended(admission, ticket->member) && ticket->kind == TICKET_TRAIN &&
                ticket->generation == push->generation && ticket->step == push->step &&
                allows_entries(ticket, push);
    push->audited = push->audited || audited;
    return fits ? ERR_OK : ERR_NO_GRANT;
}

/* Whether tickets name every slot of the node. Looks deeper only where a ticket lies inside. */
static bool covers(const struct push *push, struct node node)
{
    bool inside = false;
    for (uint32_t i = 0; i < push->ticket_count; i++) {
        if (node_contains(push->tickets[i].node, node))
            return true;
        inside = inside || node_contains(node, push->tickets[i].node);
    }
    const struct node left = {node.level - 1, 2 * node.index};
    return inside && node.level > 0 && covers(push, left) && covers(push, node_sibling(left));
}

enum err admission_push(struct admission *admission, uint64_t member, struct push *push)
{
    push->audited = false;
    if (push->ticket_count == 0 || push->tickets[0].member != member ||
        (push->attempt != 0 && push->attempt != push->tickets[0].attempt))
        return ERR_NO_GRANT;
    for (uint32_t i = 0; i < push->ticket_count; i++)
        TRY(ticket_granted(admission, &push->tickets[i], push));
    return covers(push, push->node) ? ERR_OK : ERR_NO_GRANT;
}
