/* What a run goes on from. */
#include "server/control/control_past.h"

#include "common/file.h"
#include "common/files/order.h"
#include "common/scoped.h"
#include "common/settings/spec.h"
#include "server/coordinator/cuts.h"
#include "server/disk/journal.h"

#include <string.h>

enum { DIRECTORY_SHOWN_MAX = 100 /* of a path, in a command that a status has room for */ };

static bool is_zero(const uint8_t digest[static WIRE_DIGEST_BYTES])
{
    static const uint8_t zeros[WIRE_DIGEST_BYTES];
    return memcmp(digest, zeros, sizeof zeros) == 0;
}

static void fill_cut(const struct checkpoint_record *about, struct cut_record *ret_cut)
{
    *ret_cut = (struct cut_record){
        .name = {about->name.generation, about->name.version},
        .counters = {.samples = about->counters.samples,
                     .applied = about->counters.applied,
                     .skips_in_row = about->counters.skips_in_row},
        .server_count = about->server_count,
    };
    for (uint32_t i = 0; i < about->server_count; i++) /* whose names nobody knows any more */
        memcpy(ret_cut->servers[i].digest, about->manifests[i].bytes, WIRE_DIGEST_BYTES);
}

static enum err read_recorded(const char *checkpoint_dir, struct checkpoint_name name,
                              struct cut_record *ret_cut, struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(checkpoint_open(checkpoint_dir, name, &checkpoint, reason));
    fill_cut(checkpoint_about(checkpoint), ret_cut);
    return ERR_OK;
}

void control_cuts_release(struct control_cuts *cuts)
{
    free(cuts->list);
    *cuts = (struct control_cuts){0};
}

/* Names of a directory, the newest first. */
struct cut_names {
    const char *checkpoint_dir;
    const struct checkpoint_name *list;
    size_t count;
};

/* Passes over damaged ones, and over those that a rewind undid: each cut's predecessor has fewer steps.
 * `version_max`: they have at most so many, UINT64_MAX: any number. One that cannot be read is
 * passed over as well behind a newer one, which the run goes on from. */
static enum err read_cuts(const struct cut_names *names, uint64_t version_max,
                          struct control_cuts *ret_cuts, struct reason *reason)
{
    scoped(control_cuts_release) struct control_cuts cuts = {
        .list = calloc(names->count + 1, sizeof *cuts.list)};
    if (cuts.list == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read checkpoints");
    for (size_t i = 0; i < names->count; i++) {
        if (names->list[i].version > version_max)
            continue;
        enum err err =
            read_recorded(names->checkpoint_dir, names->list[i], &cuts.list[cuts.count], reason);
        bool has_newer = version_max != UINT64_MAX;
        if (whole_cut_is_damage(err) || (has_newer && (err == ERR_IO || err == ERR_DENIED)))
            continue;
        TRY(err);
        version_max = names->list[i].version > 0 ? names->list[i].version - 1 : 0;
        cuts.count++;
    }
    *ret_cuts = cuts;
    cuts = (struct control_cuts){0};
    return ERR_OK;
}

enum err control_past_judge_passed(const struct control_passed *passed, struct reason *reason)
{
    struct spec spec;
    if (passed->damage == NULL)
        return ERR_OK;
    TRY(spec_parse((struct slice){(const uint8_t *)passed->spec, strlen(passed->spec)},
                   "the stored spec", NULL, &spec, reason));
    if (spec.checkpoint.durability != SPEC_DURABILITY_LOGGED)
        return ERR_OK;
    bool fits = strlen(passed->directory) <= DIRECTORY_SHOWN_MAX;
    return reason_set(reason, ERR_CORRUPT,
                      "what is logged follows a damaged checkpoint: without it `roost checkpoint "
                      "restore %s g%llu-v%llu`, then resume the run: %.200s",
                      fits ? passed->directory : "DIR",
                      (unsigned long long)passed->whole.generation,
                      (unsigned long long)passed->whole.version, passed->damage);
}

/* The cuts that the run is to go on from. */
static enum err read_newest(const struct store_run *stored, const struct cut_names *names,
                            struct control_cuts *ret_cuts, struct reason *reason)
{
    scoped(control_cuts_release) struct control_cuts cuts = {0};
    struct cut_record newest;
    struct reason why = {0};
    TRY(read_cuts(names, UINT64_MAX, &cuts, reason));
    if (cuts.count > 0 &&
        whole_cut_is_damage(read_recorded(names->checkpoint_dir, names->list[0], &newest, &why))) {
        const struct control_passed passed = {.spec = stored->spec,
                                              .directory = stored->directory,
                                              .damage = why.text,
                                              .whole = cuts.list[0].name};
        TRY(control_past_judge_passed(&passed, reason));
    }
    *ret_cuts = cuts;
    cuts = (struct control_cuts){0};
    return ERR_OK;
}

static enum err lacks_chosen(struct store *store, uint64_t run, const char *checkpoint_dir,
                             struct checkpoint_name chosen, struct control_cuts *ret_cuts,
                             struct reason *reason)
{
    const struct cut_name name = {chosen.generation, chosen.version};
    struct reason why = {0};
    scoped(free_scoped) struct cut_record *cut = calloc(1, sizeof *cut);
    if (cut == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to read a checkpoint");
    enum err err = store_get_cut(store, run, name, cut, reason);
    if (err != ERR_NOT_FOUND)
        return err;
    err = read_recorded(checkpoint_dir, chosen, cut, &why);
    if (err != ERR_OK)
        return reason_set(reason, err,
                          "checkpoint g%llu-v%llu, which was restored, cannot be read: choose "
                          "another: %s",
                          (unsigned long long)name.generation, (unsigned long long)name.version,
                          why.text);
    *ret_cuts = (struct control_cuts){.list = cut, .count = 1};
    cut = NULL;
    return ERR_OK;
}

/* Whether one of the run's cuts that the store knows is on the disk, or it knows none. */
static enum err has_known(struct store *store, uint64_t run, const char *checkpoint_dir,
                          bool *ret_has, struct reason *reason)
{
    struct cut_record cut;
    uint32_t count = 0;
    enum err err = store_get_cuts(store, run, &cut, 1, &count, reason);
    *ret_has = count == 0;
    while (err == ERR_OK && !*ret_has) {
        *ret_has = checkpoint_is_recorded(
            checkpoint_dir, (struct checkpoint_name){cut.name.generation, cut.name.version});
        if (!*ret_has)
            err = store_older_cut(store, run, cut.name, &cut, reason);
    }
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The other run of this store that recorded it; 0: none did. */
static enum err find_other(struct store *store, uint64_t run, const char *checkpoint_dir,
                           struct checkpoint_name name, uint64_t *ret_by, struct reason *reason)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    struct cut_record cut;
    *ret_by = 0;
    enum err err = checkpoint_open(checkpoint_dir, name, &checkpoint, reason);
    if (whole_cut_is_damage(err))
        return ERR_OK;
    TRY(err);
    uint64_t by = checkpoint_about(checkpoint)->run;
    if (by == run)
        return ERR_OK;
    err = store_get_cut(store, by, (struct cut_name){name.generation, name.version}, &cut, reason);
    if (err == ERR_OK)
        *ret_by = by;
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The directory was moved, what was resumed there is another run, and then it was moved back: what that
 * one recorded behind this run's newest is this run's. */
static enum err lacks_anothers(struct store *store, const struct store_run *stored,
                               const struct cut_names *found, struct control_cuts *ret_cuts,
                               struct reason *reason)
{
    uint64_t run = stored->run;
    struct cut_names newer = {.checkpoint_dir = found->checkpoint_dir, .list = found->list};
    struct cut_record known;
    uint32_t count;
    uint64_t by = 0;
    TRY(store_get_cuts(store, run, &known, 1, &count, reason));
    for (; count > 0 && newer.count < found->count; newer.count++) {
        struct checkpoint_name name = found->list[newer.count];
        if (!cuts_is_newer((struct cut_name){name.generation, name.version}, known.name))
            break;
        if (by == 0)
            TRY(find_other(store, run, found->checkpoint_dir, name, &by, reason));
    }
    if (by == 0)
        return ERR_OK;
    TRY(read_newest(stored, &newer, ret_cuts, reason));
    ret_cuts->by = by;
    return ERR_OK;
}

/* A folder that is not there, or is empty, may be a share that is not mounted yet. */
static enum err lacks_found(struct store *store, const struct store_run *stored,
                            const char *checkpoint_dir, struct control_cuts *ret_cuts,
                            struct reason *reason)
{
    scoped(checkpoint_names_release) struct checkpoint_names found = {0};
    bool has;
    TRY(has_known(store, stored->run, checkpoint_dir, &has, reason));
    enum err err = checkpoint_list(checkpoint_dir, &found, reason);
    if (err != ERR_OK)
        return err == ERR_NOT_FOUND ? ERR_OK : err;
    const struct cut_names names = {checkpoint_dir, found.names, found.count};
    if (has)
        return lacks_anothers(store, stored, &names, ret_cuts, reason);
    TRY(read_newest(stored, &names, ret_cuts, reason));
    ret_cuts->alone = true;
    return ERR_OK;
}

enum err control_past_lacks(struct store *store, const struct store_run *stored,
                            struct control_cuts *ret_cuts, struct reason *reason)
{
    struct checkpoint_name name;
    scoped(buf_release) struct buf path = {0};
    TRY(buf_printf(&path, "%s/checkpoints", stored->directory));
    const char *dir = (const char *)path.data;
    *ret_cuts = (struct control_cuts){0};
    enum err err = checkpoint_chosen(dir, &name, reason);
    if (err == ERR_NOT_FOUND)
        return lacks_found(store, stored, dir, ret_cuts, reason);
    TRY(err);
    return lacks_chosen(store, stored->run, dir, name, ret_cuts, reason);
}

/* The generation that a file of the run is of; 0: it is none of these. */
static uint64_t generation_of_journal(const char *file)
{
    struct journal_name name;
    return journal_parse_name(file, &name) ? name.generation : 0;
}

static uint64_t generation_of_order(const char *file)
{
    struct order_name name;
    return order_parse_name(file, &name) ? name.generation : 0;
}

static enum err see_generations(const char *directory, const char *folder,
                                uint64_t (*generation_of)(const char *file), uint64_t *latest,
                                struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    scoped(file_names_release) struct file_names names = {0};
    TRY(buf_printf(&path, "%s/%s", directory, folder));
    enum err err = file_list((const char *)path.data, &names, reason);
    for (size_t i = 0; err == ERR_OK && i < names.count; i++)
        if (generation_of(names.names[i]) > *latest)
            *latest = generation_of(names.names[i]);
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The run's latest generation, as its directory tells: coordinators that died before their first cut
 * left logs of later ones than the newest cut's, and a cut that is passed over may be of one. A store
 * that comes from a backup has forgotten the last ones. */
static enum err see_generation(const char *directory, uint64_t *latest, struct reason *reason)
{
    scoped(buf_release) struct buf path = {0};
    scoped(checkpoint_names_release) struct checkpoint_names cuts = {0};
    TRY(buf_printf(&path, "%s/checkpoints", directory));
    enum err err = checkpoint_list((const char *)path.data, &cuts, reason);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return err;
    for (size_t i = 0; i < cuts.count; i++)
        if (cuts.names[i].generation > *latest)
            *latest = cuts.names[i].generation;
    TRY(see_generations(directory, "checkpoints/" JOURNAL_FOLDER, generation_of_journal, latest,
                        reason));
    return see_generations(directory, ORDER_FOLDER, generation_of_order, latest, reason);
}

enum err control_past_find(struct store *store, const struct store_run *stored,
                           struct coordinator_past *ret_past, bool *ret_chosen,
                           struct reason *reason)
{
    struct checkpoint_name name;
    scoped(buf_release) struct buf path = {0};
    scoped(control_cuts_release) struct control_cuts lacks = {0};
    TRY(buf_printf(&path, "%s/checkpoints", stored->directory));
    TRY(store_get_past(store, stored->run, ret_past, reason));
    TRY(control_past_lacks(store, stored, &lacks, reason));
    enum err err = checkpoint_chosen((const char *)path.data, &name, reason);
    *ret_chosen = err == ERR_OK;
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return err;
    if (lacks.count > 0)
        ret_past->cut = lacks.list[0];
    else if (*ret_chosen)
        TRY(store_get_cut(store, stored->run, (struct cut_name){name.generation, name.version},
                          &ret_past->cut, reason));
    if (ret_past->generation < ret_past->cut.name.generation)
        ret_past->generation = ret_past->cut.name.generation;
    return see_generation(stored->directory, &ret_past->generation, reason);
}

static void swap_texts(char **a, char **b)
{
    char *text = *a;
    *a = *b;
    *b = text;
}

enum err control_past_take_other(struct store *store, struct store_run *stored,
                                 struct coordinator_past *past, struct reason *reason)
{
    scoped(control_cuts_release) struct control_cuts lacks = {0};
    scoped(store_run_release) struct store_run other = {0};
    struct coordinator_past others;
    TRY(control_past_lacks(store, stored, &lacks, reason));
    if (lacks.by == 0)
        return ERR_OK;
    TRY(store_get_run(store, lacks.by, &other, reason));
    TRY(store_get_past(store, lacks.by, &others, reason));
    swap_texts(&stored->spec, &other.spec);
    stored->state = other.state;
    stored->has_fingerprint = other.has_fingerprint;
    memcpy(stored->fingerprint, other.fingerprint, WIRE_DIGEST_BYTES);
    past->stops = others.stops;
    past->has_fingerprint = others.has_fingerprint;
    memcpy(past->fingerprint, others.fingerprint, WIRE_DIGEST_BYTES);
    return ERR_OK;
}

enum err control_past_told(struct store *store, const struct store_run *stored,
                           struct control_told *ret_told, struct reason *reason)
{
    struct coordinator_past past;
    struct spec spec;
    bool chosen;
    TRY(spec_parse((struct slice){(const uint8_t *)stored->spec, strlen(stored->spec)},
                   "the stored spec", NULL, &spec, reason));
    TRY(control_past_find(store, stored, &past, &chosen, reason));
    *ret_told = (struct control_told){.run = stored->run,
                                      .state = stored->state,
                                      .stops = past.stops,
                                      .steps = spec.train.steps,
                                      .cut = past.cut.name,
                                      .samples = past.cut.counters.samples};
    snprintf(ret_told->reason, sizeof ret_told->reason, "%s", stored->reason);
    snprintf(ret_told->directory, sizeof ret_told->directory, "%s", stored->directory);
    return ERR_OK;
}

enum err control_past_read_older(const struct whole_cut *whole, struct control_cuts *ret_older,
                                 struct reason *reason)
{
    const struct checkpoint_name *found = &whole->names.names[whole->at];
    const struct cut_names names = {whole->dir, found + 1, whole->names.count - whole->at - 1};
    return found->version > 0 ? read_cuts(&names, found->version - 1, ret_older, reason) : ERR_OK;
}

enum err control_past_adopt(const char *directory, const struct checkpoint_record *about,
                            struct coordinator_past *past, struct reason *reason)
{
    memcpy(past->fingerprint, about->fingerprint.bytes, WIRE_DIGEST_BYTES);
    past->has_fingerprint = !is_zero(past->fingerprint);
    past->generation = about->name.generation;
    fill_cut(about, &past->cut);
    return see_generation(directory, &past->generation, reason);
}
