/* The activations, and their gradients, that workers hand each other: each under its name. */
#ifndef ROOST_TESTS_SIM_HANDED_H
#define ROOST_TESTS_SIM_HANDED_H

#include "proto/wire.h"

struct sim;

struct handed {
    size_t count, places; /* places: a power of two, or 0 */
    struct value {
        bool there;
        struct value_name name;
        uint64_t bits;
    } * list; /* by the hash of the name */
};

/* A worker may give that to others, or took it; invariant 22. */
void handed_given(struct sim *sim, uint32_t worker, const struct value_name *name, uint64_t bits);
void handed_taken(struct sim *sim, uint32_t worker, const struct value_name *name, uint64_t bits);
void handed_release(struct handed *handed);

#endif
