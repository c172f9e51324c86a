/* The CUDA tables against the CPU table: every operation on odd shapes, within the tolerances of
 * tests/parity or, where no sum is shared between threads, bit for bit; and twice on the device,
 * which must give the same bits. A table in bf16 gets inputs that bf16 holds, so what differs is
 * what is rounded on the way and at the end. Without a device: one skipped test.
 *
 * With -DEMULATED it is linked beside the emulated module, which is there on every machine. */
#include "tests/gpu/parity.h"

int tables_close(void **tables_of_test)
{
    struct tables *tables = *tables_of_test;
    kernels_free(tables->bf16);
    kernels_free(tables->gpu);
    kernels_free(tables->cpu);
    free(tables);
    return 0;
}

/* False: there is no device. */
static bool open_on_device(struct tables *tables, char *reason, size_t reason_bytes)
{
    struct kernels_options options = {.backend = KERNELS_CUDA};
    if (!kernels_new(&options, &tables->gpu, reason, reason_bytes))
        return false;
    options.compute = KERNELS_COMPUTE_BF16;
    return kernels_new(&options, &tables->bf16, reason, reason_bytes);
}

int tables_open(void **ret_tables)
{
    char reason[256];
    struct tables *tables = calloc(1, sizeof *tables);
    check(tables);
    tables->cpu = kernels_for(KERNELS_ISA_AUTO);
    check(tables->cpu);
    *ret_tables = tables;
    if (open_on_device(tables, reason, sizeof reason))
        return 0;
    print_error("%s\n", reason);
    tables_close(ret_tables);
    return -1;
}

#ifdef EMULATED
int tables_open_older(void **ret_tables)
{
    setenv("ROOST_EMULATED_CAPABILITY", "80", 1);
    int failed = tables_open(ret_tables);
    unsetenv("ROOST_EMULATED_CAPABILITY");
    return failed;
}
#endif

static bool has_device(char *reason, size_t reason_bytes)
{
    struct tables tables = {0};
    bool has = open_on_device(&tables, reason, reason_bytes);
    kernels_free(tables.bf16);
    kernels_free(tables.gpu);
    return has;
}

int main(int count, char **words)
{
    unit_choose(count, words);
    char reason[256];
    if (!has_device(reason, sizeof reason)) {
#ifdef EMULATED
        printf("1..1\nnot ok 1 - the emulated device: %s\n", reason);
        return 1;
#else
        printf("1..1\nok 1 - CUDA operations on a device # SKIP %s\n", reason);
        return 0;
#endif
    }
    return unit_run(NULL, NULL);
}
