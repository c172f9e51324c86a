/* Certificates: the cluster's CA, the holders that certificates name, and their files (OpenSSL 3).
 *
 * A certificate names its holder in one URI of its subject alternative names,
 * `spiffe://CLUSTER/ROLE/NAME`; the role decides which methods it may call (common/rpc/rpc.h).
 * Servers also carry the host names and addresses that workers reach them by. Keys are ECDSA P-256.
 *
 * A file `revoked`, beside a server's certificate or where its settings say, names certificates that
 * it takes no longer: a line for each, which begins with its number. It is read again when it
 * changes.
 *
 * Where certificates are made, a directory holds ca.crt, ca.key, and a folder for each role, or for
 * a role's machine (server, worker-w7). Such a folder goes to that machine, and holds what it
 * needs: ca.crt, ROLE.crt and ROLE.key. Key files have mode 0600. All functions may
 * be called from any thread; the clock is an argument (Unix seconds). */
#ifndef ROOST_COMMON_RPC_TLS_H
#define ROOST_COMMON_RPC_TLS_H

#include "common/digest.h"

#include <stdbool.h>
#include <stdint.h>

enum tls_role {
    TLS_ROLE_NONE,
    TLS_ROLE_SERVER,
    TLS_ROLE_WORKER,
    TLS_ROLE_OPERATOR,
    TLS_ROLE_COUNT
};

/* Once per process, before all else of OpenSSL, whose first call decides what happens at the end:
 * nothing of it is freed when the process exits. Idle connections keep none of their 16 KiB record
 * buffers, 4 KiB less for each at a server as tests/bench/bench_idle sees it, and no slower. */
void tls_process_init(void);

/* Role masks: `TLS_ROLE_BIT(TLS_ROLE_WORKER) | TLS_ROLE_BIT(TLS_ROLE_OPERATOR)`. */
#define TLS_ROLE_BIT(role) (1u << (role))
#define TLS_ROLES_ALL                                                                              \
    (TLS_ROLE_BIT(TLS_ROLE_SERVER) | TLS_ROLE_BIT(TLS_ROLE_WORKER) |                               \
     TLS_ROLE_BIT(TLS_ROLE_OPERATOR))

const char *tls_role_name(enum tls_role role); /* "server"; "none" */
/* The role of a name; TLS_ROLE_NONE when there is no such role. */
enum tls_role tls_role_of_name(const char *name);

enum {
    TLS_NAME_BYTES_MAX = 64, /* cluster, and holder's name: letters, digits, `.`, `_`, `-` */
    TLS_HOST_BYTES_MAX = 253,
    TLS_HOSTS_MAX = 32,        /* host names and addresses of one certificate */
    TLS_PEM_BYTES_MAX = 65536, /* of one file */
    TLS_PATH_BYTES_MAX = 512
};

/* Workers talk to each other by this name alone, which is the address of nothing (RFC 2606). */
#define TLS_WORKER_HOST "worker.roost.invalid"

/* The holder of a certificate, as the certificate names it. */
struct tls_holder {
    enum tls_role role;
    char cluster[TLS_NAME_BYTES_MAX + 1];
    char name[TLS_NAME_BYTES_MAX + 1];
};

/* The holder that `uri` (spiffe://CLUSTER/ROLE/NAME) names. ERR_UNTRUSTED: it is none of ours. */
enum err tls_holder_of_uri(const char *uri, struct tls_holder *ret_holder,
                           struct reason *reason) MUST_USE;

/* Whom a peer's certificate names, which certificate it is, a digest of its number, never 0, when
 * it ends, and the SHA-256 of all of it. */
struct tls_peer {
    struct tls_holder holder;
    uint64_t certificate;
    int64_t ends_s;
    struct digest shown;
};

/* What happens on a connection of this process that is watched. Any thread, but of one connection
 * one after another. */
struct tls_observer {
    /* The peer has proved that it has the key of its certificate. */
    void (*proved)(void *owner, const struct tls_peer *peer);
    void (*received)(void *owner, size_t bytes);
    /* The peer renews its keys (RFC 8446 4.6.3). False: nothing more is read of it. */
    bool (*rekeyed)(void *owner);
    void (*gone)(void *owner); /* the last event */
};
/* The next connection that this thread makes is watched; `observer` lives as long as it. False from
 * tls_watch_end(): none was made. */
void tls_watch_begin(const struct tls_observer *observer, void *owner);
bool tls_watch_end(void);

enum { TLS_REVOKED_MAX = 4096 };
struct tls_revoked {
    uint32_t count;
    uint64_t modified_ns, bytes;            /* its file, when it was read; 0: there was none */
    uint64_t certificates[TLS_REVOKED_MAX]; /* as in struct tls_peer */
};
/* A certificate (others between it and its CA may follow it), and the CA that should have issued it
 * (PEM); their files for sentences. */
struct tls_issuance {
    struct slice certificate, ca;
    const char *path, *ca_path;
};
/* Has the CA, or one of those in its file, issued it, as tls_identity_check() judges that? Times do
 * not matter. ERR_UNTRUSTED: one of them is no certificate. */
enum err tls_issued(const struct tls_issuance *issuance, bool *ret_issued,
                    struct reason *reason) MUST_USE;
/* The line that revokes a certificate (PEM, at `path`), appended to *ret_line. ERR_UNTRUSTED: it is
 * none of ours, or its number is longer than RFC 5280 allows. */
enum err tls_revoked_line(struct slice certificate, const char *path, int64_t now_s,
                          struct buf *ret_line, struct reason *reason) MUST_USE;
/* ERR_UNTRUSTED: a line that is none, or too many; nothing is written. */
enum err tls_revoked_parse(struct slice text, const char *path, struct tls_revoked *ret_revoked,
                           struct reason *reason) MUST_USE;
/* Reads the list at `path` if it is another file than *revoked is from. *ret_news: it was read. On an
 * error, and when there is none, *revoked stays as it was. */
enum err tls_revoked_read(const char *path, struct tls_revoked *revoked, bool *ret_news,
                          struct reason *reason) MUST_USE;
/* Adds the certificate in the file `path` to the list in `dir`, once, and copies the list to the
 * servers' folders there. It may have ended. ERR_UNTRUSTED: the CA in `dir` has not issued it, or
 * is missing; or the list has a wrong line, or is full, so that no daemon would read it, and
 * `reason` says which line; ERR_BUSY: as below. Nothing is written then. */
enum err tls_revoke(const char *dir, const char *path, int64_t now_s,
                    struct reason *reason) MUST_USE;

/* One certificate with its key and its CA, checked. PEM texts end in a 0 behind their bytes. */
struct tls_identity {
    struct tls_holder holder;
    struct buf ca, certificate, key; /* PEM */
    int64_t not_before_s, not_after_s;
    char path[TLS_PATH_BYTES_MAX];    /* of the certificate, for sentences */
    uint64_t modified_ns;             /* that file, when it was read; 0: it was not */
    char revoked[TLS_PATH_BYTES_MAX]; /* the list that a server obeys; "": none */
};

/* The identity in `dir`, or in its folder of that name, for `role`, checked: files there and
 * readable, certificate valid at `now_s`, issued by that directory's CA, key fits, role is the one
 * asked for. ERR_UNTRUSTED: a file is missing or not PEM; everybody may read the key; expired, of
 * another CA, another role, or the key does not fit. ERR_NOT_VALID_YET: the clock may be behind, and
 * time alone mends that. `reason` names the file and the remedy. */
enum err tls_identity_read(const char *dir, enum tls_role role, int64_t now_s,
                           struct tls_identity *ret_identity, struct reason *reason) MUST_USE;
void tls_identity_release(struct tls_identity *identity);
/* A copy without the texts: all but what a handshake needs. */
struct tls_identity tls_identity_names(const struct tls_identity *identity);
/* Whether the certificate that `identity` was read from has another one in its place, which is
 * valid at `now_s` and of the same cluster and role: then it is in *ret_identity. The texts of
 * `identity` are not used. Certificates are short-lived, so both ends ask for each connection. */
bool tls_identity_renewed(const struct tls_identity *identity, int64_t now_s,
                          struct tls_identity *ret_identity) MUST_USE;

struct tls_expected {
    const char *ca_path, *key_path; /* for sentences */
    enum tls_role role;
    int64_t now_s;
};
/* The check of tls_identity_read(), of an identity whose texts and path are filled; fills the rest.
 */
enum err tls_identity_check(struct tls_identity *identity, const struct tls_expected *expected,
                            struct reason *reason) MUST_USE;

bool tls_ends_soon(int64_t ends_s, int64_t now_s); /* within a week; 0: no certificate, never */
/* Whether to warn of a certificate that ends then: within its last week, once a day. *warned_s: when
 * that was last; 0: never. */
bool tls_warning_is_due(int64_t ends_s, int64_t now_s, int64_t *warned_s);
/* Whether the certificate ends within a week; *ret_sentence says when, and what to do. */
bool tls_identity_ends_soon(const struct tls_identity *identity, int64_t now_s,
                            struct reason *ret_sentence);
/* Whether to warn now of the certificate that lies where *shown was read from, whose names are in
 * *shown afterwards. */
bool tls_identity_watch(struct tls_identity *shown, int64_t now_s, int64_t *warned_s,
                        struct reason *ret_sentence);
/* ERR_UNTRUSTED: the certificate has ended before `now_s`; ERR_NOT_VALID_YET. `reason` names the
 * file. */
enum err tls_identity_valid(const struct tls_identity *identity, int64_t now_s,
                            struct reason *reason) MUST_USE;

/* Whether workers take the certificate of a worker that they call: it is for servers, too, and names
 * TLS_WORKER_HOST. What `identity` was read from may have been renewed: then the newer one is judged.
 * ERR_UNTRUSTED: `reason` names the file and the remedy. */
enum err tls_identity_serves(const struct tls_identity *identity, int64_t now_s,
                             struct reason *reason) MUST_USE;

/* A new CA for `cluster`, valid from five minutes before `now_s` for `valid_s` seconds: PEM. */
enum err tls_ca_create(const char *cluster, int64_t now_s, int64_t valid_s,
                       struct buf *ret_certificate, struct buf *ret_key,
                       struct reason *reason) MUST_USE;

/* The content of a new certificate. */
struct tls_request {
    struct tls_holder holder; /* the role may not be NONE */
    const char *const *hosts; /* a server's extra names and addresses; borrowed. localhost,
                               * 127.0.0.1 and ::1 are always added to a server's */
    size_t host_count;
    int64_t now_s;   /* valid from five minutes before */
    int64_t valid_s; /* for so many seconds; cut at the CA's own end */
};

/* ERR_INVALID: a name, host or validity that cannot be one. */
enum err tls_request_check(const struct tls_request *request, struct reason *reason) MUST_USE;

/* A certificate and its key, issued by the CA `ca` with `ca_key` (PEM). Servers may be both ends of
 * a connection, workers too, but under TLS_WORKER_HOST alone; operators only its client end.
 * ERR_INVALID: a name or host that cannot be one; ERR_UNTRUSTED: the CA does not parse, or its time
 * is over; ERR_NOT_VALID_YET: its time has not come. */
enum err tls_issue(struct slice ca, struct slice ca_key, const struct tls_request *request,
                   struct buf *ret_certificate, struct buf *ret_key,
                   struct reason *reason) MUST_USE;

/* The SHA-256 of a certificate (PEM; the first one), as in struct tls_peer. ERR_UNTRUSTED: it is
 * none. */
enum err tls_certificate_digest(struct slice certificate, struct digest *ret_digest) MUST_USE;

/* The names and addresses of a server's certificate, without those that each has. ERR_UNTRUSTED: it
 * is no certificate. ERR_INVALID: one of them can be no host (a byte 0), or they are too many. */
struct tls_hosts {
    size_t count;
    char names[TLS_HOSTS_MAX][TLS_HOST_BYTES_MAX + 1];
};
enum err tls_hosts_of(struct slice certificate, struct tls_hosts *ret_hosts,
                      struct reason *reason) MUST_USE;
/* Once. ERR_INVALID: too many, or too long. */
enum err tls_hosts_add(struct tls_hosts *hosts, const char *host, struct reason *reason) MUST_USE;

/* The cluster that a CA's certificate names; `path` for sentences. ERR_UNTRUSTED: it names none. */
enum err tls_ca_cluster(struct slice ca, const char *path,
                        char ret_cluster[static TLS_NAME_BYTES_MAX + 1],
                        struct reason *reason) MUST_USE;

struct tls_certificates {
    const char *cluster;      /* NULL: "roost"; must be the stored CA's when there is one */
    enum tls_role role;       /* TLS_ROLE_NONE: one of each role, and of each machine there */
    const char *name;         /* NULL: the role's name, and its folder */
    const char *const *hosts; /* servers: extra names and addresses */
    size_t host_count;
    int64_t now_s;
    int64_t valid_s;    /* of certificates; 0: 30 days */
    int64_t ca_valid_s; /* of a new CA; 0: ten years */
};

/* The work of `roost cert`: makes `dir` and its CA where they are missing, then issues the
 * certificates that are asked for, each into its folder, ROLE or ROLE-NAME, replacing such files; a
 * server's keeps the hosts that it had. Where neither a role nor a name is asked for, machines'
 * folders that are there get theirs anew as well, but for certificates in the list `revoked`. Every
 * file is written whole or not at all;
 * keys have mode 0600. ERR_DENIED, ERR_IO, ERR_NO_SPACE: the directory; ERR_INVALID: a name, host
 * or validity, or a CA without its key: nothing is made; ERR_BUSY: another process works in the
 * directory, for seconds by now. */
enum err tls_make_cluster_certificates(const char *dir, const struct tls_certificates *wanted,
                                       struct reason *reason) MUST_USE;

#endif
