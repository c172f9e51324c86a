#include "tests/sim/handed.h"

#include "tests/sim/sim.h"
#include "worker/boundaries.h"

static uint64_t hash(const struct value_name *name)
{
    const uint64_t numbers[] = {name->generation, name->kind, name->step,
                                name->version,    name->slot, name->microbatch,
                                name->boundary,   name->way,  name->rank};
    struct rand_state random = {0};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        random.state = rand_next(&random) ^ numbers[i];
    return rand_next(&random);
}

/* Where the name is, or would be. */
static struct value *find(const struct handed *handed, const struct value_name *name)
{
    size_t at = hash(name) & (handed->places - 1);
    while (handed->list[at].there && !boundaries_same(&handed->list[at].name, name))
        at = (at + 1) & (handed->places - 1);
    return &handed->list[at];
}

static void grow(struct handed *handed)
{
    struct handed larger = {.count = handed->count,
                            .places = handed->places == 0 ? 256 : 2 * handed->places};
    larger.list = calloc(larger.places, sizeof *larger.list);
    check(larger.list != NULL);
    for (size_t i = 0; i < handed->places; i++)
        if (handed->list[i].there)
            *find(&larger, &handed->list[i].name) = handed->list[i];
    free(handed->list);
    *handed = larger;
}

static void print(const struct value_name *name, char *ret_text, size_t bytes)
{
    snprintf(ret_text, bytes,
             "generation %llu %s step %llu version %llu slot %u microbatch %u boundary %u %s",
             (unsigned long long)name->generation,
             name->kind == TICKET_TRAIN ? "training" : "validation", (unsigned long long)name->step,
             (unsigned long long)name->version, name->slot, name->microbatch, name->boundary,
             name->way == VALUE_FORWARD ? "forward" : "backward");
}

void handed_given(struct sim *sim, uint32_t worker, const struct value_name *name, uint64_t bits)
{
    struct handed *handed = &sim->handed;
    char text[160];
    if (2 * handed->count >= handed->places)
        grow(handed);
    struct value *value = find(handed, name);
    print(name, text, sizeof text);
    if (value->there && value->bits != bits)
        sim_violated(sim, 22, "w%u gives %s, and somebody gave it with other bits", worker, text);
    handed->count += value->there ? 0 : 1;
    *value = (struct value){true, *name, bits};
}

void handed_taken(struct sim *sim, uint32_t worker, const struct value_name *name, uint64_t bits)
{
    const struct handed *handed = &sim->handed;
    const struct value *value = handed->places > 0 ? find(handed, name) : NULL;
    char text[160];
    print(name, text, sizeof text);
    if (value == NULL || !value->there || value->bits != bits)
        sim_violated(sim, 22, "w%u takes %s, which nobody gave so", worker, text);
}

void handed_release(struct handed *handed)
{
    free(handed->list);
}
