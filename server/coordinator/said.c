/* What places said of the values that passed there. */
#include "server/coordinator/said.h"

#include <stdlib.h>
#include <string.h>

/* Beside the open steps: those whose audits are not over yet. */
enum { STEPS_BEHIND = 2 };

enum err said_init(struct run *run)
{
    struct said *said = &run->said;
    if (run->settings.place_count <= 1 && run->settings.place_ranks <= 1)
        return ERR_OK;
    said->steps = run->settings.delay + 1 + STEPS_BEHIND;
    said->heads = calloc((size_t)said->steps * run->settings.slots, sizeof(struct statement *));
    return said->heads != NULL ? ERR_OK : ERR_NOMEM;
}

static struct statement **heads_of(const struct run *run, uint64_t step)
{
    return &run->said.heads[step % run->said.steps * run->settings.slots];
}

static void forget_slot(struct run *run, struct statement **head)
{
    struct statement *statement = *head;
    *head = NULL;
    while (statement != NULL) {
        struct statement *next = statement->next;
        free(statement);
        run->said.count--;
        statement = next;
    }
}

void said_forget(struct run *run)
{
    uint32_t count = run->said.heads != NULL ? run->said.steps * run->settings.slots : 0;
    for (uint32_t i = 0; i < count; i++)
        forget_slot(run, &run->said.heads[i]);
    check(run->said.count == 0);
    run->said.push_count = 0;
}

void said_release(struct run *run)
{
    said_forget(run);
    free(run->said.heads);
    run->said = (struct said){0};
}

static void forget_pushes(struct said *said, uint64_t step)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < said->push_count; i++)
        if (said->pushes[i].step > step)
            said->pushes[kept++] = said->pushes[i];
    said->push_count = kept;
}

void said_decided(struct run *run, uint64_t step)
{
    if (run->said.heads == NULL || step < STEPS_BEHIND)
        return;
    struct statement **heads = heads_of(run, step - STEPS_BEHIND);
    for (uint32_t i = 0; i < run->settings.slots; i++)
        forget_slot(run, &heads[i]);
    forget_pushes(&run->said, step - STEPS_BEHIND);
}

/* ---- what was said ---- */

static const struct statement *skip_others(const struct statement *statement, struct node node)
{
    while (statement != NULL && !node_equal(statement->node, node))
        statement = statement->next;
    return statement;
}

const struct statement *said_newest(const struct run *run, uint64_t step, struct node node)
{
    if (run->said.heads == NULL || step + STEPS_BEHIND < run->steps.version)
        return NULL;
    const struct statement *newest = heads_of(run, step)[node_first(node)];
    return newest != NULL && newest->step == step ? skip_others(newest, node) : NULL;
}

const struct statement *said_next(const struct statement *statement)
{
    return skip_others(statement->next, statement->node);
}

uint64_t said_by(const struct run *run, uint64_t step, struct node node, uint64_t attempt,
                 uint32_t seat)
{
    const struct statement *statement = said_newest(run, step, node);
    while (statement != NULL && (statement->attempt != attempt || statement->seat != seat))
        statement = said_next(statement);
    return statement != NULL ? statement->member : 0;
}

static bool is_in_right_half(const struct run *run, struct node node, uint32_t slot)
{
    return 2 * (slot - node_first(node)) >= node_slots(node, run->settings.slots);
}

/* Whether that member of a place pushes the chunk, if the place does. */
static bool is_of_rank(const struct run *run, uint32_t seat, uint32_t chunk)
{
    const uint8_t *ranks = run->settings.chunk_ranks;
    return ranks == NULL || ranks[chunk] == seat % run->gangs.ranks;
}

/* Of the place's ranges, those that it pushes for a slot of the node. */
struct pushed {
    uint32_t first, end;
};

static struct pushed pushed_of(const struct run *run, const struct coordinator_place *place,
                               struct node node, uint32_t slot)
{
    struct pushed pushed = {0, place->range_count};
    if (place->right_first > 0)
        *(is_in_right_half(run, node, slot) ? &pushed.first : &pushed.end) = place->right_first;
    return pushed;
}

bool said_pushes(const struct run *run, uint32_t seat, struct node node, const struct lack *lack)
{
    const struct coordinator_place *place = &run->settings.places[seat / run->gangs.ranks];
    struct pushed pushed = pushed_of(run, place, node, lack->slot);
    if (!is_of_rank(run, seat, lack->chunk))
        return false;
    for (uint32_t i = pushed.first; i < pushed.end; i++) {
        const struct grant_range *range = &place->ranges[i];
        if (lack->chunk - range->chunks.first < range->chunks.count &&
            lack->part - range->parts.first < range->parts.count)
            return true;
    }
    return false;
}

uint64_t said_to_have(const struct run *run, uint64_t step, uint64_t gang, const struct lack *lack)
{
    for (uint32_t level = 0; level <= TREE_LEVEL_MAX; level++) {
        const struct node node = {level, lack->slot >> level}; /* that the lease may have had */
        const struct statement *said = said_newest(run, step, node);
        for (; said != NULL; said = said_next(said))
            if (said->gang == gang && said_pushes(run, said->seat, node, lack))
                return said->member;
    }
    return 0;
}

/* ---- two of one place ---- */

/* What passes in pieces each member of a place has for itself. */
static bool is_of_all(const struct run *run, const struct boundary_sum *sum)
{
    const bool *pieces = run->settings.boundary_pieces;
    return pieces == NULL || sum->boundary >= run->settings.boundary_count ||
           !pieces[sum->boundary];
}

static const struct boundary_sum *find_sum(const struct statement *statement,
                                           const struct boundary_sum *like)
{
    for (uint32_t i = 0; i < statement->count; i++) {
        const struct boundary_sum *sum = &statement->sums[i];
        if (sum->boundary == like->boundary && sum->way == like->way && sum->given == like->given &&
            sum->stage == like->stage)
            return sum;
    }
    return NULL;
}

static bool has_equal(const struct statement *statement, const struct boundary_sum *like)
{
    const struct boundary_sum *sum = find_sum(statement, like);
    return sum != NULL && sum->sum == like->sum;
}

/* Whether the output may follow from that input; NULL: any output, or a gradient of weights. */
static bool depends(const struct boundary_sum *output, const struct boundary_sum *input)
{
    if (input->given)
        return false;
    if (output == NULL)
        return true;
    if (output->way == VALUE_FORWARD)
        return input->way == VALUE_FORWARD && input->boundary < output->boundary;
    return input->way == VALUE_FORWARD || input->boundary > output->boundary;
}

static bool has_inputs_of(const struct run *run, const struct statement *statement,
                          const struct statement *other, const struct boundary_sum *output)
{
    for (uint32_t i = 0; i < other->count; i++)
        if (is_of_all(run, &other->sums[i]) && depends(output, &other->sums[i]) &&
            !has_equal(statement, &other->sums[i]))
            return false;
    return true;
}

static bool same_inputs(const struct run *run, const struct statement *a, const struct statement *b,
                        const struct boundary_sum *output)
{
    return has_inputs_of(run, a, b, output) && has_inputs_of(run, b, a, output);
}

/* An output of `a` that `b`, which had the same inputs, does not have; NULL: there is none. */
static const struct boundary_sum *other_output(const struct run *run, const struct statement *a,
                                               const struct statement *b)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const struct boundary_sum *output = &a->sums[i];
        if (output->given && is_of_all(run, output) && !has_equal(b, output) &&
            same_inputs(run, a, b, output))
            return output;
    }
    return NULL;
}

/* ---- neighbours ---- */

/* What `one` says that it gave the other, or took from it, and the other does not say so; NULL:
 * they agree. */
static const struct boundary_sum *not_passed(const struct statement *one,
                                             const struct statement *other, bool given)
{
    for (uint32_t i = 0; i < one->count; i++) {
        struct boundary_sum there = one->sums[i];
        if (there.given != given || there.stage != other->stage)
            continue;
        there.given = !given;
        there.stage = one->stage;
        if (!has_equal(other, &there))
            return &one->sums[i];
    }
    return NULL;
}

/* What passes from the giver's place to the other one. */
static const struct boundary_sum *passed_otherwise(const struct statement *giver,
                                                   const struct statement *taker)
{
    const struct boundary_sum *sum = not_passed(giver, taker, true);
    return sum != NULL ? sum : not_passed(taker, giver, false);
}

/* ---- pushes ---- */

static bool pushes_chunk(const struct run *run, uint32_t seat, const struct said_difference *push)
{
    const struct coordinator_place *place = &run->settings.places[seat];
    struct pushed pushed =
        pushed_of(run, place, run_leased(run, push->node), node_first(push->node));
    for (uint32_t i = pushed.first; i < pushed.end; i++)
        if (push->which - place->ranges[i].chunks.first < place->ranges[i].chunks.count)
            return true;
    return false;
}

/* Whether both have said what they had; the answer, whether that was equal, in *ret_equal. */
static bool judge_push(const struct run *run, const struct said_difference *push, bool *ret_equal)
{
    const struct statement *newest = said_newest(run, push->step, run_leased(run, push->node));
    bool both = false;
    *ret_equal = false;
    for (const struct statement *a = newest; a != NULL; a = said_next(a)) {
        if (a->member != push->second || a->count == 0 || !pushes_chunk(run, a->seat, push))
            continue;
        for (const struct statement *b = newest; b != NULL; b = said_next(b)) {
            if (b == a || b->member != push->first || b->seat != a->seat || b->count == 0)
                continue;
            both = true;
            *ret_equal = *ret_equal || same_inputs(run, a, b, NULL);
        }
    }
    return both;
}

bool said_pushed(struct run *run, const struct said_difference *push)
{
    struct said *said = &run->said;
    bool equal;
    if (judge_push(run, push, &equal))
        return equal;
    for (uint32_t i = 0; i < said->push_count; i++)
        if (said->pushes[i].step == push->step && said->pushes[i].first == push->first &&
            said->pushes[i].second == push->second)
            return false;
    if (said->push_count < SAID_PUSHES_MAX)
        said->pushes[said->push_count++] = (struct said_push){.step = push->step,
                                                              .node = push->node,
                                                              .first = push->first,
                                                              .second = push->second,
                                                              .chunk = push->which};
    return false;
}

/* ---- a place is complete ---- */

struct found {
    struct said_difference *list;
    uint32_t count;
};

static void add_found(struct found *found, struct said_difference difference)
{
    if (found->count < SAID_DIFFERENCES_MAX)
        found->list[found->count++] = difference;
}

static struct said_difference difference_of(enum said_kind kind, const struct statement *first,
                                            const struct statement *second, uint32_t which)
{
    return (struct said_difference){kind,         first->member, second->member,
                                    second->step, second->node,  which};
}

static void compare_places(const struct run *run, const struct statement *said,
                           const struct statement *before, struct found *found)
{
    if (said->count == 0 || before->count == 0)
        return; /* it was not said */
    const struct boundary_sum *output = other_output(run, said, before);
    if (output == NULL)
        output = other_output(run, before, said);
    if (output != NULL)
        add_found(found, difference_of(SAID_COMPUTED, before, said, output->boundary));
}

static void compare_neighbours(const struct gang *gang, const struct statement *said,
                               const struct statement *before, struct found *found)
{
    const struct gang_seat *own = &gang->seats[said->seat];
    const struct gang_seat *other = &gang->seats[before->seat];
    const struct boundary_sum *sum = NULL;
    if (said->count == 0 || before->count == 0 || other->member != before->member)
        return;
    if (own->tries == 1)
        sum = passed_otherwise(said, before);
    if (sum == NULL && other->tries == 1)
        sum = passed_otherwise(before, said);
    if (sum != NULL)
        add_found(found, difference_of(SAID_PASSED, before, said, sum->boundary));
}

/* In one try of a place with several members each has the sums of all its parts. */
static void compare_members(const struct run *run, const struct statement *said,
                            const struct statement *before, struct found *found)
{
    bool differs = said->replicated != 0 && before->replicated != 0 &&
                   said->replicated != before->replicated && same_inputs(run, said, before, NULL);
    if ((said->count == 0) != (before->count == 0))
        return; /* one has not said it */
    if (differs || other_output(run, said, before) != NULL ||
        other_output(run, before, said) != NULL)
        add_found(found, difference_of(SAID_MEMBERS, before, said, said->stage));
}

static void compare_lease(const struct run *run, const struct gang *gang,
                          const struct statement *said, const struct statement *before,
                          struct found *found)
{
    uint32_t ranks = run->gangs.ranks;
    if (said->stage == before->stage && said->try_number == before->try_number)
        compare_members(run, said, before, found);
    else if (said->stage != before->stage && said->seat % ranks == before->seat % ranks)
        compare_neighbours(gang, said, before, found);
}

/* Pushes that waited for what was said just now. */
static void compare_pushes(struct run *run, const struct statement *said, struct found *found)
{
    struct said *all = &run->said;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->push_count; i++) {
        const struct said_push *push = &all->pushes[i];
        const struct said_difference difference = {SAID_PUSHED, push->first, push->second,
                                                   push->step,  push->node,  push->chunk};
        bool ours = push->step == said->step && node_equal(run_leased(run, push->node), said->node),
             equal = false;
        if (!ours || !judge_push(run, &difference, &equal))
            all->pushes[kept++] = *push;
        else if (equal)
            add_found(found, difference);
    }
    all->push_count = kept;
}

static struct statement *new_statement(const struct gang *gang, uint32_t seat,
                                       const struct complete_request *request)
{
    size_t sums_bytes = request->boundary_count * sizeof request->boundaries[0];
    struct statement *statement = malloc(sizeof *statement + sums_bytes);
    if (statement == NULL)
        return NULL;
    *statement = (struct statement){.step = gang->ticket.step,
                                    .node = gang->ticket.node,
                                    .attempt = gang->ticket.attempt,
                                    .gang = gang->id,
                                    .member = request->member,
                                    .seat = seat,
                                    .stage = request->place.stage,
                                    .try_number = request->place.try_number,
                                    .replicated = request->replicated,
                                    .count = request->boundary_count};
    if (sums_bytes > 0)
        memcpy(statement->sums, request->boundaries, sums_bytes);
    return statement;
}

uint32_t said_add(struct run *run, const struct gang *gang, uint32_t seat,
                  const struct complete_request *request,
                  struct said_difference ret_differences[static SAID_DIFFERENCES_MAX])
{
    struct found found = {.list = ret_differences};
    uint64_t step = gang->ticket.step;
    if (gang->ticket.kind != TICKET_TRAIN || run->said.count == SAID_MAX ||
        step + STEPS_BEHIND < run->steps.version)
        return 0;
    struct statement **head = &heads_of(run, step)[node_first(gang->ticket.node)];
    struct statement *said = new_statement(gang, seat, request);
    if (said == NULL)
        return 0; /* out of memory: it is compared with nothing */
    check(*head == NULL || (*head)->step == step);
    said->next = *head;
    *head = said;
    run->said.count++;
    for (const struct statement *before = said_next(said); before != NULL;
         before = said_next(before)) {
        if (before->seat == seat && run->gangs.ranks == 1)
            compare_places(run, said, before, &found);
        else if (before->attempt == said->attempt)
            compare_lease(run, gang, said, before, &found);
    }
    compare_pushes(run, said, &found);
    return found.count;
}
