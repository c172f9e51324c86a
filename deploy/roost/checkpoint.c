/* roost checkpoint: asks the coordinator for one; lists, verifies, restores and prunes those of a
 * run's directory. */
#include "common/files/checkpoint.h"

#include "common/files/run_directory.h"
#include "common/settings/options.h"
#include "common/settings/spec.h"
#include "common/slip.h"
#include "deploy/roost/arguments.h"
#include "deploy/roost/command.h"
#include "deploy/roost/print.h"
#include "deploy/roost/stored.h"
#include "deploy/roost/watch.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PATH_BYTES = 4096,
    LOOK_MS = 200 /* between two looks for one that was asked for */
};

struct name_text {
    char text[64];
};

static struct name_text name_text(struct checkpoint_name name)
{
    struct name_text text;
    snprintf(text.text, sizeof text.text, "g%" PRIu64 "-v%" PRIu64, name.generation, name.version);
    return text;
}

/* ---- a run's directory ---- */

/* A run's checkpoints. {0} is empty. */
struct folder {
    char path[PATH_BYTES];
    struct checkpoint_names names;
    struct file_claim claim; /* alone: no coordinator goes on with the run meanwhile */
};

static void folder_release(struct folder *folder)
{
    checkpoint_names_release(&folder->names);
    file_claim_release(&folder->claim);
}

static enum err open_folder(const char *directory, struct folder *folder, struct reason *reason)
{
    if (snprintf(folder->path, PATH_BYTES, "%s/checkpoints", directory) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "DIR is too long");
    return config_path_error(checkpoint_list(folder->path, &folder->names, reason));
}

/* Where root's command is the first to make the file, the daemon's user, whose folder it is, still opens
 * it to write. */
static void give_to_owner(const struct file_claim *claim, const char *directory)
{
    struct stat owned;
    if (geteuid() == 0 && stat(directory, &owned) == 0)
        ignore(fchown(claim->fd, owned.st_uid, owned.st_gid)); /* the daemon will say why */
}

/* ERR_BUSY: the run goes on, or somebody else has opened it so. */
static enum err open_alone(const char *directory, struct folder *folder, struct reason *reason)
{
    char path[PATH_BYTES];
    if (snprintf(path, PATH_BYTES, "%s/lock", directory) >= PATH_BYTES)
        return reason_set(reason, ERR_INVALID, "DIR is too long");
    TRY(open_folder(directory, folder, reason)); /* before a file is made in what may be no run's */
    checkpoint_names_release(&folder->names);
    enum err err = file_claim_take(path, false, &folder->claim, reason);
    if (err == ERR_EXISTS && run_directory_use(directory) == RUN_DIRECTORY_EDITED)
        return reason_set(reason, ERR_BUSY, "%s: another roost checkpoint works in it", directory);
    if (err == ERR_EXISTS)
        return reason_set(reason, ERR_BUSY,
                          "%s: the run goes on: stop it first, or its coordinator", directory);
    TRY(err);
    give_to_owner(&folder->claim, directory);
    return open_folder(directory, folder, reason);
}

static bool has(const struct checkpoint_names *names, struct checkpoint_name name)
{
    for (size_t i = 0; i < names->count; i++)
        if (names->names[i].generation == name.generation &&
            names->names[i].version == name.version)
            return true;
    return false;
}

static enum err find(const struct folder *folder, struct checkpoint_name name,
                     struct reason *reason)
{
    return has(&folder->names, name)
               ? ERR_OK
               : reason_set(reason, ERR_INVALID, "%s has no recorded checkpoint %s", folder->path,
                            name_text(name).text);
}

/* A run that goes on may have pruned it since it was listed. */
static bool is_gone(const struct folder *folder, struct checkpoint_name name)
{
    scoped(checkpoint_names_release) struct checkpoint_names now = {0};
    return checkpoint_list(folder->path, &now, NULL) == ERR_OK && !has(&now, name);
}

/* ---- list, verify ---- */

/* What is printed about one. */
struct finding {
    struct checkpoint_name name;
    uint64_t bytes; /* of its files */
    bool set_aside;
    bool verified;
    enum err err;
    struct reason reason;
};

static uint64_t sum_bytes(const char *folder)
{
    scoped(file_names_release) struct file_names names = {0};
    uint64_t bytes = 0;
    if (file_list(folder, &names, NULL) != ERR_OK)
        return 0;
    for (size_t i = 0; i < names.count; i++) {
        char path[PATH_BYTES];
        struct file_info info;
        if (snprintf(path, PATH_BYTES, "%s/%s", folder, names.names[i]) < PATH_BYTES &&
            file_stat(path, &info, NULL) == ERR_OK)
            bytes += info.bytes;
    }
    return bytes;
}

static void examine(const struct folder *folder, size_t at, bool verify,
                    struct finding *ret_finding)
{
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    struct checkpoint_path path;
    struct finding finding = {
        .name = folder->names.names[at],
        .set_aside = at < folder->names.set_aside,
        .verified = verify,
    };
    if (checkpoint_folder(folder->path, finding.name, &path) == ERR_OK)
        finding.bytes = sum_bytes(path.text);
    finding.err = verify
                      ? checkpoint_judge(folder->path, finding.name, &finding.reason)
                      : checkpoint_open(folder->path, finding.name, &checkpoint, &finding.reason);
    *ret_finding = finding;
}

static void print_finding(const struct finding *finding)
{
    printf("%-16s %10.1f MB  %s%s%s\n", name_text(finding->name).text, (double)finding->bytes / 1e6,
           finding->set_aside ? "set aside, " : "",
           finding->err != ERR_OK ? "DAMAGED: "
           : finding->verified    ? "whole"
                                  : "recorded",
           finding->err != ERR_OK ? reason_text(finding->err, &finding->reason) : "");
}

static void put_finding(struct json_writer *writer, const struct finding *finding)
{
    json_put_object(writer);
    json_member_text(writer, "checkpoint", name_text(finding->name).text);
    json_member_uint(writer, "generation", finding->name.generation);
    json_member_uint(writer, "version", finding->name.version);
    json_member_uint(writer, "bytes", finding->bytes);
    json_member_bool(writer, "set_aside", finding->set_aside);
    json_member_bool(writer, "damaged", finding->err != ERR_OK);
    if (finding->err != ERR_OK)
        json_member_text(writer, "reason", reason_text(finding->err, &finding->reason));
    json_put_end(writer);
}

/* Prints all that are still there; false: one is damaged. */
static bool report(const struct folder *folder, bool verify, bool as_json)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    bool whole = true;
    json_put_object(&writer);
    print_array(&writer, "checkpoints");
    for (size_t i = 0; i < folder->names.count; i++) {
        struct finding finding;
        examine(folder, i, verify, &finding);
        if (finding.err != ERR_OK && is_gone(folder, finding.name))
            continue;
        whole = whole && finding.err == ERR_OK;
        if (as_json)
            put_finding(&writer, &finding);
        else
            print_finding(&finding);
    }
    json_put_end(&writer);
    json_put_end(&writer);
    if (as_json)
        print_json(&writer);
    return whole;
}

static int report_folder(int argc, char **argv, const char *summary, bool verify)
{
    const struct arguments_about about = {.subject = "DIR", .json = true, .summary = summary};
    scoped(folder_release) struct folder folder = {0};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = open_folder(arguments.subject, &folder, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    bool whole = report(&folder, verify, arguments.json);
    return whole || !verify ? EXIT_SUCCESS : EXIT_FAILURE;
}

static int run_list(int argc, char **argv)
{
    return report_folder(argc, argv,
                         "Lists the recorded checkpoints of a run's directory, the newest first.",
                         false);
}

static int run_verify(int argc, char **argv)
{
    return report_folder(argc, argv,
                         "Reads every byte of the recorded checkpoints of a run's directory and "
                         "compares it with its digest. Exit code 0: all are whole; 1: not.",
                         true);
}

/* ---- restore ---- */

static enum err restore(const struct arguments *arguments, struct checkpoint_name *ret_name,
                        struct reason *reason)
{
    scoped(folder_release) struct folder folder = {0};
    if (!checkpoint_name_parse(arguments->second, ret_name))
        return reason_set(reason, ERR_INVALID, "%.60s is no checkpoint's name, like g1-v400",
                          arguments->second);
    TRY(open_alone(arguments->subject, &folder, reason));
    TRY(find(&folder, *ret_name, reason));
    TRY(checkpoint_judge(folder.path, *ret_name, reason));
    return checkpoint_choose(folder.path, *ret_name, reason);
}

static int run_restore(int argc, char **argv)
{
    static const struct arguments_about about = {
        .subject = "DIR",
        .second = "NAME",
        .summary = "Makes an older checkpoint of a run's directory the one that the run goes on "
                   "from, while the run is stopped or its coordinator is down. It is verified "
                   "first. Those that are newer are set aside, and removed when the run goes on; "
                   "until then another restore may choose one of them."};
    struct arguments arguments;
    struct checkpoint_name name;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = restore(&arguments, &name, &reason);
    if (err != ERR_OK)
        return command_fail(err, &reason);
    printf("%s goes on from %s: resume it, or start its coordinator\n", arguments.subject,
           name_text(name).text);
    return EXIT_SUCCESS;
}

/* ---- prune ---- */

enum { KEEP_MAX = 10000 };

static error_t parse_prune(int key, char *argument, struct argp_state *state)
{
    uint32_t *keep = state->input;
    if (key != 'K')
        return ARGP_ERR_UNKNOWN;
    *keep = arguments_count(argument, "--keep", KEEP_MAX, state);
    return 0;
}

/* The spec of the newest one names how many stay. */
static enum err prune(const char *directory, uint32_t keep, struct reason *reason)
{
    scoped(folder_release) struct folder folder = {0};
    scoped(stored_release) struct stored stored = {0};
    TRY(open_alone(directory, &folder, reason));
    if (folder.names.count == folder.names.set_aside)
        return reason_set(reason, ERR_INVALID, "%s has no recorded checkpoint", folder.path);
    const struct checkpoint_name newest = folder.names.names[folder.names.set_aside];
    TRY(checkpoint_judge(folder.path, newest, reason));
    TRY(stored_open(directory, &stored, reason));
    return checkpoint_prune(folder.path, newest, keep > 0 ? keep : stored.spec.checkpoint.keep,
                            reason);
}

static int run_prune(int argc, char **argv)
{
    static const struct argp_option options[] = {
        {"keep", 'K', "N", 0, "so many stay (checkpoint.keep of the run)", 0}, {0}};
    static const struct argp own = {options, parse_prune, NULL, NULL, NULL, NULL, NULL};
    uint32_t keep = 0;
    const struct arguments_about about = {
        .subject = "DIR",
        .own = &own,
        .own_input = &keep,
        .summary = "Removes all but the newest checkpoints of a run's directory, and what was left "
                   "unfinished, while the run is stopped. Nothing is removed where the newest is "
                   "damaged: restore an older one first."};
    struct arguments arguments;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = prune(arguments.subject, keep, &reason);
    return err == ERR_OK ? EXIT_SUCCESS : command_fail(err, &reason);
}

/* ---- one that is asked for ---- */

static void print_cut(const struct cut_name *newest)
{
    scoped(buf_release) struct buf text = {0};
    struct json_writer writer = json_writer(&text);
    json_put_object(&writer);
    json_member_uint(&writer, "generation", newest->generation);
    json_member_uint(&writer, "version", newest->version);
    json_put_end(&writer);
    print_json(&writer);
}

static bool has_lost_server(const struct status_reply *status)
{
    for (uint32_t i = 0; i < status->server_count; i++)
        if (!status->servers[i].connected)
            return true;
    return false;
}

static enum err say_waits(const struct status_reply *status, struct reason *reason)
{
    return reason_set(reason, ERR_DEADLINE,
                      "no checkpoint is written while the run waits: %s; `roost status` has more",
                      status->reason);
}

/* Why there may be none for long: what the run waits for, also at its start, or a full disk. After the
 * first look what is new may be over soon, but for a lost server and a disk that got full since; a run
 * that stops waits for that very checkpoint. */
static enum err see_why(const struct status_reply *before, const struct status_reply *now,
                        bool first, struct reason *reason)
{
    if (now->reason[0] != 0 && (has_lost_server(now) || (first && !now->stops)))
        return say_waits(now, reason);
    if (now->cut_state[0] != 0 && (first || strcmp(now->cut_state, before->cut_state) != 0))
        return reason_set(reason, ERR_DEADLINE, "no checkpoint is recorded: %s", now->cut_state);
    return ERR_OK;
}

static bool is_recorded(const struct status_reply *before, const struct status_reply *now)
{
    return now->run == before->run && now->cut.version > before->step;
}

/* What ends the wait for the checkpoint that was asked for after `before`. */
static enum err may_wait(const struct status_reply *before, const struct status_reply *now,
                         bool first, struct reason *reason)
{
    if (now->run != before->run || watch_is_over(now))
        return reason_set(reason, ERR_RUN_FAILED,
                          "run %" PRIu64 " is over, without a checkpoint after step %" PRIu64,
                          before->run, before->step);
    TRY(see_why(before, now, first, reason));
    if (now->generation != before->generation) /* a new coordinator has not heard the question */
        return reason_set(reason, ERR_DEADLINE,
                          "the run began anew from a checkpoint meanwhile: ask again");
    return ERR_OK;
}

/* Another question would ask for another checkpoint, which takes as long. */
static enum err wait_for_asked(struct client *client, const struct status_reply *before,
                               struct cut_name *ret_newest, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply now;
    for (bool said = false;; usleep(LOOK_MS * 1000)) {
        enum err err = client_status(client, &answer, &now, reason);
        if (said && err != ERR_OK && err_reaction(err) == REACT_RETRY)
            continue; /* it may be started again just now */
        TRY(err);
        if (is_recorded(before, &now))
            break;
        TRY(may_wait(before, &now, !said, reason));
        if (!said)
            fputs("the checkpoint is not recorded yet: its step is not done, or it is still being "
                  "written; waiting for it (Ctrl-C ends the wait, not the checkpoint)\n",
                  stderr);
        said = true;
    }
    *ret_newest = now.cut;
    return ERR_OK;
}

/* Without a server there will be none; other waits may be over soon. */
static enum err ask(struct client *client, struct cut_name *ret_newest, struct reason *reason)
{
    scoped(client_answer_release) struct client_answer answer = {0};
    struct status_reply before;
    TRY(client_status(client, &answer, &before, reason));
    if (!watch_is_over(&before) && before.reason[0] != 0 && has_lost_server(&before))
        return say_waits(&before, reason);
    enum err err = client_checkpoint(client, ret_newest, reason);
    return err == ERR_DEADLINE ? wait_for_asked(client, &before, ret_newest, reason) : err;
}

static int run_ask(int argc, char **argv)
{
    static const struct arguments_about about = {
        .cluster = true,
        .json = true,
        .summary = "Makes the next step a checkpoint and prints which it is, once it is recorded, "
                   "however long that takes: Ctrl-C ends the wait, not the checkpoint. With one of "
                   "the words below behind it: works on the checkpoints of a run's "
                   "directory (`roost checkpoint list --help`)."
                   "\v" /* as `roost --help` has commands: the manual page reads them here, too */
                   "  list         those that are recorded\n"
                   "  verify       that they are whole: reads every byte\n"
                   "  restore      go on from an older one\n"
                   "  prune        remove all but the newest\n"};
    struct arguments arguments;
    scoped(client_release) struct client client = {0};
    struct cut_name newest;
    struct reason reason = {0};
    arguments_parse(&about, argc, argv, &arguments);
    enum err err = client_open(&arguments.client, &client, &reason);
    if (err == ERR_OK)
        err = ask(&client, &newest, &reason);
    if (err != ERR_OK)
        return client_fail(&arguments.client, err, &reason);
    if (arguments.json)
        print_cut(&newest);
    else
        printf("generation %" PRIu64 " version %" PRIu64 "\n", newest.generation, newest.version);
    return EXIT_SUCCESS;
}

static const struct {
    const char *name;
    command_fn *run;
} actions[] = {
    {"list", run_list},
    {"verify", run_verify},
    {"restore", run_restore},
    {"prune", run_prune},
};

enum { ACTION_COUNT = sizeof actions / sizeof actions[0] };

/* NULL: near to none of them. */
static const char *action_meant(const char *word)
{
    struct slip slip = slip_of(word);
    for (size_t i = 0; i < ACTION_COUNT; i++)
        slip_try(&slip, actions[i].name);
    return slip.meant;
}

int command_checkpoint(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ACTION_COUNT; i++)
        if (strcmp(argv[1], actions[i].name) == 0) {
            char name[64];
            snprintf(name, sizeof name, "%s %s", argv[0], actions[i].name);
            argv[1] = name; /* what argp calls the program */
            return actions[i].run(argc - 1, argv + 1);
        }
    const char *meant = argc > 1 ? action_meant(argv[1]) : NULL;
    if (meant != NULL) { /* before its options, which are none of ours */
        fprintf(stderr, "%s: no command %s (did you mean %s?)\n", argv[0], argv[1], meant);
        return EXIT_USAGE;
    }
    return run_ask(argc, argv);
}
