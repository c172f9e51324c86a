/* `enum err` and gRPC's statuses. Between our own processes the trailer `roost-err` carries the
 * number; the status is for foreign peers, and for ends that the library itself makes up. */
#include "common/rpc/grpc/core.h"
#include "common/time.h"
#include "common/utf8.h"

#include <ctype.h>
#include <string.h>

/* What a foreign peer should do about an error … */
static const grpc_status_code reaction_codes[REACTION_COUNT] = {
    [REACT_DONE] = GRPC_STATUS_CANCELLED,           [REACT_RETRY] = GRPC_STATUS_UNAVAILABLE,
    [REACT_WAIT] = GRPC_STATUS_FAILED_PRECONDITION, [REACT_DROP] = GRPC_STATUS_OUT_OF_RANGE,
    [REACT_REJOIN] = GRPC_STATUS_ABORTED,           [REACT_REJECT] = GRPC_STATUS_INVALID_ARGUMENT,
    [REACT_STOP] = GRPC_STATUS_FAILED_PRECONDITION,
};

/* Errors for which another status fits better than the reaction's; 0: none does. */
static const grpc_status_code better_codes[ERR_COUNT] = {
    [ERR_NOMEM] = GRPC_STATUS_RESOURCE_EXHAUSTED,   [ERR_INVALID] = GRPC_STATUS_INVALID_ARGUMENT,
    [ERR_DEADLINE] = GRPC_STATUS_DEADLINE_EXCEEDED, [ERR_OLD_TERM] = GRPC_STATUS_ABORTED,
    [ERR_OLD_BOOT] = GRPC_STATUS_ABORTED,           [ERR_NOT_FOUND] = GRPC_STATUS_NOT_FOUND,
    [ERR_EXISTS] = GRPC_STATUS_ALREADY_EXISTS,      [ERR_DENIED] = GRPC_STATUS_PERMISSION_DENIED,
    [ERR_UNTRUSTED] = GRPC_STATUS_UNAUTHENTICATED,  [ERR_IO] = GRPC_STATUS_INTERNAL,
    [ERR_CORRUPT] = GRPC_STATUS_DATA_LOSS,          [ERR_UNSUPPORTED] = GRPC_STATUS_UNIMPLEMENTED,
};

static grpc_status_code err_code(enum err err)
{
    if (err == ERR_OK)
        return GRPC_STATUS_OK;
    return better_codes[err] != 0 ? better_codes[err] : reaction_codes[err_reaction(err)];
}

static const char trailer_key[] = "roost-err";

void rpc_status_init(struct rpc_status *status, enum err err, const char *text)
{
    *status = (struct rpc_status){.code = err_code(err)};
    status->text = text == NULL ? grpc_empty_slice() : grpc_slice_from_copied_string(text);
    if (err == ERR_OK)
        return;
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)err);
    status->trailer.key = grpc_slice_from_static_string(trailer_key);
    status->trailer.value = grpc_slice_from_copied_string(number);
    status->trailer_count = 1;
}

void rpc_status_release(struct rpc_status *status)
{
    grpc_slice_unref(status->text);
    if (status->trailer_count != 0)
        grpc_slice_unref(status->trailer.value);
}

grpc_op rpc_status_op(struct rpc_status *status)
{
    grpc_op op = {.op = GRPC_OP_SEND_STATUS_FROM_SERVER};
    op.data.send_status_from_server.status = status->code;
    op.data.send_status_from_server.status_details = &status->text;
    op.data.send_status_from_server.trailing_metadata = &status->trailer;
    op.data.send_status_from_server.trailing_metadata_count = status->trailer_count;
    return op;
}

void rpc_ending_init(struct rpc_ending *ending)
{
    *ending = (struct rpc_ending){.text = grpc_empty_slice()};
    grpc_metadata_array_init(&ending->trailers);
}

void rpc_ending_release(struct rpc_ending *ending)
{
    grpc_slice_unref(ending->text);
    grpc_metadata_array_destroy(&ending->trailers);
}

grpc_op rpc_ending_op(struct rpc_ending *ending)
{
    grpc_op op = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &ending->trailers;
    op.data.recv_status_on_client.status = &ending->code;
    op.data.recv_status_on_client.status_details = &ending->text;
    return op;
}

/* The number in the trailer; ERR_OK: there is none. */
static enum err trailer_err(const struct rpc_ending *ending)
{
    for (size_t i = 0; i < ending->trailers.count; i++) {
        const grpc_metadata *trailer = &ending->trailers.metadata[i];
        if (grpc_slice_str_cmp(trailer->key, trailer_key) != 0)
            continue;
        char number[16] = {0};
        size_t bytes = GRPC_SLICE_LENGTH(trailer->value);
        if (bytes < sizeof number) {
            memcpy(number, GRPC_SLICE_START_PTR(trailer->value), bytes);
            return err_from_wire((unsigned)strtoul(number, NULL, 10));
        }
    }
    return ERR_OK;
}

/* What a status without our trailer means: a foreign server's, or the library's own. */
static enum err code_err(grpc_status_code code)
{
    switch (code) {
    case GRPC_STATUS_OK:
        return ERR_OK;
    case GRPC_STATUS_DEADLINE_EXCEEDED:
        return ERR_DEADLINE;
    case GRPC_STATUS_RESOURCE_EXHAUSTED: /* how the library refuses long messages */
    case GRPC_STATUS_INVALID_ARGUMENT:
    case GRPC_STATUS_OUT_OF_RANGE:
        return ERR_MALFORMED;
    case GRPC_STATUS_NOT_FOUND:
        return ERR_NOT_FOUND;
    case GRPC_STATUS_ALREADY_EXISTS:
        return ERR_EXISTS;
    case GRPC_STATUS_PERMISSION_DENIED:
        return ERR_DENIED;
    case GRPC_STATUS_UNAUTHENTICATED:
        return ERR_UNTRUSTED;
    case GRPC_STATUS_UNIMPLEMENTED:
        return ERR_UNSUPPORTED;
    default: /* also CANCELLED, when it was not us: the other end went away */
        return ERR_UNREACHABLE;
    }
}

/* ---- The library's own sentences, in ours ---- */

/* The character that an escape stands for. 0: it is none, or would steer a terminal. */
static char escaped_at(const char *text, size_t bytes)
{
    if (bytes < 3 || text[0] != '%' || !isxdigit((unsigned char)text[1]) ||
        !isxdigit((unsigned char)text[2]))
        return 0;
    char digits[] = {text[1], text[2], 0};
    long code = strtol(digits, NULL, 16);
    return code > ' ' && code <= '~' ? (char)code : 0;
}

void rpc_unescape(const char *text, size_t bytes, char *ret_text, size_t bytes_max)
{
    size_t count = 0;
    for (size_t at = 0; at < bytes && count + 1 < bytes_max;) {
        char escaped = escaped_at(text + at, bytes - at);
        ret_text[count++] = escaped != 0 ? escaped : text[at];
        at += escaped != 0 ? 3 : 1;
    }
    ret_text[count] = 0;
}

/* The address in `failed to connect to all addresses; last error: STATUS: ipv4:ADDRESS: CAUSE`, and
 * where it ends. NULL: the sentence is another one. */
static const char *address_of(const char *text, char address[static 64])
{
    if (strstr(text, "failed to connect to all addresses") == NULL)
        return NULL;
    const char *at = strstr(text, ": ipv4:");
    if (at == NULL)
        at = strstr(text, ": ipv6:");
    if (at == NULL)
        return NULL;
    at += strlen(": ipv4:"); /* the other one is as long */
    const char *end = strstr(at, ": ");
    rpc_unescape(at, end != NULL ? (size_t)(end - at) : strlen(at), address, 64);
    return at;
}

/* `cannot connect to ADDRESS`, and the cause where it is one that the system reports. */
static void put_connect_plainly(char *text, size_t bytes)
{
    static const char *const causes[] = {"Connection refused",     "Connection reset",
                                         "Socket closed",          "No route to host",
                                         "Network is unreachable", "Connection timed out"};
    char address[64], plain[200];
    const char *at = address_of(text, address), *cause = "";
    if (at == NULL)
        return;
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++)
        cause = strstr(at, causes[i]) != NULL ? causes[i] : cause;
    snprintf(plain, sizeof plain, "cannot connect to %s%s%s", address, cause[0] != 0 ? ": " : "",
             cause);
    snprintf(text, bytes, "%s", plain);
}

/* `DNS resolution failed for NAME:PORT: … name=NAME is_balancer=0: CAUSE` */
static void put_resolution_plainly(char *text, size_t bytes)
{
    static const char begin[] = "DNS resolution failed for ";
    if (strncmp(text, begin, strlen(begin)) != 0)
        return;
    const char *address = text + strlen(begin), *end = strstr(address, ": "), *cause = "";
    for (const char *next = end; next != NULL; next = strstr(cause, ": "))
        cause = next + 2;
    char plain[480];
    snprintf(plain, sizeof plain,
             "cannot connect to %.*s: that name does not resolve (%.60s); check it, or use the "
             "machine's address",
             end != NULL ? (int)(end - address) : (int)strlen(address), address,
             end != NULL ? cause : "no cause is known");
    snprintf(text, bytes, "%s", plain);
}

static void put_plainly(char *text, size_t bytes)
{
    put_connect_plainly(text, bytes);
    put_resolution_plainly(text, bytes);
}

/* This end refused the server's certificate: whose, and what it lacks. */
static enum err untrusted_server(const struct tls_identity *identity, const char *text,
                                 struct reason *reason)
{
    static const char no_name[] = "Peer name ";
    char address[64] = "the server";
    const char *called = strstr(text, no_name), *folder_end = strrchr(identity->path, '/');
    (void)address_of(text, address);
    if (called != NULL) {
        called += strlen(no_name);
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s has a certificate that is not for %.*s; add that name to the "
                          "servers' certificates (roost cert --host), or call one that they have",
                          address, (int)strcspn(called, " "), called);
    }
    return reason_set(reason, ERR_UNTRUSTED,
                      "%s has a certificate that the CA in %.*sca.crt did not sign, or that has "
                      "ended; both ends need folders that one `roost cert` has made (--certs)",
                      address, folder_end != NULL ? (int)(folder_end + 1 - identity->path) : 0,
                      identity->path);
}

/* A connection that TLS refused looks like one that broke: this finds the likely cause. A server
 * refuses after the client's handshake has ended (TLS 1.3), so the client can only guess. */
static enum err tls_refusal(const struct tls_identity *identity, char *text, size_t bytes,
                            struct reason *reason)
{
    TRY(tls_identity_valid(identity, (int64_t)(time_wall_ns() / 1000000000), reason));
    if (strstr(text, "certificate verify failed") != NULL || strstr(text, "Peer name") != NULL)
        return untrusted_server(identity, text, reason);
    bool refused =
        strstr(text, "failed to connect") != NULL &&
        (strstr(text, "Socket closed") != NULL || strstr(text, "Connection reset") != NULL);
    put_plainly(text, bytes);
    if (refused)
        return reason_set(reason, ERR_UNREACHABLE, "%.300s; does the server trust %.100s?", text,
                          identity->path);
    return reason_set(reason, ERR_UNREACHABLE, "%s", text);
}

enum err rpc_ending_read(const struct rpc_ending *ending, bool cancelled,
                         const struct tls_identity *identity, struct reason *reason)
{
    char text[600];
    size_t bytes = GRPC_SLICE_LENGTH(ending->text);
    if (bytes >= sizeof text)
        bytes = sizeof text - 1;
    memcpy(text, GRPC_SLICE_START_PTR(ending->text), bytes);
    text[bytes] = 0;
    utf8_make_plain(text); /* the other end chose it, and it will be printed */
    if (ending->code == GRPC_STATUS_OK)
        return ERR_OK;
    enum err err = trailer_err(ending);
    if (err == ERR_OK && cancelled)
        return reason_set(reason, ERR_CANCELLED, "cancelled");
    if (err == ERR_OK)
        err = code_err(ending->code);
    if (text[0] == 0)
        snprintf(text, sizeof text, "%s", err_text(err));
    if (err == ERR_UNREACHABLE && identity != NULL)
        return tls_refusal(identity, text, sizeof text, reason);
    put_plainly(text, sizeof text);
    return reason_set(reason, err, "%s", text);
}
