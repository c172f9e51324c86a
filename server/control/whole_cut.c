/* The newest checkpoint that is whole. */
#include "server/control/whole_cut.h"

#include "common/time.h"

#include <stdlib.h>
#include <string.h>

enum {
    PART_BYTES = 16 << 20, /* read between two events: 10 ms from memory */
    ASKED_MS = 60000,      /* a search that nobody asks about any more ends */
};

/* ---- one ---- */

bool whole_cut_is_damage(enum err err)
{
    return err == ERR_CORRUPT || err == ERR_NOT_FOUND || err == ERR_MALFORMED;
}

void whole_cut_reader_release(struct whole_cut_reader *reader)
{
    checkpoint_free(reader->checkpoint);
    *reader = (struct whole_cut_reader){0};
}

/* Every block is read, because servers would find a flipped bit only after they have prepared. */
static enum err read_part(struct whole_cut_reader *reader, const char *checkpoint_dir,
                          struct checkpoint_name name, bool *ret_whole, struct reason *reason)
{
    if (reader->checkpoint == NULL)
        TRY(checkpoint_open(checkpoint_dir, name, &reader->checkpoint, reason));
    return checkpoint_verify_part(reader->checkpoint, PART_BYTES, &reader->next, ret_whole, reason);
}

enum err whole_cut_read(struct whole_cut_reader *reader, const char *checkpoint_dir,
                        struct checkpoint_name name, bool *ret_whole, struct reason *reason)
{
    *ret_whole = false;
    enum err err = read_part(reader, checkpoint_dir, name, ret_whole, reason);
    if (err != ERR_OK || *ret_whole)
        whole_cut_reader_release(reader);
    return err;
}

/* ---- the newest ---- */

void whole_cut_release(struct whole_cut *whole)
{
    whole_cut_reader_release(&whole->reader);
    checkpoint_names_release(&whole->names);
    buf_release(&whole->passed);
    free(whole->dir);
    *whole = (struct whole_cut){0};
}

static enum err list_cuts(struct whole_cut *whole, const char *checkpoint_dir,
                          struct reason *reason)
{
    if (whole->dir != NULL)
        return ERR_OK;
    whole_cut_release(whole); /* names without memory for the folder's */
    TRY(checkpoint_list(checkpoint_dir, &whole->names, reason));
    whole->dir = strdup(checkpoint_dir);
    if (whole->dir == NULL)
        return ERR_NOMEM;
    whole->at = whole->names.set_aside;
    whole->err = ERR_NOT_FOUND;
    ignore(reason_set(&whole->reason, ERR_NOT_FOUND, "%s has no recorded checkpoint",
                      checkpoint_dir)); /* as long as none is found */
    return ERR_OK;
}

static enum err pass_over(struct whole_cut *whole)
{
    whole->at++; /* the next older one */
    return buf_printf(&whole->passed, "%s%s", whole->passed.bytes > 0 ? "; " : "",
                      whole->reason.text);
}

static void read_on(struct whole_cut *whole)
{
    bool found = false;
    enum err err = ERR_OK;
    if (whole->at < whole->names.count)
        err = whole_cut_read(&whole->reader, whole->dir, whole->names.names[whole->at], &found,
                             &whole->reason);
    bool damaged = whole_cut_is_damage(err), failed = err != ERR_OK && !damaged;
    if (found || err != ERR_OK)
        whole->err = err;
    if (damaged && pass_over(whole) != ERR_OK) {
        failed = true;
        whole->err = reason_set(&whole->reason, ERR_NOMEM, "no memory to read checkpoints");
    }
    whole->over = found || failed || whole->at >= whole->names.count;
}

/* The answer of another directory waits until it is forgotten. */
static enum err wait_for_other(const struct whole_cut *whole, const char *checkpoint_dir,
                               struct reason *reason)
{
    if (whole->dir == NULL || strcmp(whole->dir, checkpoint_dir) == 0)
        return ERR_OK;
    return reason_set(reason, ERR_SEARCHING, "the checkpoints of another run are read");
}

static enum err wait_for_end(const struct whole_cut *whole, struct reason *reason)
{
    if (!whole_cut_reads(whole))
        return ERR_OK;
    struct checkpoint_name name = whole->names.names[whole->at];
    return reason_set(reason, ERR_SEARCHING,
                      "checkpoint g%llu-v%llu is read, to see whether it is whole",
                      (unsigned long long)name.generation, (unsigned long long)name.version);
}

enum err whole_cut_ask(struct whole_cut *whole, const char *checkpoint_dir, uint64_t now_ns,
                       struct checkpoint_name *ret_name, struct reason *reason)
{
    TRY(wait_for_other(whole, checkpoint_dir, reason));
    TRY(list_cuts(whole, checkpoint_dir, reason));
    whole->asked_ns = now_ns;
    if (!whole->over)
        read_on(whole);
    TRY(wait_for_end(whole, reason));
    enum err err = whole->err;
    whole->told = err == ERR_OK;
    if (err == ERR_OK)
        *ret_name = whole->names.names[whole->at];
    if (err != ERR_OK) {
        *reason = whole->reason;
        whole_cut_release(whole); /* who asks once more looks anew */
    }
    return err;
}

void whole_cut_forget(struct whole_cut *whole)
{
    if (!whole_cut_reads(whole))
        whole_cut_release(whole);
}

void whole_cut_end_call(struct whole_cut *whole, bool asks_again)
{
    if (whole->told && !asks_again)
        whole_cut_forget(whole);
    whole->told = false;
}

bool whole_cut_reads(const struct whole_cut *whole)
{
    return whole->dir != NULL && !whole->over;
}

void whole_cut_go_on(struct whole_cut *whole, uint64_t now_ns)
{
    if (whole->dir != NULL && now_ns >= time_after_ms(whole->asked_ns, ASKED_MS))
        whole_cut_release(whole);
    else if (whole_cut_reads(whole))
        read_on(whole);
}
