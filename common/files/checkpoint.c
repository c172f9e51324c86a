/* Folders and cut.json: which cuts there are, and when one counts. */
#include "common/files/checkpoint.h"

#include "common/files/checkpoint_format.h"
#include "common/files/json.h"

#include <inttypes.h>

/* ---- paths ---- */

enum err checkpoint_folder(const char *checkpoint_dir, struct checkpoint_name name,
                           struct checkpoint_path *ret_path)
{
    int length = snprintf(ret_path->text, sizeof ret_path->text, "%s/g%" PRIu64 "-v%" PRIu64,
                          checkpoint_dir, name.generation, name.version);
    return length < 0 || (size_t)length >= sizeof ret_path->text ? ERR_INVALID : ERR_OK;
}

static enum err file_in(const char *folder, const char *file, struct checkpoint_path *ret_path)
{
    int length = snprintf(ret_path->text, sizeof ret_path->text, "%s/%s", folder, file);
    return length < 0 || (size_t)length >= sizeof ret_path->text ? ERR_INVALID : ERR_OK;
}

enum err checkpoint_file(const char *checkpoint_dir, struct checkpoint_name name, uint32_t server,
                         struct checkpoint_path *ret_path)
{
    struct checkpoint_path folder;
    TRY(checkpoint_folder(checkpoint_dir, name, &folder));
    char file[32];
    snprintf(file, sizeof file, "server-%" PRIu32 ".roost", server);
    return file_in(folder.text, file, ret_path);
}

enum err checkpoint_record_file(const char *checkpoint_dir, struct checkpoint_name name,
                                struct checkpoint_path *ret_path)
{
    struct checkpoint_path folder;
    TRY(checkpoint_folder(checkpoint_dir, name, &folder));
    return file_in(folder.text, CHECKPOINT_JSON, ret_path);
}

bool checkpoint_name_parse(const char *text, struct checkpoint_name *ret_name)
{
    struct checkpoint_name name;
    struct checkpoint_path again;
    if (sscanf(text, "g%" SCNu64 "-v%" SCNu64, &name.generation, &name.version) != 2)
        return false;
    /* Exactly as we write it: no signs, spaces or zeros in front. */
    if (checkpoint_folder("", name, &again) != ERR_OK || strcmp(again.text + 1, text) != 0)
        return false;
    *ret_name = name;
    return true;
}

/* ---- cut.json ---- */

static const char digest_key[] = ",\"sha256\":\"";

enum { DIGEST_MEMBER_BYTES = sizeof digest_key - 1 + 64 + 3 }; /* and `"}` and a newline */

static void put_servers(struct json_writer *writer, const struct checkpoint_record *record)
{
    json_put_key(writer, "servers");
    json_put_array(writer);
    for (uint32_t i = 0; i < record->server_count; i++) {
        char file[32];
        snprintf(file, sizeof file, "server-%" PRIu32 ".roost", i);
        json_put_object(writer);
        json_member_text(writer, "file", file);
        json_member_text(writer, "manifest", digest_to_hex(&record->manifests[i]).text);
        json_put_end(writer);
    }
    json_put_end(writer);
}

static void put_seed(struct json_writer *writer, const struct checkpoint_arrays *arrays)
{
    json_member_bool(writer, "by_seed", true);
    json_member_uint(writer, "states", arrays->states);
    json_member_uint(writer, "versions", arrays->versions);
    json_member_uint(writer, "extra_bytes", arrays->extra_bytes);
}

enum err checkpoint_record_print(const struct checkpoint_record *record, struct buf *out)
{
    struct json_writer writer = json_writer(out);
    char run[24];
    snprintf(run, sizeof run, "%" PRIx64, record->run);
    size_t begin = out->bytes;
    json_put_object(&writer);
    json_member_uint(&writer, "format", CHECKPOINT_FORMAT);
    json_member_text(&writer, "run", run);
    json_member_uint(&writer, "generation", record->name.generation);
    json_member_uint(&writer, "version", record->name.version);
    json_member_uint(&writer, "samples", record->counters.samples);
    json_member_uint(&writer, "applied", record->counters.applied);
    json_member_uint(&writer, "skips_in_row", record->counters.skips_in_row);
    json_member_text(&writer, "fingerprint", digest_to_hex(&record->fingerprint).text);
    json_member_text(&writer, "data_digest", digest_to_hex(&record->data_digest).text);
    put_servers(&writer, record);
    if (record->by_seed)
        put_seed(&writer, &record->arrays);
    json_member_text(&writer, "spec", record->spec);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    struct digest digest;
    TRY(digest_sha256((struct slice){out->data + begin, out->bytes - begin}, &digest));
    out->bytes--; /* the object goes on with its digest */
    return buf_printf(out, "%s%s\"}\n", digest_key, digest_to_hex(&digest).text);
}

/* Compares the object without its last member with that member. */
static enum err judge_digest(struct slice bytes, const char *path, struct reason *reason)
{
    if (bytes.bytes < DIGEST_MEMBER_BYTES)
        return reason_set(reason, ERR_CORRUPT, "%s: only %zu bytes", path, bytes.bytes);
    size_t object = bytes.bytes - DIGEST_MEMBER_BYTES;
    scoped(buf_release) struct buf copy = {0};
    struct digest digest;
    if (buf_append(&copy, bytes.data, object) != ERR_OK || buf_append(&copy, "}", 1) != ERR_OK ||
        digest_sha256(buf_slice(&copy), &digest) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to read %s", path);
    char expected[DIGEST_MEMBER_BYTES + 1];
    snprintf(expected, sizeof expected, "%s%s\"}\n", digest_key, digest_to_hex(&digest).text);
    if (memcmp(bytes.data + object, expected, DIGEST_MEMBER_BYTES) != 0)
        return reason_set(reason, ERR_CORRUPT, "%s: does not match the digest at its end", path);
    return ERR_OK;
}

static enum err get_digest(const struct json *object, const char *key, struct digest *ret_digest,
                           struct reason *reason)
{
    const char *hex;
    TRY(json_get_text(object, key, &hex, reason));
    if (digest_from_hex(hex, ret_digest) != ERR_OK)
        return reason_set(reason, ERR_MALFORMED, "%s is no digest: %.80s", key, hex);
    return ERR_OK;
}

static enum err get_run(const struct json *object, uint64_t *ret_run, struct reason *reason)
{
    const char *text;
    TRY(json_get_text(object, "run", &text, reason));
    char again[24];
    uint64_t run = strtoull(text, NULL, 16);
    snprintf(again, sizeof again, "%" PRIx64, run);
    if (strcmp(again, text) != 0)
        return reason_set(reason, ERR_MALFORMED, "run is no number: %.80s", text);
    *ret_run = run;
    return ERR_OK;
}

static enum err get_servers(const struct json *object, struct checkpoint_record *record,
                            struct reason *reason)
{
    const struct json *servers;
    TRY(json_get_array(object, "servers", &servers, reason));
    size_t count = json_count(servers);
    if (count == 0 || count > CHECKPOINT_SERVERS_MAX)
        return reason_set(reason, ERR_MALFORMED, "%zu servers; 1 to %d can be", count,
                          CHECKPOINT_SERVERS_MAX);
    record->server_count = (uint32_t)count;
    for (size_t i = 0; i < count; i++)
        TRY(get_digest(json_at(servers, i), "manifest", &record->manifests[i], reason));
    return ERR_OK;
}

static enum err get_arrays(const struct json *object, struct checkpoint_arrays *ret_arrays,
                           struct reason *reason)
{
    uint64_t states, versions, extra_bytes;
    TRY(json_get_uint(object, "states", &states, reason));
    TRY(json_get_uint(object, "versions", &versions, reason));
    TRY(json_get_uint(object, "extra_bytes", &extra_bytes, reason));
    if (states > CHECKPOINT_STATES_MAX || versions > CHECKPOINT_VERSIONS_MAX ||
        extra_bytes > CHECKPOINT_EXTRA_BYTES_MAX || extra_bytes % 4 != 0)
        return reason_set(reason, ERR_MALFORMED, "by_seed is beyond the limits");
    *ret_arrays =
        (struct checkpoint_arrays){(uint32_t)states, (uint32_t)versions, (uint32_t)extra_bytes};
    return ERR_OK;
}

static enum err get_seed(const struct json *json, struct checkpoint_record *record,
                         struct reason *reason)
{
    record->by_seed = false;
    record->arrays = (struct checkpoint_arrays){0};
    if (!json_has(json, "by_seed"))
        return ERR_OK;
    TRY(json_get_bool(json, "by_seed", &record->by_seed, reason));
    if (!record->by_seed || record->name.version != 0)
        return reason_set(reason, ERR_MALFORMED, "only version 0 is recorded by its seed");
    return get_arrays(json, &record->arrays, reason);
}

static enum err get_record(const struct json *json, struct checkpoint_record *record,
                           char **ret_spec, struct reason *reason)
{
    uint64_t format;
    const char *spec;
    TRY(json_get_uint(json, "format", &format, reason));
    if (format != CHECKPOINT_FORMAT)
        return reason_set(reason, ERR_UNSUPPORTED, "format %" PRIu64 "; this roost reads %d",
                          format, CHECKPOINT_FORMAT);
    TRY(get_run(json, &record->run, reason));
    TRY(json_get_uint(json, "generation", &record->name.generation, reason));
    TRY(json_get_uint(json, "version", &record->name.version, reason));
    TRY(json_get_uint(json, "samples", &record->counters.samples, reason));
    TRY(json_get_uint(json, "applied", &record->counters.applied, reason));
    TRY(json_get_uint(json, "skips_in_row", &record->counters.skips_in_row, reason));
    TRY(get_digest(json, "fingerprint", &record->fingerprint, reason));
    TRY(get_digest(json, "data_digest", &record->data_digest, reason));
    TRY(get_servers(json, record, reason));
    TRY(get_seed(json, record, reason));
    TRY(json_get_text(json, "spec", &spec, reason));
    *ret_spec = strdup(spec);
    record->spec = *ret_spec;
    return *ret_spec == NULL ? reason_set(reason, ERR_NOMEM, "no memory") : ERR_OK;
}

enum err checkpoint_record_parse(struct slice bytes, const char *path,
                                 struct checkpoint_record *ret_record, char **ret_spec,
                                 struct reason *reason)
{
    TRY(judge_digest(bytes, path, reason));
    scoped(json_free_scoped) struct json *json = NULL;
    TRY(json_parse(path, bytes, &json, reason));
    struct reason inner;
    enum err err = get_record(json, ret_record, ret_spec, &inner);
    return err == ERR_OK ? ERR_OK : reason_set(reason, err, "%s: %s", path, inner.text);
}

/* ---- which cuts there are ---- */

static enum err make_folder(const struct file_ops *ops, const char *checkpoint_dir,
                            const char *folder, struct reason *reason)
{
    TRY(file_make_dirs(folder, 0755, reason));
    return file_sync_dir(ops, checkpoint_dir, reason);
}

enum err checkpoint_record(const struct file_ops *ops, const char *checkpoint_dir,
                           const struct checkpoint_record *record, struct reason *reason)
{
    check(record->server_count > 0 && record->server_count <= CHECKPOINT_SERVERS_MAX);
    struct checkpoint_path folder, path;
    TRY(checkpoint_folder(checkpoint_dir, record->name, &folder));
    TRY(checkpoint_record_file(checkpoint_dir, record->name, &path));
    if (record->by_seed) /* else the servers' files are in the folder */
        TRY(make_folder(ops, checkpoint_dir, folder.text, reason));
    scoped(buf_release) struct buf bytes = {0};
    if (checkpoint_record_print(record, &bytes) != ERR_OK)
        return reason_set(reason, ERR_NOMEM, "no memory to write %s", path.text);
    return file_write_atomic(ops, path.text, 0644, buf_slice(&bytes), reason);
}

static bool is_recorded(const char *folder)
{
    struct checkpoint_path path;
    struct file_info info;
    return file_in(folder, CHECKPOINT_JSON, &path) == ERR_OK &&
           file_stat(path.text, &info, NULL) == ERR_OK && info.kind == FILE_REGULAR;
}

bool checkpoint_is_recorded(const char *checkpoint_dir, struct checkpoint_name name)
{
    struct checkpoint_path folder;
    return checkpoint_folder(checkpoint_dir, name, &folder) == ERR_OK && is_recorded(folder.text);
}

/* One cut's folder. */
struct found {
    struct checkpoint_name name;
    bool recorded;
    bool set_aside; /* newer than the chosen one */
};

static bool is_newer(struct checkpoint_name a, struct checkpoint_name b)
{
    return a.generation > b.generation || (a.generation == b.generation && a.version > b.version);
}

static int newest_first(const void *a, const void *b)
{
    struct checkpoint_name left = ((const struct found *)a)->name;
    struct checkpoint_name right = ((const struct found *)b)->name;
    return is_newer(right, left) - is_newer(left, right);
}

/* All cuts' folders, the newest first; *ret_found is the caller's to free(). */
static enum err find_all(const char *checkpoint_dir, struct found **ret_found, size_t *ret_count,
                         struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    struct checkpoint_name chosen;
    struct reason why = {0};
    TRY(file_list(checkpoint_dir, &names, reason));
    enum err err = checkpoint_chosen(checkpoint_dir, &chosen, &why);
    if (err != ERR_OK && err != ERR_NOT_FOUND)
        return reason_set(reason, err, "%s", why.text);
    struct found *found = calloc(names.count + 1, sizeof *found);
    if (found == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to list %s", checkpoint_dir);
    size_t count = 0;
    for (size_t i = 0; i < names.count; i++) {
        struct checkpoint_path folder;
        if (!checkpoint_name_parse(names.names[i], &found[count].name) ||
            file_in(checkpoint_dir, names.names[i], &folder) != ERR_OK)
            continue;
        found[count].set_aside = err == ERR_OK && is_newer(found[count].name, chosen);
        found[count++].recorded = is_recorded(folder.text);
    }
    if (count > 0)
        qsort(found, count, sizeof *found, newest_first);
    *ret_found = found;
    *ret_count = count;
    return ERR_OK;
}

void checkpoint_names_release(struct checkpoint_names *names)
{
    free(names->names);
    *names = (struct checkpoint_names){0};
}

enum err checkpoint_list(const char *checkpoint_dir, struct checkpoint_names *ret_names,
                         struct reason *reason)
{
    scoped(free_scoped) struct found *found = NULL;
    size_t count;
    struct checkpoint_names names = {0};
    TRY(find_all(checkpoint_dir, &found, &count, reason));
    names.names = calloc(count + 1, sizeof *names.names);
    if (names.names == NULL)
        return reason_set(reason, ERR_NOMEM, "no memory to list %s", checkpoint_dir);
    for (size_t i = 0; i < count; i++)
        if (found[i].recorded) {
            names.set_aside += found[i].set_aside ? 1 : 0;
            names.names[names.count++] = found[i].name;
        }
    *ret_names = names;
    return ERR_OK;
}

enum err checkpoint_newest(const char *checkpoint_dir, struct checkpoint_name *ret_name,
                           struct reason *reason)
{
    scoped(free_scoped) struct found *found = NULL;
    size_t count;
    TRY(find_all(checkpoint_dir, &found, &count, reason));
    for (size_t i = 0; i < count; i++) {
        if (found[i].recorded && !found[i].set_aside) {
            *ret_name = found[i].name;
            return ERR_OK;
        }
    }
    return reason_set(reason, ERR_NOT_FOUND, "%s has no recorded checkpoint", checkpoint_dir);
}

/* cut.json goes first: after a crash the remaining files are no recorded cut. */
static enum err remove_cut(const char *checkpoint_dir, struct checkpoint_name name,
                           struct reason *reason)
{
    struct checkpoint_path folder, path;
    TRY(checkpoint_folder(checkpoint_dir, name, &folder));
    TRY(checkpoint_record_file(checkpoint_dir, name, &path));
    TRY(file_remove_tree(path.text, reason));
    return file_remove_tree(folder.text, reason);
}

/* What takes the place of older ones. Without a cut.json it is on another machine's disk. */
static enum err judge_recorded(const char *checkpoint_dir, struct checkpoint_name recorded,
                               struct reason *reason)
{
    struct checkpoint_path folder;
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    TRY(checkpoint_folder(checkpoint_dir, recorded, &folder));
    return is_recorded(folder.text) ? checkpoint_open(checkpoint_dir, recorded, &checkpoint, reason)
                                    : ERR_OK;
}

enum err checkpoint_prune(const char *checkpoint_dir, struct checkpoint_name recorded,
                          uint32_t keep, struct reason *reason)
{
    check(keep > 0);
    TRY(judge_recorded(checkpoint_dir, recorded, reason));
    scoped(free_scoped) struct found *found = NULL;
    size_t count;
    uint32_t kept = 0;
    TRY(find_all(checkpoint_dir, &found, &count, reason));
    for (size_t i = 0; i < count; i++) {
        if (is_newer(found[i].name, recorded))
            continue;
        if (found[i].recorded && kept < keep)
            kept++;
        else
            TRY(remove_cut(checkpoint_dir, found[i].name, reason));
    }
    return ERR_OK;
}

enum err checkpoint_prune_older(const char *checkpoint_dir, struct checkpoint_name recorded,
                                struct checkpoint_name oldest, struct reason *reason)
{
    TRY(judge_recorded(checkpoint_dir, recorded, reason));
    scoped(free_scoped) struct found *found = NULL;
    size_t count;
    TRY(find_all(checkpoint_dir, &found, &count, reason));
    for (size_t i = 0; i < count; i++)
        if (is_newer(recorded, found[i].name) &&
            (!found[i].recorded || is_newer(oldest, found[i].name)))
            TRY(remove_cut(checkpoint_dir, found[i].name, reason));
    return ERR_OK;
}

/* ---- going back ---- */

enum { CHOICE_BYTES_MAX = 64 };

static enum err choice_path(const char *checkpoint_dir, struct checkpoint_path *ret_path,
                            struct reason *reason)
{
    return file_in(checkpoint_dir, "restore", ret_path) == ERR_OK
               ? ERR_OK
               : reason_set(reason, ERR_INVALID, "%s: the name is too long", checkpoint_dir);
}

enum err checkpoint_choose(const char *checkpoint_dir, struct checkpoint_name name,
                           struct reason *reason)
{
    struct checkpoint_path path;
    char text[CHOICE_BYTES_MAX];
    TRY(choice_path(checkpoint_dir, &path, reason));
    int length =
        snprintf(text, sizeof text, "g%" PRIu64 "-v%" PRIu64 "\n", name.generation, name.version);
    /* Root writes it, and the coordinator's user, who is another, reads it. */
    return file_write_public(path.text, (struct slice){(const uint8_t *)text, (size_t)length},
                             reason);
}

enum err checkpoint_chosen(const char *checkpoint_dir, struct checkpoint_name *ret_name,
                           struct reason *reason)
{
    struct checkpoint_path path;
    scoped(buf_release) struct buf text = {0};
    TRY(choice_path(checkpoint_dir, &path, reason));
    TRY(file_read(path.text, CHOICE_BYTES_MAX, &text, reason));
    TRY(buf_append(&text, "", 1));
    char *line = (char *)text.data;
    line[strcspn(line, "\n")] = 0;
    if (!checkpoint_name_parse(line, ret_name))
        return reason_set(reason, ERR_CORRUPT, "%s: names no checkpoint: %.40s", path.text, line);
    return ERR_OK;
}

enum err checkpoint_take_chosen(const char *checkpoint_dir, struct reason *reason)
{
    struct checkpoint_path path;
    scoped(free_scoped) struct found *found = NULL;
    size_t count;
    TRY(choice_path(checkpoint_dir, &path, reason));
    TRY(find_all(checkpoint_dir, &found, &count, reason));
    for (size_t i = 0; i < count; i++)
        if (found[i].set_aside)
            TRY(remove_cut(checkpoint_dir, found[i].name, reason));
    return file_remove_tree(path.text, reason);
}

enum err checkpoint_open_any(const char *path, struct checkpoint **ret_checkpoint,
                             struct reason *reason)
{
    if (is_recorded(path))
        return checkpoint_open_folder(path, ret_checkpoint, reason);
    struct checkpoint_path dir;
    struct file_info info;
    struct checkpoint_name name;
    TRY(file_in(path, "checkpoints", &dir));
    if (file_stat(dir.text, &info, NULL) != ERR_OK || info.kind != FILE_FOLDER)
        snprintf(dir.text, sizeof dir.text, "%s", path);
    TRY(checkpoint_newest(dir.text, &name, reason));
    return checkpoint_open(dir.text, name, ret_checkpoint, reason);
}
