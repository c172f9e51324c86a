/* The CUDA tables against the CPU table: every operation on odd shapes, within the tolerances of
 * tests/parity or, where no sum is shared between threads, bit for bit; and twice on the device,
 * which must give the same bits. A table in bf16 gets inputs that bf16 holds, so what differs is
 * what is rounded on the way and at the end. Without a device: one skipped test.
 *
 * With -DEMULATED it is linked beside the emulated module, which is there on every machine. */
#include "tests/gpu/parity.h"

static struct tables tables;

static int hand_over_tables(void **state)
{
    *state = &tables;
    return 0;
}

static int free_tables(void **state __attribute__((unused)))
{
    kernels_free(tables.bf16);
    kernels_free(tables.gpu);
    kernels_free(tables.cpu);
    return 0;
}

/* False: there is no device. */
static bool open_tables(char *reason, size_t reason_bytes)
{
    struct kernels_options options = {.backend = KERNELS_CUDA};
    tables.cpu = kernels_for(KERNELS_ISA_AUTO);
    check(tables.cpu);
    if (!kernels_new(&options, &tables.gpu, reason, reason_bytes))
        return false;
    options.compute = KERNELS_COMPUTE_BF16;
    return kernels_new(&options, &tables.bf16, reason, reason_bytes);
}

/* `parity PATTERN` leaves out the tests that match it. */
int main(int count, char **words)
{
    if (count > 1)
        cmocka_set_skip_filter(words[1]);
    char reason[256];
    if (!open_tables(reason, sizeof reason)) {
        kernels_free(tables.cpu);
#ifdef EMULATED
        printf("1..1\nnot ok 1 - the emulated device: %s\n", reason);
        return 1;
#else
        printf("1..1\nok 1 - CUDA operations on a device # SKIP %s\n", reason);
        return 0;
#endif
    }
    return unit_run(hand_over_tables, free_tables);
}
