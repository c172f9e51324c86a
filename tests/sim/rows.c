#include "tests/sim/rows.h"

#include "common/files/step_log.h"
#include "tests/sim/sim.h"

#include <string.h>

/* ---- steps.jsonl ---- */

/* Each step once, whatever was rewound; the last row may be torn. Returns how many there are. */
static uint64_t check_order(struct sim *sim, struct slice rows)
{
    uint64_t next = 0;
    const uint8_t *end;
    while ((end = rows.bytes > 0 ? memchr(rows.data, '\n', rows.bytes) : NULL) != NULL) {
        size_t bytes = (size_t)(end - rows.data);
        uint64_t number;
        bool step;
        if (!step_log_row_number((struct slice){rows.data, bytes}, &step, &number))
            sim_violated(sim, 13, "a row of the step log is neither a step's nor a validation's");
        if (step ? number != next : number > next)
            sim_violated(sim, 13, "the step log has a row of %s %llu behind %llu steps",
                         step ? "step" : "version", (unsigned long long)number,
                         (unsigned long long)next);
        next += step;
        rows = (struct slice){rows.data + bytes + 1, rows.bytes - bytes - 1};
    }
    return next;
}

/* ---- events/ ---- */

static uint64_t times(struct slice bytes, const char *tag)
{
    uint64_t count = 0;
    size_t length = strlen(tag);
    for (const uint8_t *at = bytes.data;
         (at = memmem(at, bytes.bytes - (size_t)(at - bytes.data), tag, length)) != NULL;
         at += length)
        count++;
    return count;
}

/* A daemon may have died within a step's. */
static void check_scalars(struct sim *sim, const struct disk_file *file)
{
    static const char *const tags[] = {"train/norm", "train/lr", "cluster/workers"};
    struct slice bytes = buf_slice(&file->bytes);
    uint64_t steps = bytes.bytes > 0 ? times(bytes, "train/loss") : 0;
    for (size_t i = 0; steps > 0 && i < sizeof tags / sizeof *tags; i++)
        if (times(bytes, tags[i]) + 1 < steps)
            sim_violated(sim, 13, "%s has %s of less than %llu steps", file->path, tags[i],
                         (unsigned long long)steps);
}

void rows_check(struct sim *sim)
{
    uint64_t version = sim->ledger.recorded.version, steps = 0;
    for (size_t i = 0; i < sim->disks.count; i++) {
        const struct disk_file *file = sim->disks.files[i];
        if (file->path == NULL || file->folder)
            continue;
        if (strcmp(file->path, SIM_RUN "/steps.jsonl") == 0)
            steps = check_order(sim, buf_slice(&file->bytes));
        if (strncmp(file->path, SIM_RUN "/events/", strlen(SIM_RUN "/events/")) == 0)
            check_scalars(sim, file);
    }
    if (sim->calm && steps < version)
        sim_violated(sim, 13,
                     "the run is over with a cut of version %llu, the step log has %llu steps",
                     (unsigned long long)version, (unsigned long long)steps);
}
