/* What the parity tests share: a call with its arguments, made by the CPU's table and twice by the
 * device's, and compared. */
#ifndef ROOST_TESTS_GPU_PARITY_H
#define ROOST_TESTS_GPU_PARITY_H

#include "tests/unit/unit.h"

#include "tests/unit/test_kernels.h"

enum { ARRAYS_MAX = 12 };

/* How an array's values on the device are compared with the CPU's. */
enum compared {
    NEAR, /* floats, by the tolerance of the array's name */
    FULL, /* the same, also on a table in bf16: sums of what was not rounded on the way */
    SAME, /* bits */
};

/* One argument of an operation. Before each call it has the values `start`. */
struct array {
    char name[48];
    enum compared compared;
    bool on_host;  /* for every table */
    bool elements; /* maybe bf16 on the device; here they are floats */
    size_t bytes;
    void *start, *expected, *first, *second; /* CPU's result, the device's two */
    void *device;
};

/* One call: its arguments, and their dims for the function that makes it. */
struct call {
    struct array arrays[ARRAYS_MAX];
    int arrays_count;
    double terms; /* that the longest sum has, 0: as few as the tolerances were made for */
    int64_t skip; /* elements before those that it is about: no pack of them is aligned */
    int64_t B, T, C, H, G, V, N, I, O, n;
    bool flag;
    enum kernels_format format;
    unsigned elements; /* bit i: the i-th array is of elements */
    struct arrays host;
    /* a[i] is the i-th array in the table's memory */
    void (*operate)(const struct call *call, const struct kernels *k, void *const *a);
};

/* The CPU's, and two of the device, in fp32 and bf16. */
struct tables {
    const struct kernels *cpu, *gpu, *bf16;
};

/* A test whose `*state` are tables that were opened for it: what failed in an earlier one is not on
 * record in them. */
int tables_open(void **ret_tables);
int tables_close(void **tables);
#define PARITY(title) TEST(title, .setup_func = tables_open, .teardown_func = tables_close)
#ifdef EMULATED
/* The same on a device of compute capability 8.0. */
int tables_open_older(void **ret_tables);
#define PARITY_OLDER(title)                                                                        \
    TEST(title, .setup_func = tables_open_older, .teardown_func = tables_close)
#endif

/* One more argument, which every call starts with as `start` has it then. */
struct array *call_array(struct call *call, const char *name, size_t bytes);
/* Floats that the operation reads and must not change, or (`inout`) adds to. */
void call_input(struct call *call, int64_t n, float scale);
void call_inout(struct call *call, const char *name, enum compared compared, int64_t n);
/* Floats or bytes that the operation writes, whatever was there. */
struct array *call_output(struct call *call, const char *name, enum compared compared,
                          size_t bytes);
void call_output_floats(struct call *call, const char *name, enum compared compared, int64_t n);
/* Integers in [0, below), every seventh negative when `negatives`. */
void call_integers(struct call *call, int64_t n, int64_t below, bool negatives);

/* Once, with this table: results in `expected`, or on the device. */
void call_operate(struct call *call, const struct kernels *k, bool on_device);

/* Twice on the device, which must give the same bits; results in `second`. */
void call_repeat(struct call *call, const struct kernels *gpu);

/* With all tables, and fails the test where they differ; operations without elements are the same
 * on those in bf16. Releases the call's arrays. */
void call_compare(struct call *call, const struct tables *tables);

#endif
