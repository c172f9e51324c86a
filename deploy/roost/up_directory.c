#include "deploy/roost/up_directory.h"

#include "common/files/run_directory.h"
#include "common/memory.h"
#include "common/scoped.h"
#include "common/settings/config.h"
#include "common/time.h"

#include <string.h>
#include <unistd.h>

enum {
    ENDING_MS = 1000,          /* a killed daemon frees its memory and locks */
    BASE_BYTES = 300,          /* runs/ and a file's name */
    DIRECTORY_BYTES_MAX = 399, /* what lies in it has longer paths */
};

static const char RUNS_FOLDER[] = "runs";

/* runs/NAME with the spec's file name without its extension. A dot at its beginning begins none. */
static void name_base(const char *spec_path, char ret_base[static BASE_BYTES])
{
    const char *name = strrchr(spec_path, '/') == NULL ? spec_path : strrchr(spec_path, '/') + 1;
    const char *dot = strrchr(name, '.');
    size_t bytes = dot == NULL || dot == name ? strlen(name) : (size_t)(dot - name);
    snprintf(ret_base, BASE_BYTES, "%s/%.*s", RUNS_FOLDER, (int)bytes, name);
}

enum err up_directory_making_error(enum err err)
{
    return err == ERR_IO ? ERR_INVALID : config_path_error(err);
}

/* Makes the first that is not there: of two commands that start at once each makes another. */
static enum err make_new(const struct run_directories *all, struct run_directory *ret_directory,
                         struct reason *reason)
{
    TRY(up_directory_making_error(file_make_dirs(RUNS_FOLDER, 0755, reason)));
    for (unsigned number = 1; number < RUN_DIRECTORIES_MAX; number++) {
        *ret_directory = run_directory(all, number);
        enum err err = file_make_dir(ret_directory->path, 0755, reason);
        if (err != ERR_EXISTS)
            return up_directory_making_error(err);
    }
    return reason_set(reason, ERR_INVALID, "%s and all before it exist; name one with --dir",
                      ret_directory->path);
}

/* Also a run that ended before its first checkpoint: the coordinator's store knows it. */
static bool holds_run(const char *directory)
{
    char path[RUN_DIRECTORY_BYTES + 24];
    snprintf(path, sizeof path, "%s/servers/0/roost.db", directory);
    return run_directory_has_checkpoint(directory) || access(path, F_OK) == 0;
}

/* Bytes of a name without a number at its end: of "a-2" those of "a". */
static size_t without_number(const char *name)
{
    const char *dash = strrchr(name, '-');
    bool numbered = dash != NULL && dash[1] != 0 && dash[1 + strspn(dash + 1, "0123456789")] == 0;
    return numbered ? (size_t)(dash - name) : strlen(name);
}

/* Of two specs beside each other, a.yaml and a-2.yaml, either may have made runs/a-2: the other one,
 * if it is there. */
static bool find_rival(const char *spec_path, const char *base, const char *directory,
                       char *ret_rival, size_t bytes)
{
    const char *own = base + strlen(RUNS_FOLDER) + 1, *made = directory + strlen(RUNS_FOLDER) + 1;
    const char *name = strrchr(spec_path, '/') == NULL ? spec_path : strrchr(spec_path, '/') + 1;
    size_t rival = strcmp(own, made) == 0 ? without_number(made) : strlen(made);
    snprintf(ret_rival, bytes, "%.*s%.*s%s", (int)(name - spec_path), spec_path, (int)rival, made,
             name + strlen(own));
    return rival != strlen(own) && access(ret_rival, F_OK) == 0;
}

static enum err choose_newest(const char *spec_path, const struct run_directories *all,
                              struct run_directory *ret_directory, struct reason *reason)
{
    struct reason why;
    char rival[512];
    if (run_directory_newest(all, ret_directory, &why) != ERR_OK)
        return reason_set(reason, ERR_INVALID, "%s; name the run's directory with --dir", why.text);
    if (find_rival(spec_path, all->base, ret_directory->path, rival, sizeof rival))
        return reason_set(reason, ERR_INVALID,
                          "%s may be of %.150s or of %.150s; name the run's directory with --dir",
                          ret_directory->path, spec_path, rival);
    fprintf(stderr, "resuming %s\n", ret_directory->path);
    return ERR_OK;
}

/* Makes only one that nobody names. */
static enum err choose_directory(const struct up_directory_wish *wish,
                                 struct run_directory *ret_directory, struct reason *reason)
{
    char base[BASE_BYTES];
    const char *named = wish->named;
    const struct run_directories all = {named == NULL ? base : named, "-"};
    name_base(wish->spec_path, base);
    if (named == NULL)
        return wish->resume ? choose_newest(wish->spec_path, &all, ret_directory, reason)
                            : make_new(&all, ret_directory, reason);
    *ret_directory = run_directory(&all, 1);
    if (strlen(named) > DIRECTORY_BYTES_MAX)
        return reason_set(reason, ERR_INVALID, "%.100s...: the directory's path is longer than %d",
                          named, DIRECTORY_BYTES_MAX);
    if (wish->resume && !holds_run(named))
        return reason_set(reason, ERR_INVALID, "%s holds no run to resume", named);
    return ERR_OK;
}

/* Daemons that were killed a moment ago may not have ended yet. */
static enum run_directory_use use_of(const char *directory)
{
    uint64_t deadline = time_after_ms(time_now_ns(), ENDING_MS);
    enum run_directory_use use;
    while ((use = run_directory_use(directory)) != RUN_DIRECTORY_UNUSED && time_now_ns() < deadline)
        usleep(20000);
    return use;
}

enum err up_directory_join(const struct up_directory *directory, const char *name, char *ret_path,
                           size_t bytes, struct reason *reason)
{
    int length = snprintf(ret_path, bytes, "%s/%s", directory->path, name);
    if (length < 0 || (size_t)length >= bytes)
        return reason_set(reason, ERR_INVALID, "%s/%s is too long", directory->path, name);
    return ERR_OK;
}

static enum err say_running(const char *directory, struct reason *reason)
{
    return reason_set(reason, ERR_BUSY,
                      "the run of %s is running already: stop it first, or name another "
                      "directory with --dir",
                      directory);
}

static enum err look_for_users(const char *directory, struct reason *reason)
{
    enum run_directory_use use = use_of(directory);
    if (use == RUN_DIRECTORY_EDITED)
        return reason_set(reason, ERR_BUSY, "%s: roost checkpoint works in it", directory);
    return use == RUN_DIRECTORY_RUNS ? say_running(directory, reason) : ERR_OK;
}

/* Until this command ends, however it ends. A command that was killed a moment ago may not have
 * ended yet. */
static enum err claim(struct up_directory *directory, const char *name, struct reason *reason)
{
    uint64_t deadline = time_after_ms(time_now_ns(), ENDING_MS);
    char path[512];
    enum err err;
    TRY(up_directory_join(directory, "up.lock", path, sizeof path, reason));
    while ((err = file_claim_take(path, false, &directory->claim, reason)) == ERR_EXISTS &&
           time_now_ns() < deadline)
        usleep(20000);
    return err == ERR_EXISTS ? say_running(name, reason) : up_directory_making_error(err);
}

/* Absolutely: what it starts may work elsewhere. */
static enum err set_path(struct up_directory *directory, const char *name, struct reason *reason)
{
    scoped(free_scoped) char *path = realpath(name, NULL);
    if (path == NULL)
        return reason_set(reason, ERR_IO, "%s cannot be named absolutely", name);
    if (strlen(path) > DIRECTORY_BYTES_MAX)
        return reason_set(reason, ERR_INVALID, "%.100s...: the directory's path is longer than %d",
                          path, DIRECTORY_BYTES_MAX);
    snprintf(directory->path, sizeof directory->path, "%s", path);
    return ERR_OK;
}

/* What a run would write over: somebody may keep his spec in that folder, under that very name. */
static enum err look_for_others(const struct up_directory *directory, const char *name,
                                struct reason *reason)
{
    static const char *const files[] = {"run.yaml", "steps.jsonl"};
    char path[512];
    for (size_t i = 0; i < sizeof files / sizeof files[0] && !holds_run(directory->path); i++) {
        TRY(up_directory_join(directory, files[i], path, sizeof path, reason));
        if (access(path, F_OK) == 0)
            return reason_set(reason, ERR_INVALID,
                              "%s has a %s that no run made there: name another folder with --dir",
                              name, files[i]);
    }
    return ERR_OK;
}

static const char *const parts[] = {"certs", "logs", "servers"};

enum err up_directory_open(const struct up_directory_wish *wish, struct up_directory *ret_directory,
                           struct reason *reason)
{
    struct run_directory directory;
    const char *chosen = directory.path;
    char path[512];
    TRY(choose_directory(wish, &directory, reason));
    ret_directory->is_new = wish->named == NULL && !wish->resume;
    TRY(look_for_users(chosen, reason));
    TRY(up_directory_making_error(file_make_dirs(chosen, 0755, reason)));
    TRY(set_path(ret_directory, chosen, reason));
    TRY(claim(ret_directory, chosen, reason));
    TRY(up_directory_join(ret_directory, "checkpoints", path, sizeof path, reason));
    if (!wish->resume && access(path, F_OK) == 0)
        return reason_set(reason, ERR_INVALID,
                          "%s holds a run: --resume goes on with it, --dir names another place",
                          chosen);
    if (!wish->resume)
        TRY(look_for_others(ret_directory, chosen, reason));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        TRY(up_directory_join(ret_directory, parts[i], path, sizeof path, reason));
        TRY(up_directory_making_error(file_make_dirs(path, 0755, reason)));
    }
    return ERR_OK;
}

void up_directory_unmake(const struct up_directory *directory)
{
    char path[512];
    if (!directory->is_new)
        return;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (up_directory_join(directory, parts[i], path, sizeof path, NULL) == ERR_OK)
            rmdir(path);
    if (up_directory_join(directory, "up.lock", path, sizeof path, NULL) == ERR_OK)
        unlink(path);
    rmdir(directory->path);
}

void up_directory_release(struct up_directory *directory)
{
    file_claim_release(&directory->claim);
}
