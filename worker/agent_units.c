/* What belongs to a ticket's place: units whose weights are pulled, pieces that are pushed. */
#include "common/model/pieces.h"
#include "common/program/rows.h"
#include "worker/agent_traffic.h"

#include <string.h>

static struct schedule_shape shape_of(const struct agent_traffic *traffic)
{
    return pipeline_cut_shape(&traffic->config->mesh, traffic->config->model->units_count);
}

enum err agent_units_init(struct agent_traffic *traffic)
{
    const struct spec_mesh *mesh = &traffic->config->mesh;
    uint32_t units = traffic->config->model->units_count;
    for (uint32_t n = 0; n < traffic->lanes; n++)
        memset(traffic->flows[n].units, true, units * sizeof *traffic->flows[n].units);
    const struct schedule_shape shape = shape_of(traffic);
    return !spec_mesh_is_shared(mesh) ? ERR_OK
                                      : rows_runs(&shape, traffic->config->model, &traffic->runs);
}

/* Executors of another place, or of another member of it, have other weights, and all lanes have
 * the same place and rank. */
static void change_place(struct agent_traffic *traffic, const struct place *place)
{
    for (uint32_t n = 0; n < traffic->lanes; n++)
        for (uint32_t c = 0; c < traffic->config->model->chunks_count; c++)
            traffic->flows[n].held[c].generation = 0;
    traffic->stage = place->stage;
    traffic->rank = place->rank;
}

static void begin_place(struct agent_traffic *traffic, struct agent_flow *flow)
{
    const struct schedule_shape shape = shape_of(traffic);
    const struct place *place = &flow->ticket->place;
    if (place->stage != traffic->stage || place->rank != traffic->rank)
        change_place(traffic, place);
    for (uint32_t unit = 0; unit < shape.units; unit++)
        flow->units[unit] = schedule_has(&shape, &traffic->runs, place->stage, unit);
    flow->pieces_count = 0;
    for (uint32_t piece = 0; piece < traffic->piece_count; piece++)
        flow->pieces_count += agent_units_has_piece(traffic, flow, piece);
}

void agent_units_begin(struct agent_traffic *traffic, struct agent_flow *flow)
{
    if (traffic->runs.count > 0)
        begin_place(traffic, flow);
    else
        flow->pieces_count = traffic->piece_count;
}

uint32_t agent_units_of_piece(const struct agent_traffic *traffic, uint32_t piece)
{
    const struct model *model = traffic->config->model;
    const struct agent_piece *p = &traffic->pieces[piece];
    return model->parameters[model->chunks[p->chunk].parameter].part_units[p->part];
}

bool agent_units_has_piece(const struct agent_traffic *traffic, const struct agent_flow *flow,
                           uint32_t piece)
{
    const struct agent_piece *p = &traffic->pieces[piece];
    const struct place *place = &flow->ticket->place;
    return traffic->runs.count == 0 ||
           (flow->units[agent_units_of_piece(traffic, piece)] &&
            ticket_names(&flow->ticket->ticket, p->chunk, p->part) &&
            pieces_chunk_rank(traffic->config->model, p->chunk, place->ranks) == place->rank);
}

bool agent_units_has_chunk(const struct agent_traffic *traffic, const struct agent_flow *flow,
                           uint32_t chunk)
{
    const struct place *place = &flow->ticket->place;
    return pieces_rank_holds(traffic->config->model, chunk, place->rank, place->ranks);
}

uint32_t agent_units_first_use(const struct agent_flow *flow,
                               const struct model_parameter *parameter)
{
    uint32_t part = 0;
    while (!flow->units[parameter->part_units[part]])
        check(++part < parameter->parts);
    return parameter->part_units[part];
}

struct node agent_units_node(const struct agent_traffic *traffic, const struct agent_flow *flow,
                             uint32_t piece)
{
    return traffic->runs.count == 0 ? flow->ticket->ticket.node
                                    : flow->unit_nodes[agent_units_of_piece(traffic, piece)];
}
