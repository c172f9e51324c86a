#include "proto/standard.h"

#include "common/scoped.h"
#include "proto/pb.h"

#include "health.pb-c.h"
#include "reflection.pb-c.h"

#include <string.h>

enum { STATUS_NOT_FOUND = 5, STATUS_UNIMPLEMENTED = 12, SERVICES = 5, FILES_MAX = 8 };

static const char *const services[SERVICES] = {
    "roost.v1.Cluster",
    "roost.v1.Shard",
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
};

/* ---- health ---- */

enum err standard_health(struct slice request, bool serving, struct buf *response,
                         struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_HEADER_BYTES_MAX};
    Grpc__Health__V1__HealthCheckRequest *from;
    TRY(pb_unpack(&grpc__health__v1__health_check_request__descriptor, request, &arena, &from,
                  reason));
    if (from->service[0] != 0 && strcmp(from->service, services[0]) != 0 &&
        strcmp(from->service, services[1]) != 0)
        return reason_set(reason, ERR_NOT_FOUND, "service %.200s is not served here",
                          from->service);
    Grpc__Health__V1__HealthCheckResponse to = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    to.status = serving ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                        : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
    return pb_pack(&to.base, response);
}

/* ---- reflection ----
 *
 * protoc's descriptor set of our four files is linked in. It is one message whose field 1 repeats
 * FileDescriptorProto (field 1: name, field 2: package); these bytes are served as they are. */

__asm__(".pushsection .rodata\n"
        ".global roost_descriptors\n"
        ".global roost_descriptors_end\n"
        "roost_descriptors:\n"
        ".incbin \"" DESCRIPTORS_FILE "\"\n"
        "roost_descriptors_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const uint8_t roost_descriptors[];
extern const uint8_t roost_descriptors_end[];

struct described_file {
    struct slice bytes, name, package;
};

/* The next length-delimited field of `rest`; protoc's own output, so it is well formed. */
static uint32_t next_field(struct slice *rest, struct slice *ret_content)
{
    uint64_t numbers[2] = {0, 0}; /* tag, length */
    for (int i = 0; i < 2; i++)
        for (unsigned shift = 0;; shift += 7) {
            check(rest->bytes > 0);
            uint8_t byte = *rest->data++;
            rest->bytes--;
            numbers[i] |= (uint64_t)(byte & 0x7f) << shift;
            if ((byte & 0x80) == 0)
                break;
        }
    check((numbers[0] & 7) == 2 && numbers[1] <= rest->bytes);
    *ret_content = (struct slice){rest->data, (size_t)numbers[1]};
    rest->data += numbers[1];
    rest->bytes -= (size_t)numbers[1];
    return (uint32_t)(numbers[0] >> 3);
}

static size_t list_files(struct described_file files[static FILES_MAX])
{
    struct slice set = {roost_descriptors, (size_t)(roost_descriptors_end - roost_descriptors)};
    size_t count = 0;
    while (set.bytes > 0) {
        struct described_file file = {0};
        check(next_field(&set, &file.bytes) == 1 && count < FILES_MAX);
        struct slice rest = file.bytes;
        check(next_field(&rest, &file.name) == 1 && next_field(&rest, &file.package) == 2);
        files[count++] = file;
    }
    return count;
}

static bool is_text(struct slice slice, const char *text)
{
    return strlen(text) == slice.bytes && memcmp(text, slice.data, slice.bytes) == 0;
}

/* `symbol` is in `package`: "roost.v1.Shard.Exchange" is in "roost.v1". */
static bool is_inside(struct slice package, const char *symbol)
{
    return strlen(symbol) > package.bytes && memcmp(symbol, package.data, package.bytes) == 0 &&
           symbol[package.bytes] == '.';
}

typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

static enum err answer_error(reflection_response *to, int32_t code, const char *text,
                             struct buf *response)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = code;
    error.error_message = pb_string(text);
    to->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_ERROR_RESPONSE;
    to->error_response = &error;
    return pb_pack(&to->base, response);
}

static enum err answer_file(reflection_response *to, const char *name, const char *symbol,
                            struct buf *response)
{
    struct described_file files[FILES_MAX];
    size_t count = list_files(files);
    for (size_t i = 0; i < count; i++) {
        if (name != NULL ? !is_text(files[i].name, name) : !is_inside(files[i].package, symbol))
            continue;
        ProtobufCBinaryData bytes = pb_bytes(files[i].bytes.data, files[i].bytes.bytes);
        Grpc__Reflection__V1__FileDescriptorResponse file =
            GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
        file.n_file_descriptor_proto = 1;
        file.file_descriptor_proto = &bytes;
        to->message_response_case =
            GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_FILE_DESCRIPTOR_RESPONSE;
        to->file_descriptor_response = &file;
        return pb_pack(&to->base, response);
    }
    return answer_error(to, STATUS_NOT_FOUND, "no such file or symbol", response);
}

static enum err answer_services(reflection_response *to, struct buf *response)
{
    Grpc__Reflection__V1__ServiceResponse rows[SERVICES];
    Grpc__Reflection__V1__ServiceResponse *pointers[SERVICES];
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    for (size_t i = 0; i < SERVICES; i++) {
        rows[i] =
            (Grpc__Reflection__V1__ServiceResponse)GRPC__REFLECTION__V1__SERVICE_RESPONSE__INIT;
        rows[i].name = pb_string(services[i]);
        pointers[i] = &rows[i];
    }
    list.n_service = SERVICES;
    list.service = pointers;
    to->message_response_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_LIST_SERVICES_RESPONSE;
    to->list_services_response = &list;
    return pb_pack(&to->base, response);
}

enum err standard_reflection(struct slice request, struct buf *response, struct reason *reason)
{
    scoped(arena_release) struct arena arena = {.bytes_max = WIRE_HEADER_BYTES_MAX};
    Grpc__Reflection__V1__ServerReflectionRequest *from;
    reflection_response to = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    TRY(pb_unpack(&grpc__reflection__v1__server_reflection_request__descriptor, request, &arena,
                  &from, reason));
    to.valid_host = from->host;
    to.original_request = from;
    switch (from->message_request_case) {
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_BY_FILENAME:
        return answer_file(&to, from->file_by_filename, NULL, response);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL:
        return answer_file(&to, NULL, from->file_containing_symbol, response);
    case GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES:
        return answer_services(&to, response);
    default:
        return answer_error(&to, STATUS_UNIMPLEMENTED, "there are no extensions", response);
    }
}
