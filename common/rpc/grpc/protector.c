/* TLS for the library's slices: encrypted out of them and decrypted in place.
 *
 * For TLS the library (1.51) copies 16 KiB together, encrypts them into a BIO pair, and copies what
 * comes out into two slices of 8 KiB; received records go the same way back. For other ways to
 * encrypt it has "zero-copy protectors", which get slices and give slices. This is one for TLS.
 *
 * The library asks which kind a connection has, and for one of that kind, through two functions that
 * are defined here again under its own (C++) names: what a program defines comes before what its
 * libraries do. What is known here of the library's inside holds for the version that is compared;
 * with any other the library goes on as it is. */
#include "common/rpc/grpc/core.h"
#include "common/rpc/tls_records.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/slice.h>
#include <grpc/slice_buffer.h>

enum {
    GATHERED_BYTES_MAX = 4096, /* a slice below this shares a record with its neighbours */
    SENT_BYTES = 4 * (TLS_RECORD_BYTES_MAX + TLS_RECORD_OVERHEAD) /* one slice of records */
};

/* ---- The library's side: src/core/tsi/transport_security.h, transport_security_grpc.h ---- */

#define KNOWN_VERSION "29.0.0" /* the core's, of gRPC 1.51 */
enum { TSI_OK = 0, TSI_INTERNAL_ERROR = 7, TSI_PROTOCOL_FAILURE = 10, TSI_OUT_OF_RESOURCES = 12 };
enum { KIND_COPYING = 0, KIND_SLICES = 1 };

struct handshake_result;
struct protector;

struct protector_functions {
    int (*protect)(struct protector *protector, grpc_slice_buffer *plain,
                   grpc_slice_buffer *records);
    int (*unprotect)(struct protector *protector, grpc_slice_buffer *records,
                     grpc_slice_buffer *plain, int *ret_wanted_min);
    void (*destroy)(struct protector *protector);
    int (*frame_bytes_max)(struct protector *protector, size_t *ret_bytes);
};

/* What TLS has there: the beginning of tsi_ssl_frame_protector. */
struct copying_protector {
    const void *functions;
    void *connection; /* OpenSSL's SSL */
};

#define KIND_NAME                                                                                  \
    "_Z46tsi_handshaker_result_get_frame_protector_type"                                           \
    "PK21tsi_handshaker_resultP24tsi_frame_protector_type"
#define CREATE_NAME                                                                                \
    "_Z53tsi_handshaker_result_create_zero_copy_grpc_protector"                                    \
    "PK21tsi_handshaker_resultPmPP28tsi_zero_copy_grpc_protector"
#define CREATE_COPYING_NAME                                                                        \
    "_Z44tsi_handshaker_result_create_frame_protector"                                             \
    "PK21tsi_handshaker_resultPmPP19tsi_frame_protector"
#define DESTROY_COPYING_NAME "_Z27tsi_frame_protector_destroyP19tsi_frame_protector"

int rpc_protector_kind(const struct handshake_result *result, int *ret_kind) __asm__(KIND_NAME);
int rpc_protector_create(const struct handshake_result *result, size_t *frame_bytes_max,
                         struct protector **ret_protector) __asm__(CREATE_NAME);

/* The library's own function of that name goes to *ret_function. */
static void library_function(const char *name, void *ret_function)
{
    void *symbol = dlsym(RTLD_NEXT, name);
    check(symbol != NULL); /* the library that calls us has it */
    memcpy(ret_function, &symbol, sizeof symbol);
}

static bool inside_is_known(void)
{
    return strcmp(grpc_version_string(), KNOWN_VERSION) == 0;
}

bool rpc_protects_slices(void)
{
    int (*kind)(const struct handshake_result *result, int *ret_kind) = rpc_protector_kind;
    void *symbol = dlsym(RTLD_DEFAULT, KIND_NAME);
    return inside_is_known() && memcmp(&symbol, &kind, sizeof symbol) == 0;
}

/* ---- A protector ---- */

/* The slice that is being decrypted in place: [given, filled) is decrypted and not yet in `plain`,
 * [filled, read) is free, OpenSSL has not read [read, end). */
struct receiving {
    grpc_slice_buffer *records, *plain;
    grpc_slice slice;
    uint8_t *start, *given, *filled, *read, *end; /* NULL: there is no slice */
};

struct protector {
    const struct protector_functions *functions;
    struct tls_records *records;
    struct accepted *accepted; /* NULL: nobody watches the connection */
    /* Guards the rest: sending and receiving are two threads'. Who watches the connection
     * (common/rpc/tls.h) is told under it, and may take a lock of its own. */
    struct thread_mutex lock;
    struct receiving receiving;
    grpc_slice_buffer sent; /* records, whole slices of them, */
    grpc_slice open;        /* and the one that is being filled */
    size_t open_bytes, open_bytes_max;
    size_t expected; /* bytes of records of this call that are still to come */
    bool answered;   /* something was sent */
};

/* ---- Sending ---- */

static void close_sent(struct protector *protector)
{
    if (protector->open_bytes_max == 0)
        return;
    GRPC_SLICE_SET_LENGTH(protector->open, protector->open_bytes);
    grpc_slice_buffer_add(&protector->sent, protector->open);
    protector->open_bytes = protector->open_bytes_max = 0;
}

static void open_sent(struct protector *protector, size_t bytes_min)
{
    size_t bytes = protector->expected < SENT_BYTES ? protector->expected : SENT_BYTES;
    protector->open_bytes_max = bytes > bytes_min ? bytes : bytes_min;
    protector->open = grpc_slice_malloc(protector->open_bytes_max);
}

/* One record, or a part of one. */
static void on_send(void *owner, struct slice bytes)
{
    struct protector *protector = owner;
    if (protector->open_bytes_max - protector->open_bytes < bytes.bytes) {
        close_sent(protector);
        open_sent(protector, bytes.bytes);
    }
    memcpy(GRPC_SLICE_START_PTR(protector->open) + protector->open_bytes, bytes.data, bytes.bytes);
    protector->open_bytes += bytes.bytes;
    protector->expected -= protector->expected < bytes.bytes ? protector->expected : bytes.bytes;
}

/* Small slices (headers of frames and messages) on their way into one record. */
struct gathered {
    size_t bytes;
    uint8_t data[TLS_RECORD_BYTES_MAX];
};

static enum err send_gathered(struct protector *protector, struct gathered *gathered)
{
    struct slice bytes = {gathered->data, gathered->bytes};
    gathered->bytes = 0;
    return tls_records_write(protector->records, bytes);
}

static enum err send_slice(struct protector *protector, struct slice bytes,
                           struct gathered *gathered)
{
    bool direct = bytes.bytes >= GATHERED_BYTES_MAX;
    if (direct || bytes.bytes > sizeof gathered->data - gathered->bytes)
        TRY(send_gathered(protector, gathered));
    if (direct)
        return tls_records_write(protector->records, bytes);
    memcpy(gathered->data + gathered->bytes, bytes.data, bytes.bytes);
    gathered->bytes += bytes.bytes;
    return ERR_OK;
}

static enum err send_slices(struct protector *protector, grpc_slice_buffer *plain)
{
    struct gathered gathered;
    gathered.bytes = 0;
    enum err err = ERR_OK;
    while (plain->count > 0 && err == ERR_OK) {
        grpc_slice slice = grpc_slice_buffer_take_first(plain);
        err = send_slice(protector,
                         (struct slice){GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice)},
                         &gathered);
        grpc_slice_unref(slice);
    }
    return err == ERR_OK ? send_gathered(protector, &gathered) : err;
}

static int protect(struct protector *protector, grpc_slice_buffer *plain,
                   grpc_slice_buffer *records)
{
    thread_lock(&protector->lock);
    size_t records_max = plain->length / TLS_RECORD_BYTES_MAX + plain->count + 1;
    protector->expected = plain->length + records_max * TLS_RECORD_OVERHEAD;
    enum err err = send_slices(protector, plain);
    protector->expected = 0;
    protector->answered = true;
    close_sent(protector);
    grpc_slice_buffer_move_into(&protector->sent, records);
    thread_unlock(&protector->lock);
    return err == ERR_OK ? TSI_OK : TSI_INTERNAL_ERROR;
}

/* ---- Receiving ---- */

/* The one that receives in this thread: OpenSSL calls rpc_protector_watched() from within. */
static _Thread_local struct protector *receiving_now;

void rpc_protector_watched(struct accepted *accepted)
{
    if (receiving_now != NULL)
        receiving_now->accepted = accepted;
}

static void give_plain(struct receiving *receiving)
{
    if (receiving->given == receiving->filled)
        return;
    grpc_slice_buffer_add(receiving->plain,
                          grpc_slice_sub(receiving->slice,
                                         (size_t)(receiving->given - receiving->start),
                                         (size_t)(receiving->filled - receiving->start)));
    receiving->given = receiving->filled;
}

static void drop_slice(struct receiving *receiving)
{
    if (receiving->start == NULL)
        return;
    give_plain(receiving);
    grpc_slice_unref(receiving->slice);
    receiving->start = receiving->given = receiving->filled = receiving->read = receiving->end =
        NULL;
}

static void take_slice(struct receiving *receiving)
{
    drop_slice(receiving);
    receiving->slice = grpc_slice_buffer_take_first(receiving->records);
    receiving->start = receiving->given = receiving->filled = receiving->read =
        GRPC_SLICE_START_PTR(receiving->slice);
    receiving->end = receiving->start + GRPC_SLICE_LENGTH(receiving->slice);
}

static size_t on_receive(void *owner, uint8_t *ret_bytes, size_t count)
{
    struct receiving *receiving = &((struct protector *)owner)->receiving;
    while (receiving->read == receiving->end && receiving->records->count > 0)
        take_slice(receiving);
    size_t there = (size_t)(receiving->end - receiving->read);
    size_t bytes = count < there ? count : there;
    if (bytes == 0)
        return 0;
    memcpy(ret_bytes, receiving->read, bytes);
    receiving->read += bytes;
    return bytes;
}

static void report_record(struct protector *protector, struct slice plain)
{
    if (protector->answered)
        accepted_answered(protector->accepted);
    accepted_brought(protector->accepted, plain);
}

/* A record lies decrypted where it lay encrypted; one that began in an earlier slice, and has no
 * room in this one, gets a slice of its own. */
static enum err receive_record(struct protector *protector, size_t bytes)
{
    struct receiving *receiving = &protector->receiving;
    uint8_t *place = receiving->filled;
    enum err err;
    grpc_slice own = grpc_empty_slice();
    if ((size_t)(receiving->read - receiving->filled) >= bytes) {
        receiving->filled += bytes;
        err = tls_records_read(protector->records, place, bytes);
    } else {
        give_plain(receiving);
        own = grpc_slice_malloc(bytes);
        place = GRPC_SLICE_START_PTR(own);
        err = tls_records_read(protector->records, place, bytes);
        grpc_slice_buffer_add(receiving->plain, own);
    }
    if (err == ERR_OK && protector->accepted != NULL)
        report_record(protector, (struct slice){place, bytes});
    return err;
}

static enum err receive_records(struct protector *protector)
{
    for (;;) {
        size_t bytes;
        TRY(tls_records_next(protector->records, &bytes));
        if (bytes == 0)
            return ERR_OK;
        TRY(receive_record(protector, bytes));
    }
}

static int unprotect(struct protector *protector, grpc_slice_buffer *records,
                     grpc_slice_buffer *plain, int *ret_wanted_min)
{
    thread_lock(&protector->lock);
    protector->receiving = (struct receiving){.records = records, .plain = plain};
    receiving_now = protector;
    enum err err = receive_records(protector);
    receiving_now = NULL;
    drop_slice(&protector->receiving);
    grpc_slice_buffer_reset_and_unref(records);
    thread_unlock(&protector->lock);
    if (ret_wanted_min != NULL)
        *ret_wanted_min = 1;
    return err == ERR_OK ? TSI_OK : TSI_PROTOCOL_FAILURE;
}

/* ---- Its life ---- */

static void destroy(struct protector *protector)
{
    /* The library has let the last other thread leave, which the thread sanitizer does not see. */
    thread_lock(&protector->lock);
    tls_records_free(protector->records);
    close_sent(protector);
    grpc_slice_buffer_destroy(&protector->sent);
    thread_unlock(&protector->lock);
    thread_mutex_release(&protector->lock);
    free(protector);
}

static int frame_bytes_max(struct protector *protector, size_t *ret_bytes)
{
    (void)protector;
    *ret_bytes = TLS_RECORD_BYTES_MAX;
    return TSI_OK;
}

static struct protector *protector_new(void *connection)
{
    static const struct protector_functions functions = {protect, unprotect, destroy,
                                                         frame_bytes_max};
    static const struct tls_records_events events = {on_send, on_receive, TLS_KEY_RECORDS};
    struct protector *protector = calloc(1, sizeof *protector);
    if (protector == NULL)
        return NULL;
    thread_mutex_init(&protector->lock);
    thread_lock(&protector->lock); /* the threads to come see what is written here */
    protector->functions = &functions;
    grpc_slice_buffer_init(&protector->sent);
    protector->records = tls_records_new(connection, &events, protector);
    thread_unlock(&protector->lock);
    if (protector->records != NULL)
        return protector;
    destroy(protector);
    return NULL;
}

int rpc_protector_kind(const struct handshake_result *result, int *ret_kind)
{
    int (*library_kind)(const struct handshake_result *of, int *ret);
    library_function(KIND_NAME, &library_kind);
    int error = library_kind(result, ret_kind);
    if (error == TSI_OK && *ret_kind == KIND_COPYING && inside_is_known())
        *ret_kind = KIND_SLICES;
    return error;
}

int rpc_protector_create(const struct handshake_result *result, size_t *frame_bytes_max,
                         struct protector **ret_protector)
{
    int (*create_copying)(const struct handshake_result *of, size_t *bytes_max,
                          struct copying_protector **ret);
    void (*destroy_copying)(struct copying_protector * copying);
    if (!inside_is_known()) {
        int (*library_create)(const struct handshake_result *of, size_t *bytes_max,
                              struct protector **ret);
        library_function(CREATE_NAME, &library_create);
        return library_create(result, frame_bytes_max, ret_protector);
    }
    library_function(CREATE_COPYING_NAME, &create_copying);
    library_function(DESTROY_COPYING_NAME, &destroy_copying);
    struct copying_protector *copying;
    int error = create_copying(result, frame_bytes_max, &copying);
    if (error != TSI_OK)
        return error;
    *ret_protector = protector_new(copying->connection);
    destroy_copying(copying);
    return *ret_protector != NULL ? TSI_OK : TSI_OUT_OF_RESOURCES;
}
