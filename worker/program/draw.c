#include "worker/program/draw.h"

/* In the picture's units, about a screen's pixels. */
enum { LEFT = 70, WIDTH = 900, LINE = 30, BOX = 26, TOP = 10, DIGIT = 7, BELOW = 34 };

/* Acts that take time. */
static const struct {
    const char *word, *fill;
} colours[ACT_COUNT] = {
    [ACT_F] = {"forward", "#cfe3b4"},
    [ACT_E] = {"forward", "#cfe3b4"},
    [ACT_B] = {"backward", "#9cc4e4"},
    [ACT_I] = {"gradient of inputs", "#b9d6ee"},
    [ACT_W] = {"gradient of weights", "#f2d9a8"},
    [ACT_RC] = {"recompute", "#e4a3a3"},
};

struct drawing {
    const struct program *program;
    const struct simulate_result *result;
    struct buf *svg;
    bool drawn[ACT_COUNT];
};

/* Consecutive rows of one act on one microbatch. */
struct box {
    struct program_row row; /* the first */
    uint32_t unit;          /* the lowest */
    struct simulate_span span;
};

static double across(const struct drawing *d, uint64_t time)
{
    return LEFT +
           (double)WIDTH * (double)time / (double)(d->result->time > 0 ? d->result->time : 1);
}

static unsigned digits(uint32_t number)
{
    unsigned count = 1;
    for (; number >= 10; number /= 10)
        count++;
    return count;
}

static enum err draw_box(struct drawing *d, uint32_t place, const struct box *box, bool darker)
{
    double left = across(d, box->span.begin), right = across(d, box->span.end);
    uint32_t top = TOP + place * LINE;
    d->drawn[box->row.act] = true;
    TRY(buf_printf(d->svg, "<rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%u\" fill=\"%s\"/>",
                   left, top, right - left, BOX, colours[box->row.act].fill));
    if (darker)
        TRY(buf_printf(d->svg,
                       "<rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%u\" fill=\"#000\" "
                       "fill-opacity=\".15\"/>",
                       left, top, right - left, BOX));
    if (right - left > DIGIT * digits(box->row.microbatch) + 2)
        TRY(buf_printf(d->svg,
                       "<text x=\"%.1f\" y=\"%u\" text-anchor=\"middle\" stroke=\"none\">%u"
                       "</text>",
                       (left + right) / 2, top + BOX - 9, box->row.microbatch));
    return buf_append(d->svg, "\n", 1);
}

static bool takes_time(const struct drawing *d, uint32_t place, uint32_t i)
{
    struct simulate_span span = d->result->places[place].rows[i];
    return colours[d->program->places[place].rows[i].act].fill != NULL && span.end > span.begin;
}

/* From row *next on: the box of the rows that belong together. False: there is none left. */
static bool next_box(const struct drawing *d, uint32_t place, uint32_t *next, struct box *ret_box)
{
    const struct program_place *rows = &d->program->places[place];
    bool begun = false;
    for (; *next < rows->rows_count; ++*next) {
        struct program_row row = rows->rows[*next];
        struct simulate_span span = d->result->places[place].rows[*next];
        if (!takes_time(d, place, *next))
            continue;
        if (begun && (row.act != ret_box->row.act || row.microbatch != ret_box->row.microbatch ||
                      span.begin != ret_box->span.end))
            return true;
        if (!begun)
            *ret_box = (struct box){row, row.unit, span};
        begun = true;
        ret_box->span.end = span.end;
        ret_box->unit = row.unit < ret_box->unit ? row.unit : ret_box->unit;
    }
    return begun;
}

static enum err draw_place(struct drawing *d, uint32_t place)
{
    struct box box;
    uint32_t next = 0, first = UINT32_MAX;
    TRY(buf_printf(d->svg,
                   "<text x=\"%u\" y=\"%u\" text-anchor=\"end\" stroke=\"none\">place %u"
                   "</text>\n",
                   LEFT - 8, TOP + place * LINE + BOX - 9, place));
    while (next_box(d, place, &next, &box)) {
        first = first == UINT32_MAX ? box.unit : first;
        TRY(draw_box(d, place, &box, box.unit != first));
    }
    return ERR_OK;
}

/* The colours that were used, and the caption. */
static enum err draw_legend(struct drawing *d, const char *caption)
{
    uint32_t left = LEFT, top = TOP + d->program->places_count * LINE + 8;
    for (int act = 0; act < ACT_COUNT; act++) {
        if (!d->drawn[act])
            continue;
        TRY(buf_printf(d->svg,
                       "<rect x=\"%u\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                       "<text x=\"%u\" y=\"%u\" stroke=\"none\">%s</text>\n",
                       left, top, colours[act].fill, left + 17, top + 10, colours[act].word));
        left += 140;
    }
    return buf_printf(d->svg,
                      "<text x=\"%u\" y=\"%u\" text-anchor=\"end\" stroke=\"none\">%s</text>\n",
                      LEFT + WIDTH, top + 10, caption);
}

enum err draw_program(const struct program *program, const struct simulate_result *result,
                      const char *caption, struct buf *svg)
{
    struct drawing drawing = {.program = program, .result = result, .svg = svg};
    uint32_t height = TOP + program->places_count * LINE + BELOW;
    TRY(buf_printf(svg,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %u %u\" "
                   "font-family=\"sans-serif\" font-size=\"11\" fill=\"#333\" stroke=\"#fff\">\n"
                   "<rect width=\"%u\" height=\"%u\" fill=\"#fff\"/>\n",
                   LEFT + WIDTH + 10, height, LEFT + WIDTH + 10, height));
    for (uint32_t place = 0; place < program->places_count; place++)
        TRY(draw_place(&drawing, place));
    TRY(draw_legend(&drawing, caption));
    return buf_printf(svg, "</svg>\n");
}
