/* Names, texts and reactions of ERR_TABLE; the sentence of a reason. */
#include "common/err.h"

#include "common/utf8.h"

#include <errno.h>
#include <stdarg.h>

struct err_row {
    const char *name;
    const char *text;
    enum reaction reaction;
};

#define ERR_ROW(code, reaction, text) [ERR_##code] = {#code, text, REACT_##reaction},
static const struct err_row err_rows[ERR_COUNT] = {ERR_TABLE(ERR_ROW)};
#undef ERR_ROW

const char *err_name(enum err err)
{
    return err_rows[err].name;
}

const char *err_text(enum err err)
{
    return err_rows[err].text;
}

enum reaction err_reaction(enum err err)
{
    return err_rows[err].reaction;
}

const char *reaction_name(enum reaction reaction)
{
    static const char *const names[REACTION_COUNT] = {
        [REACT_DONE] = "done", [REACT_RETRY] = "retry",   [REACT_WAIT] = "wait",
        [REACT_DROP] = "drop", [REACT_REJOIN] = "rejoin", [REACT_REJECT] = "reject",
        [REACT_STOP] = "stop",
    };
    return names[reaction];
}

enum err err_from_wire(unsigned code)
{
    return code < ERR_COUNT ? (enum err)code : ERR_MALFORMED;
}

enum err err_from_errno(int number)
{
    switch (number) {
    case ENOMEM:
        return ERR_NOMEM;
    case ENOSPC:
    case EDQUOT:
        return ERR_NO_SPACE;
    case ENOENT:
    case ENOTDIR:
        return ERR_NOT_FOUND;
    case EISDIR:
    case ENAMETOOLONG:
        return ERR_INVALID;
    case EEXIST:
        return ERR_EXISTS;
    case EACCES:
    case EPERM:
        return ERR_DENIED;
    default:
        return ERR_IO;
    }
}

enum err reason_set(struct reason *reason, enum err err, const char *format, ...)
{
    if (reason != NULL) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(reason->text, sizeof reason->text, format, arguments);
        va_end(arguments);
        utf8_make_plain(reason->text); /* names of others, and what was cut inside a character */
    }
    return err;
}

const char *reason_text(enum err err, const struct reason *reason)
{
    return reason->text[0] != 0 ? reason->text : err_text(err);
}
