/* What names certificates, by the first byte: a list of revoked ones, or the URI of a holder. A list
 * that is refused leaves the one before as it was; a holder has names that a certificate may have. */
#include "tests/fuzz/fuzz.h"

#include "common/rpc/tls.h"
#include "common/scoped.h"

#include <string.h>

static void fuzz_revoked(struct slice text)
{
    static struct tls_revoked before = {.count = 1, .certificates = {UINT64_MAX}}, revoked;
    struct reason reason = {.text = ""};
    revoked = before;
    if (tls_revoked_parse(text, "revoked", &revoked, &reason) != ERR_OK) {
        check(reason.text[0] != 0);
        check(memcmp(&before, &revoked, sizeof revoked) == 0);
        return;
    }
    check(revoked.count <= TLS_REVOKED_MAX && revoked.count <= text.bytes);
    for (uint32_t i = 0; i < revoked.count; i++)
        check(revoked.certificates[i] != 0);
}

static void check_name(const char *name)
{
    size_t bytes = strnlen(name, TLS_NAME_BYTES_MAX + 1);
    check(bytes > 0 && bytes <= TLS_NAME_BYTES_MAX);
    check(strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
          bytes);
}

static void fuzz_holder(struct slice text)
{
    scoped(buf_release) struct buf uri = {0}, printed = {0};
    struct tls_holder holder;
    struct reason reason = {.text = ""};
    check(buf_append(&uri, text.data, text.bytes) == ERR_OK);
    check(buf_append(&uri, "", 1) == ERR_OK);
    if (tls_holder_of_uri((const char *)uri.data, &holder, &reason) != ERR_OK) {
        check(reason.text[0] != 0);
        return;
    }
    check(holder.role > TLS_ROLE_NONE && holder.role < TLS_ROLE_COUNT);
    check_name(holder.cluster);
    check_name(holder.name);
    check(buf_printf(&printed, "spiffe://%s/%s/%s", holder.cluster, tls_role_name(holder.role),
                     holder.name) == ERR_OK);
    check(printed.bytes < uri.bytes && memcmp(printed.data, uri.data, printed.bytes) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    struct slice text = {data + 1, bytes - 1};
    if (data[0] % 2 == 0)
        fuzz_revoked(text);
    else
        fuzz_holder(text);
    return 0;
}
