#include "tests/sim/sim_writer.h"

#include "tests/sim/sim.h"

#include <string.h>

#define FOLDER "." /* is there */

enum { RETRY_US = 500000 };

void sim_writer_init(struct sim_writer *writer)
{
    *writer = (struct sim_writer){0};
    files_init(&writer->files);
}

static void forget(struct sim_writer *writer)
{
    for (size_t i = 0; i < writer->count; i++)
        counted_unref(writer->items[i].gradient);
    writer->count = 0;
    journal_release(&writer->journal);
    writer->open = false;
    memset(writer->put, 0, sizeof writer->put);
    memset(writer->durable, 0, sizeof writer->durable);
}

void sim_writer_release(struct sim_writer *writer)
{
    forget(writer);
    files_release(&writer->files);
    free(writer->items);
}

/* ---- items ---- */

static void arm(struct sim *sim, const struct sim_server *server, struct sim_writer *writer,
                uint64_t after_us)
{
    if (writer->armed || !writer->open)
        return;
    writer->armed = true;
    queue_put(&sim->queue, (struct event){.at_us = sim->now_us + after_us,
                                          .kind = EVENT_SERVER_LOGGED,
                                          .index = server->index,
                                          .number = server->boot});
}

static void add(struct sim *sim, struct sim_server *server, const struct writer_item *item)
{
    struct sim_writer *writer = &server->writer;
    if (writer->count == writer->capacity) {
        writer->capacity = 2 * writer->capacity + 16;
        writer->items = realloc(writer->items, writer->capacity * sizeof *writer->items);
        check(writer->items != NULL);
    }
    writer->items[writer->count++] = *item;
    arm(sim, server, writer, 1 + sim_below(sim, 2 * sim->scenario.write_us));
}

void sim_writer_add(struct sim *sim, struct sim_server *server, uint32_t thread,
                    const struct shard_order *take_order)
{
    for (uint32_t i = 0; i < take_order->count; i++) {
        const struct shard_order_entry *entry = &take_order->entries[i];
        if (entry->gradient == NULL)
            continue;
        struct writer_item item = {
            .kind = WRITER_GRADIENT, .thread = thread, .gradient = entry->gradient};
        item.entry = (struct journal_entry){
            .chunk = entry->chunk,
            .n = (uint32_t)(entry->gradient->bytes / sizeof(float)),
            .ticket = take_order->ticket,
            .version = entry->version,
            .scale = take_order->scale,
            .gradient = (const float *)(const void *)entry->gradient->data,
        };
        add(sim, server, &item);
    }
}

void sim_writer_cut(struct sim *sim, struct sim_server *server, uint64_t version)
{
    if (server->writer.open)
        add(sim, server, &(struct writer_item){.kind = WRITER_CUT, .cut = {0, version}});
}

void sim_writer_recorded(struct sim *sim, struct sim_server *server, struct cut_name cut)
{
    if (server->writer.open)
        add(sim, server, &(struct writer_item){.kind = WRITER_RECORDED, .cut = cut});
}

/* ---- the journal ---- */

static void tell_threads(struct sim *sim, struct sim_server *server)
{
    struct sim_writer *writer = &server->writer;
    for (uint32_t t = 0; t < server->thread_count; t++) {
        if (writer->durable[t] == writer->put[t])
            continue;
        writer->durable[t] = writer->put[t];
        sim_server_logged(sim, server, &server->threads[t], writer->durable[t]);
    }
}

static void prune(struct sim_writer *writer, struct cut_name cut)
{
    struct journal_name keep, name;
    if (!journal_needed(&writer->journal, cut.version, &keep) || cut.generation != keep.generation)
        return;
    for (uint32_t i = writer->files.count; i-- > 0;) {
        check(journal_parse_name(writer->files.list[i].path + strlen(FOLDER "/"), &name));
        if (journal_covers(name, keep))
            files_remove(&writer->files, i);
    }
}

static enum err handle(struct sim_writer *writer, struct writer_item *item)
{
    switch (item->kind) {
    case WRITER_GRADIENT:
        check(journal_put(&writer->journal, &item->entry) == ERR_OK);
        counted_unref(item->gradient);
        item->gradient = NULL;
        writer->put[item->thread]++;
        return ERR_OK;
    case WRITER_CUT:
        TRY(journal_commit(&writer->journal, NULL));
        ignore(journal_cut(&writer->journal, item->cut.version, NULL)); /* the segment goes on */
        return ERR_OK;
    case WRITER_RECORDED:
        prune(writer, item->cut);
        return ERR_OK;
    }
    check_unreachable("an item of the writer");
}

/* All that is there; ERR_NO_SPACE: some of it waits for room. */
static enum err write_all(struct sim *sim, struct sim_server *server)
{
    struct sim_writer *writer = &server->writer;
    size_t done = 0;
    enum err err = ERR_OK;
    writer->files.full = server->disk.full_us > sim->now_us;
    while (err == ERR_OK && done < writer->count) {
        err = handle(writer, &writer->items[done]);
        done += err == ERR_OK;
    }
    writer->count -= done;
    if (writer->count > 0)
        memmove(writer->items, writer->items + done, writer->count * sizeof *writer->items);
    return err == ERR_OK ? journal_commit(&writer->journal, NULL) : err;
}

void sim_writer_event(struct sim *sim, struct sim_server *server)
{
    struct sim_writer *writer = &server->writer;
    writer->armed = false;
    if (!writer->open)
        return;
    faults_spring(sim, TRAP_LOG, server->index);
    if (!server->up)
        return;
    enum err err = write_all(sim, server);
    check(err == ERR_OK || err == ERR_NO_SPACE);
    if (err == ERR_OK)
        tell_threads(sim, server);
    else
        arm(sim, server, writer, RETRY_US);
}

bool sim_writer_prepare(struct sim *sim, struct sim_server *server,
                        const struct server_command *prepare, struct journal_name name)
{
    struct sim_writer *writer = &server->writer;
    if (writer->open && sim_below(sim, 2) == 0)
        ignore(write_all(sim, server)); /* nobody is told */
    forget(writer);
    if (sim->scenario.spec.checkpoint.durability != SPEC_DURABILITY_LOGGED ||
        prepare->prepare.joins)
        return true;
    writer->files.full = server->disk.full_us > sim->now_us;
    writer->open = journal_open(&writer->files.ops, FOLDER, name, &writer->journal, NULL) == ERR_OK;
    if (writer->open && prepare->prepare.cuts)
        journal_note_cut(&writer->journal, prepare->prepare.cut.version);
    return writer->open;
}

/* The file whose name comes next in the folder that all share; NULL: there is none. */
static const struct files_one *next_file(struct sim *sim, const char *path, uint32_t *ret_server)
{
    const struct files_one *next = NULL;
    for (uint32_t s = 0; s < SIM_SERVERS_MAX; s++) {
        const struct files *files = &sim->servers[s].writer.files;
        for (uint32_t i = 0; i < files->count; i++) {
            const struct files_one *one = &files->list[i];
            if (strcmp(one->path, path) <= 0 ||
                (next != NULL && strcmp(one->path, next->path) >= 0))
                continue;
            next = one;
            *ret_server = s;
        }
    }
    return next;
}

enum err sim_writer_read(struct sim *sim, const struct journal_reader *reader,
                         struct reason *reason)
{
    uint32_t server;
    for (const struct files_one *one = next_file(sim, "", &server); one != NULL;
         one = next_file(sim, one->path, &server)) {
        struct journal_name name;
        uint64_t torn = 0;
        check(journal_parse_name(one->path + strlen(FOLDER "/"), &name));
        check(file_sync(&sim->servers[server].writer.files.ops, one->path, reason) == ERR_OK);
        if (one->bytes.bytes > 0)
            TRY(journal_read_file(buf_slice(&one->bytes), one->path, name, reader, &torn, reason));
    }
    return ERR_OK;
}

void sim_writer_end(struct sim *sim, struct sim_server *server)
{
    if (server->writer.open)
        ignore(write_all(sim, server)); /* nobody is told */
    forget(&server->writer);
    server->writer.armed = false;
}

/* In the middle of writing, perhaps. */
void sim_writer_crash(struct sim *sim, struct sim_server *server, bool power)
{
    struct sim_writer *writer = &server->writer;
    if (writer->open && sim_below(sim, 4) != 0) {
        writer->files.dying = true;
        writer->files.bytes_left = sim_below(sim, 2) == 0 ? UINT64_MAX : sim_below(sim, 2000);
        ignore(write_all(sim, server));
    }
    forget(writer);
    writer->armed = false;
    files_crash(&writer->files, power, &sim->random);
}
