#include "common/program/spec_file.h"

#include "common/file.h"
#include "common/program/rows.h"
#include "common/scoped.h"

#include <string.h>
#include <unistd.h>

static enum err judge(const struct spec *spec, struct reason *reason)
{
    scoped(model_release) struct model model = {0};
    TRY(model_init(&model, &spec->model, reason));
    const struct schedule_shape shape =
        pipeline_shape(spec, model.units_count, spec->train.node_slots);
    return rows_judge(&shape, reason);
}

/* The file's rows as one more setting. ERR_NOT_FOUND: there is no file. */
static enum err read_rows(const char *spec_path, const struct flags_sets *sets,
                          const struct spec *spec, struct buf *setting, struct reason *reason)
{
    scoped(buf_release) struct buf path = {0}, text = {0}, rows = {0};
    const char *name = spec->mesh.program;
    struct reason why = {.text = ""};
    TRY(flags_absolute(spec_path, sets, "mesh.program", name, &path, reason));
    enum err err = file_read((const char *)path.data, SPEC_FILE_PROGRAM_BYTES_MAX, &text, &why);
    if (err == ERR_NOT_FOUND || err == ERR_MALFORMED || err == ERR_INVALID)
        return reason_set(reason, err == ERR_MALFORMED ? ERR_INVALID : err, "mesh.program: %s",
                          why.text);
    if (err != ERR_OK)
        return reason_set(reason, err, "%s", reason_text(err, &why));
    TRY(rows_of_file(name, buf_slice(&text), &rows, reason));
    return buf_printf(setting, "mesh.rows=%s", (const char *)rows.data);
}

enum err spec_file_read(const char *path, const struct flags_sets *sets, bool kept,
                        struct spec *ret_spec, struct reason *reason)
{
    scoped(buf_release) struct buf setting = {0};
    TRY(flags_read_spec(path, sets, ret_spec, reason));
    if (ret_spec->mesh.program[0] == 0)
        return ERR_OK;
    if (ret_spec->mesh.rows[0] == 0) {
        enum err err = read_rows(path, sets, ret_spec, &setting, reason);
        if (err == ERR_NOT_FOUND)
            return kept ? ERR_OK : ERR_INVALID;
        TRY(err);
        struct flags_sets all = *sets;
        all.list[all.count++] = (const char *)setting.data;
        TRY(flags_read_spec(path, &all, ret_spec, reason));
    }
    return judge(ret_spec, reason);
}
