#include "tests/sim/journals.h"

#include "server/disk/journal.h"
#include "server/disk/order_writer.h"
#include "tests/sim/sim.h"

#include <string.h>

#define REAL(result, name, ...)                                                                    \
    result __real_##name(__VA_ARGS__);                                                             \
    result __wrap_##name(__VA_ARGS__)

REAL(enum err, order_writer_cut, struct order_writer *writer, uint64_t version);
REAL(enum err, journal_cut, struct journal *journal, uint64_t version, struct reason *reason);

static struct sim_server *server_here(void)
{
    bool server = world.life != NULL && world.life->place.kind == MACHINE_SERVER;
    return server ? &world.sim->servers[world.life->place.index] : NULL;
}

/* A commit that is sent again orders the same cut. */
enum err __wrap_order_writer_cut(struct order_writer *writer, uint64_t version)
{
    struct sim_server *server = server_here();
    if (server != NULL && server->journals.cut != version) {
        server->journals.cut = version;
        server->journals.before = server->journals.recorded;
    }
    return __real_order_writer_cut(writer, version);
}

static bool is_covered(const char *path, const struct journal_name *keep)
{
    static const char folder[] = SIM_CHECKPOINTS "/" JOURNAL_FOLDER "/";
    struct journal_name name;
    if (strncmp(path, folder, strlen(folder)) != 0 ||
        !journal_parse_name(path + strlen(folder), &name))
        return false;
    return name.generation == keep->generation && name.server == keep->server &&
           (name.boot < keep->boot || (name.boot == keep->boot && name.segment < keep->segment));
}

enum err __wrap_journal_cut(struct journal *journal, uint64_t version, struct reason *reason)
{
    enum err err = __real_journal_cut(journal, version, reason);
    struct sim *sim = world.sim;
    const struct sim_server *server = server_here();
    struct journal_name keep;
    if (server == NULL || !life_acts() || server->journals.cut != version ||
        server->journals.before.generation != journal->name.generation ||
        !journal_needed(journal, server->journals.before.version, &keep))
        return err;
    for (size_t i = 0; i < sim->disks.count; i++)
        if (sim->disks.files[i]->path != NULL && is_covered(sim->disks.files[i]->path, &keep))
            sim_violated(sim, 16,
                         "s%u begins a segment, and %s is still there, which cut %llu.%llu covers",
                         server->index, sim->disks.files[i]->path,
                         (unsigned long long)server->journals.before.generation,
                         (unsigned long long)server->journals.before.version);
    return err;
}
