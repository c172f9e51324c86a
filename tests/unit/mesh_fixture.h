/* A mesh of four stages of one unit each, a lease in it with members 1 to 4, and the values that
 * pass there. */
#ifndef ROOST_TESTS_UNIT_MESH_FIXTURE_H
#define ROOST_TESTS_UNIT_MESH_FIXTURE_H

#include "tests/unit/unit.h"

#include "tests/models.h"
#include "worker/boundaries.h"

enum { STAGES = 4, GENERATION = 3, ATTEMPT = 77 };

struct mesh_fixture {
    enum schedule_kind schedule;
    struct spec spec;
    struct model model;
    struct boundaries boundaries;
    struct ticket ticket;
    struct peer peers[STAGES];
    struct places places;
};

static inline void mesh_set_up(struct mesh_fixture *f)
{
    f->spec = (struct spec){
        .model = {.kind = SPEC_MLP, .sizes_count = 5, .sizes = {5, 11, 9, 7, 4}},
        .train = {.slots = 6, .slot_samples = 4, .microbatch = 2},
        .mesh = {.stages = STAGES, .schedule = f->schedule, .runs = 1},
    };
    f->model = model_of(f->spec.model);
    assert_int_equal(f->model.units_count, STAGES);
    assert_int_equal(boundaries_init(&f->boundaries, &f->spec, &f->model), ERR_OK);
    f->ticket = (struct ticket){.kind = TICKET_TRAIN,
                                .generation = GENERATION,
                                .step = 9,
                                .version = 9,
                                .node = {1, 1},
                                .attempt = ATTEMPT};
    for (uint32_t i = 0; i < STAGES; i++) {
        f->peers[i] = (struct peer){.stage = i, .member = i + 1};
        snprintf(f->peers[i].address, sizeof f->peers[i].address, "127.0.0.1:%u", 9000 + i);
    }
    f->places = (struct places){ATTEMPT, 5, STAGES, f->peers};
}

static inline void mesh_tear_down(struct mesh_fixture *f)
{
    boundaries_release(&f->boundaries);
    model_release(&f->model);
}

static inline struct place mesh_place(uint32_t stage)
{
    return (struct place){.stage = stage, .stages = STAGES, .ranks = 1};
}

/* The activation over that boundary: of the ticket's first slot, which is 2. */
static inline struct value_name mesh_name(const struct mesh_fixture *f, uint32_t boundary,
                                          uint32_t microbatch)
{
    const struct executor_value value = {EXECUTOR_FORWARD, boundary, 0, microbatch, 8};
    return boundaries_name(&f->ticket, 0, &value);
}

#endif
