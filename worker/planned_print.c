#include "worker/planned_print.h"

#include "common/files/json.h"
#include "common/scoped.h"

#include <inttypes.h>

static uint64_t number_of(const struct plan_bytes *member, size_t offset)
{
    return *(const uint64_t *)((const char *)member + offset);
}

static uint64_t sum_of(const struct planned *planned, size_t offset)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < planned->program.places_count * planned->ranks; i++)
        sum += number_of(&planned->members[i], offset);
    return sum;
}

/* Over boundaries a rank hands values to its like. */
static uint64_t boundary_bytes(const struct planned *planned)
{
    return simulate_peer_bytes(&planned->result) * planned->ranks;
}

static uint64_t sum_bytes(const struct planned *planned)
{
    return sum_of(planned, offsetof(struct plan_bytes, exchanged.bytes));
}

/* Of each place, whose members have the same. */
static void put_places(struct json_writer *writer, const struct planned *planned, const char *key,
                       size_t offset)
{
    json_put_key(writer, key);
    json_put_array(writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(writer, number_of(planned_member(planned, p, 0), offset));
    json_put_end(writer);
}

/* Of each place a list: of each rank. */
static void put_members(struct json_writer *writer, const struct planned *planned, const char *key,
                        size_t offset)
{
    json_put_key(writer, key);
    json_put_array(writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++) {
        json_put_array(writer);
        for (uint32_t rank = 0; rank < planned->ranks; rank++)
            json_put_uint(writer, number_of(planned_member(planned, p, rank), offset));
        json_put_end(writer);
    }
    json_put_end(writer);
}

/* What members of places exchange: all of them together, and each. */
static void put_exchanged(struct json_writer *writer, const struct planned *planned)
{
    static const struct {
        const char *key;
        size_t offset;
    } rows[] = {
        {"sums", offsetof(struct plan_bytes, exchanged.sums)},
        {"sum_messages", offsetof(struct plan_bytes, exchanged.sum_messages)},
        {"gathers", offsetof(struct plan_bytes, exchanged.gathers)},
        {"gather_messages", offsetof(struct plan_bytes, exchanged.gather_messages)},
    };
    json_member_uint(writer, "sum_bytes", sum_bytes(planned));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        json_member_uint(writer, rows[i].key, sum_of(planned, rows[i].offset));
}

static void put_bytes(struct json_writer *writer, const struct planned *planned)
{
    json_member_uint(writer, "peer_bytes", boundary_bytes(planned) + sum_bytes(planned));
    put_exchanged(writer, planned);
    json_member_uint(writer, "pulled_bytes", sum_of(planned, offsetof(struct plan_bytes, pulled)));
    json_member_uint(writer, "pushed_bytes", sum_of(planned, offsetof(struct plan_bytes, pushed)));
    json_put_key(writer, "member_bytes");
    json_put_object(writer);
    put_members(writer, planned, "pulled", offsetof(struct plan_bytes, pulled));
    put_members(writer, planned, "pushed", offsetof(struct plan_bytes, pushed));
    put_members(writer, planned, "sums", offsetof(struct plan_bytes, exchanged.bytes));
    json_put_end(writer);
    json_put_key(writer, "peak_bytes");
    json_put_object(writer);
    put_places(writer, planned, "device", offsetof(struct plan_bytes, device));
    put_places(writer, planned, "weights", offsetof(struct plan_bytes, weights));
    put_places(writer, planned, "host", offsetof(struct plan_bytes, host));
    json_put_end(writer);
}

struct schedule_text {
    char text[SPEC_PATH_BYTES + 16];
};

/* "1f1b", or "program my.csv". */
static struct schedule_text schedule_text(const struct planned_options *options,
                                          const struct planned *planned)
{
    struct schedule_text out;
    const struct mesh *mesh = &planned->mesh;
    bool written = mesh->rows != NULL && mesh->rows[0] != 0;
    const char *name = written ? mesh->program : options->read;
    if (name != NULL)
        snprintf(out.text, sizeof out.text, "program %s", name);
    else
        snprintf(out.text, sizeof out.text, "%s", schedule_name(mesh->schedule));
    return out;
}

enum err planned_print_json(const struct planned_options *options, const struct planned *planned)
{
    scoped(buf_release) struct buf buf = {0};
    struct json_writer writer = json_writer(&buf);
    json_put_object(&writer);
    json_member_uint(&writer, "stages", planned->program.places_count);
    json_member_uint(&writer, "tensor", planned->ranks);
    json_member_text(&writer, "schedule", schedule_text(options, planned).text);
    json_member_uint(&writer, "slots", (uint64_t)planned->program.slots * planned->walks);
    json_member_uint(&writer, "microbatches",
                     (uint64_t)planned->program.microbatches * planned->walks);
    json_member_real(&writer, "time", planned_in_words(options, (double)planned_time(planned)));
    json_member_real(&writer, "idle_share", simulate_idle_share(&planned->result));
    json_put_key(&writer, "stored");
    json_put_array(&writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(&writer, planned->result.places[p].stored);
    json_put_end(&writer);
    json_put_key(&writer, "lanes");
    json_put_array(&writer);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        json_put_uint(&writer, planned_lanes(planned, p));
    json_put_end(&writer);
    if (planned->step > 0) {
        json_member_real(&writer, "step_time", planned_in_words(options, planned->step));
        json_member_real(&writer, "step_ideal", planned_in_words(options, planned->step_ideal));
    }
    put_bytes(&writer, planned);
    json_put_end(&writer);
    TRY(json_writer_finish(&writer));
    printf("%.*s\n", (int)buf.bytes, (const char *)buf.data);
    return ERR_OK;
}

/* Of one member, and of one of them. */
static void print_collectives(const struct planned *planned, const char *name, size_t counts,
                              size_t messages)
{
    uint64_t count = sum_of(planned, counts);
    if (count > 0)
        fprintf(stderr, ", %" PRIu64 " %s of %" PRIu64 " messages each", count / planned->ranks,
                name, sum_of(planned, messages) / count);
}

static void print_exchanged(const struct planned *planned)
{
    if (planned->ranks == 1)
        return;
    fprintf(stderr, "%u members a place: %" PRIu64 " bytes between them", planned->ranks,
            sum_bytes(planned));
    print_collectives(planned, "sums", offsetof(struct plan_bytes, exchanged.sums),
                      offsetof(struct plan_bytes, exchanged.sum_messages));
    print_collectives(planned, "gathers", offsetof(struct plan_bytes, exchanged.gathers),
                      offsetof(struct plan_bytes, exchanged.gather_messages));
    fprintf(stderr, "\n");
}

static void print_place(const struct planned *planned, uint32_t place)
{
    const struct plan_bytes *bytes = planned_member(planned, place, 0);
    uint32_t stored = planned->result.places[place].stored;
    fprintf(stderr,
            "place %u: keeps %u microbatch%s; device %" PRIu64 " bytes (weights %" PRIu64
            ", gradients %" PRIu64 ", activations %" PRIu64 ", scratch %" PRIu64 "), host %" PRIu64
            "%s\n",
            place, stored, stored == 1 ? "" : "es", bytes->device, bytes->weights, bytes->gradients,
            bytes->activations, bytes->scratch, bytes->host,
            planned->ranks > 1 ? ", of each member" : "");
}

static void print_waits(const struct planned_options *options, const struct planned *planned)
{
    const struct mesh_node node = {planned->slots,
                                   planned->program.microbatches / planned->program.slots};
    const struct schedule_shape shape = mesh_shape(&planned->mesh, &planned->model, node);
    struct reason why;
    if (options->read == NULL && pipeline_waits(&shape, &planned->spec, &why))
        fprintf(stderr, "%s\n", why.text);
}

/* The program on stdout, what it costs on stderr. */
enum err planned_print_text(const struct planned_options *options, const struct planned *planned)
{
    scoped(buf_release) struct buf text = {0};
    TRY(program_print(&planned->program, &text));
    fwrite(text.data, 1, text.bytes, stdout);
    fprintf(stderr, "%s: time %g%s, idle share %.3f, %" PRIu64 " bytes between places\n",
            schedule_text(options, planned).text,
            planned_in_words(options, (double)planned_time(planned)), options->uniform ? "" : " s",
            simulate_idle_share(&planned->result), boundary_bytes(planned));
    print_exchanged(planned);
    if (planned->step > 0)
        fprintf(stderr, "without a flush: a step takes %g%s, %g if no place waited\n",
                planned_in_words(options, planned->step), options->uniform ? "" : " s",
                planned_in_words(options, planned->step_ideal));
    print_waits(options, planned);
    for (uint32_t p = 0; p < planned->program.places_count; p++)
        print_place(planned, p);
    return ERR_OK;
}
