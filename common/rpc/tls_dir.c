/* A certificate directory: its files read, checked and made. The certificates themselves: tls.c. */
#include "common/file.h"
#include "common/rpc/tls.h"
#include "common/scoped.h"
#include "common/thread.h"

#include <string.h>

enum {
    DAY_S = 86400,
    CERTIFICATE_DAYS = 30,
    CA_DAYS = 3650,
    LOCK_REST_NS = 20000000,
    LOCK_RESTS = 250 /* 5 s: longer than a folder of many machines takes */
};

static void secret_release(struct buf *secret)
{
    if (secret->data != NULL)
        explicit_bzero(secret->data, secret->capacity);
    buf_release(secret);
}

struct tls_path {
    char text[TLS_PATH_BYTES_MAX];
};

static enum err path_of(const char *dir, const char *name, const char *ending,
                        struct tls_path *ret_path, struct reason *reason)
{
    int bytes = snprintf(ret_path->text, sizeof ret_path->text, "%s/%s%s", dir, name, ending);
    if (bytes < 0 || (size_t)bytes >= sizeof ret_path->text)
        return reason_set(reason, ERR_INVALID, "%.100s...: path of certificates is too long", dir);
    return ERR_OK;
}

/* What a file of certificates that cannot be read means: none of these reads better the next time.
 */
static enum err unread(enum err err)
{
    bool never = err == ERR_NOT_FOUND || err == ERR_MALFORMED || err == ERR_INVALID;
    return never ? ERR_UNTRUSTED : err;
}

/* The content of a PEM file, with a 0 behind it. ERR_UNTRUSTED: it is missing, a folder, too long.
 */
static enum err pem_read(const char *path, struct buf *ret_pem, struct reason *reason)
{
    scoped(secret_release) struct buf pem = {0};
    struct reason why = {0};
    enum err err = file_read(path, TLS_PEM_BYTES_MAX, &pem, &why);
    if (err != ERR_OK)
        return reason_set(reason, unread(err), "%.400s%s", why.text,
                          err == ERR_NOT_FOUND ? "; certificates are made by: roost cert" : "");
    TRY(buf_append(&pem, "", 1));
    pem.bytes--;
    *ret_pem = buf_detach(&pem);
    return ERR_OK;
}

/* Who reads the list or the CA and writes it anew is alone in the directory meanwhile. */
static enum err dir_claim(const char *dir, struct file_claim *ret_claim, struct reason *reason)
{
    struct tls_path path;
    enum err err;
    TRY(path_of(dir, "lock", "", &path, reason));
    for (unsigned rests = 0;
         (err = file_claim_take(path.text, false, ret_claim, reason)) == ERR_EXISTS &&
         rests < LOCK_RESTS;
         rests++)
        thread_rest(LOCK_REST_NS);
    if (err != ERR_EXISTS)
        return err;
    return reason_set(reason, ERR_BUSY,
                      "%s: another roost cert works in that folder; try again when it has ended",
                      path.text);
}

static enum err key_write(const char *path, const struct buf *key, struct reason *reason)
{
    return file_write_atomic(&file_ops_real, path, 0600, buf_slice(key), reason);
}

static enum err certificate_write(const char *path, const struct buf *certificate,
                                  struct reason *reason)
{
    return file_write_public(path, buf_slice(certificate), reason);
}

/* The key of a machine's other users is nobody's proof. Groups may read it: some systems hand out
 * secrets that way. */
static enum err key_check(const char *path, struct reason *reason)
{
    struct file_info info = {0};
    enum { OTHERS = 07 };
    if (file_stat(path, &info, NULL) == ERR_OK && (info.mode & OTHERS) != 0)
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s: everybody on this machine may read or write this key (mode %04o); "
                          "chmod 600 it, or make a new one (roost cert)",
                          path, info.mode);
    return ERR_OK; /* reading it gives a better reason */
}

/* The folder of a role's files: `dir` itself, or, where certificates are made, the one in it. */
static enum err folder_of(const char *dir, enum tls_role role, struct tls_path *ret_folder,
                          struct reason *reason)
{
    struct tls_path inner, file;
    struct file_info info;
    TRY(path_of(dir, tls_role_name(role), "", &inner, reason));
    TRY(path_of(inner.text, tls_role_name(role), ".crt", &file, reason));
    bool is_inner = file_stat(file.text, &info, NULL) == ERR_OK;
    *ret_folder = inner;
    if (!is_inner)
        ret_folder->text[strlen(dir)] = 0;
    return ERR_OK;
}

enum err tls_identity_read(const char *dir, enum tls_role role, int64_t now_s,
                           struct tls_identity *ret_identity, struct reason *reason)
{
    check(role != TLS_ROLE_NONE);
    struct tls_path folder, ca_path, path, key_path, list;
    TRY(folder_of(dir, role, &folder, reason));
    dir = folder.text;
    TRY(path_of(dir, "revoked", "", &list, reason));
    TRY(path_of(dir, "ca", ".crt", &ca_path, reason));
    TRY(path_of(dir, tls_role_name(role), ".crt", &path, reason));
    TRY(path_of(dir, tls_role_name(role), ".key", &key_path, reason));
    scoped(tls_identity_release) struct tls_identity identity = {0};
    memcpy(identity.path, path.text, sizeof path.text);
    memcpy(identity.revoked, list.text, sizeof list.text);
    struct file_info info = {0};
    ignore(file_stat(path.text, &info, NULL)); /* reading it gives a better reason */
    identity.modified_ns = info.modified_ns;
    TRY(pem_read(ca_path.text, &identity.ca, reason));
    TRY(pem_read(path.text, &identity.certificate, reason));
    TRY(pem_read(key_path.text, &identity.key, reason));
    TRY(key_check(key_path.text, reason));
    struct tls_expected expected = {
        .ca_path = ca_path.text, .key_path = key_path.text, .role = role, .now_s = now_s};
    TRY(tls_identity_check(&identity, &expected, reason));
    *ret_identity = identity;
    identity = (struct tls_identity){0};
    return ERR_OK;
}

struct tls_identity tls_identity_names(const struct tls_identity *identity)
{
    struct tls_identity names = *identity;
    names.ca = names.certificate = names.key = (struct buf){0};
    return names;
}

bool tls_identity_renewed(const struct tls_identity *identity, int64_t now_s,
                          struct tls_identity *ret_identity)
{
    struct file_info info;
    const char *end = strrchr(identity->path, '/');
    if (identity->modified_ns == 0 || end == NULL ||
        file_stat(identity->path, &info, NULL) != ERR_OK ||
        info.modified_ns == identity->modified_ns)
        return false;
    char dir[TLS_PATH_BYTES_MAX] = {0};
    memcpy(dir, identity->path, (size_t)(end - identity->path));
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    struct reason reason;
    if (tls_identity_read(dir, identity->holder.role, now_s, &renewed, &reason) != ERR_OK ||
        strcmp(renewed.holder.cluster, identity->holder.cluster) != 0)
        return false;
    *ret_identity = renewed;
    renewed = (struct tls_identity){0};
    return true;
}

bool tls_identity_watch(struct tls_identity *shown, int64_t now_s, int64_t *warned_s,
                        struct reason *ret_sentence)
{
    scoped(tls_identity_release) struct tls_identity renewed = {0};
    if (tls_identity_renewed(shown, now_s, &renewed))
        *shown = tls_identity_names(&renewed);
    return tls_warning_is_due(shown->not_after_s, now_s, warned_s) &&
           tls_identity_ends_soon(shown, now_s, ret_sentence);
}

enum { REVOKED_BYTES_MAX = TLS_REVOKED_MAX * 160 };

enum err tls_revoked_read(const char *path, struct tls_revoked *revoked, bool *ret_news,
                          struct reason *reason)
{
    struct file_info info = {0};
    *ret_news = false;
    enum err err = file_stat(path, &info, reason);
    if (err == ERR_NOT_FOUND)
        return ERR_OK; /* a list that is gone revokes what it did */
    TRY(err);
    /* A file system's clock may stand still for milliseconds. */
    if (info.modified_ns == revoked->modified_ns && info.bytes == revoked->bytes)
        return ERR_OK;
    scoped(buf_release) struct buf text = {0};
    TRY(file_read(path, REVOKED_BYTES_MAX, &text, reason));
    TRY(tls_revoked_parse(buf_slice(&text), path, revoked, reason));
    revoked->modified_ns = info.modified_ns;
    revoked->bytes = info.bytes;
    *ret_news = true;
    return ERR_OK;
}

/* The servers' folders get the list as well. */
static enum err give_revoked(const char *dir, struct slice text, struct reason *reason)
{
    scoped(file_names_release) struct file_names names = {0};
    size_t bytes = strlen(tls_role_name(TLS_ROLE_SERVER));
    TRY(file_list(dir, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        const char *name = names.names[i];
        struct tls_path folder, list;
        struct file_info info;
        if (strncmp(name, tls_role_name(TLS_ROLE_SERVER), bytes) != 0 ||
            (name[bytes] != 0 && name[bytes] != '-'))
            continue;
        TRY(path_of(dir, name, "", &folder, reason));
        TRY(path_of(folder.text, "revoked", "", &list, reason));
        if (file_stat(folder.text, &info, NULL) == ERR_OK && info.kind == FILE_FOLDER)
            TRY(file_write_public(list.text, text, reason));
    }
    return ERR_OK;
}

static bool revoked_has(const struct tls_revoked *revoked, uint64_t certificate)
{
    for (uint32_t i = 0; i < revoked->count; i++)
        if (revoked->certificates[i] == certificate)
            return true;
    return false;
}

/* Adds the line to the list in *text, unless the certificate has one there. Who edits a list may end
 * it without a newline. A daemon refuses a list as a whole, so what comes out is judged as it will. */
static enum err revoked_add(struct slice line, const char *path, struct buf *text,
                            struct reason *reason)
{
    struct tls_revoked list = {0}, added = {0};
    TRY(tls_revoked_parse(buf_slice(text), path, &list, reason));
    TRY(tls_revoked_parse(line, path, &added, reason));
    if (revoked_has(&list, added.certificates[0]))
        return ERR_OK;
    if (text->bytes > 0 && text->data[text->bytes - 1] != '\n')
        TRY(buf_append(text, "\n", 1));
    TRY(buf_append(text, line.data, line.bytes));
    if (text->bytes > REVOKED_BYTES_MAX)
        return reason_set(reason, ERR_UNTRUSTED,
                          "%s: would be longer than %d bytes; remove lines of certificates that "
                          "have expired",
                          path, REVOKED_BYTES_MAX);
    return tls_revoked_parse(buf_slice(text), path, &list, reason);
}

/* A line for another CA's certificate would revoke nothing. */
static enum err issued_here(const char *dir, struct slice certificate, const char *path,
                            struct reason *reason)
{
    struct tls_path ca_path;
    scoped(buf_release) struct buf ca = {0};
    bool issued;
    TRY(path_of(dir, "ca", ".crt", &ca_path, reason));
    TRY(pem_read(ca_path.text, &ca, reason));
    const struct tls_issuance issuance = {
        .certificate = certificate, .ca = buf_slice(&ca), .path = path, .ca_path = ca_path.text};
    TRY(tls_issued(&issuance, &issued, reason));
    if (issued)
        return ERR_OK;
    return reason_set(reason, ERR_UNTRUSTED,
                      "%.160s is not of the CA in %.160s; --dir names the folder where it was made",
                      path, ca_path.text);
}

enum err tls_revoke(const char *dir, const char *path, int64_t now_s, struct reason *reason)
{
    struct tls_path list;
    struct reason why = {0};
    scoped(file_claim_release) struct file_claim claim = {0};
    scoped(buf_release) struct buf text = {0}, certificate = {0}, line = {0};
    TRY(path_of(dir, "revoked", "", &list, reason));
    TRY(pem_read(path, &certificate, reason));
    TRY(issued_here(dir, buf_slice(&certificate), path, reason));
    TRY(dir_claim(dir, &claim, reason));
    enum err err = file_read(list.text, REVOKED_BYTES_MAX, &text, reason);
    if (err != ERR_NOT_FOUND)
        TRY(err);
    TRY(tls_revoked_line(buf_slice(&certificate), path, now_s, &line, reason));
    err = revoked_add(buf_slice(&line), list.text, &text, &why);
    if (err != ERR_OK)
        return reason_set(reason, err, "%.160s is not revoked: %.300s", path,
                          reason_text(err, &why));
    TRY(file_write_public(list.text, buf_slice(&text), reason));
    return give_revoked(dir, buf_slice(&text), reason);
}

struct authority {
    struct buf certificate, key;
    char cluster[TLS_NAME_BYTES_MAX + 1];
};

static void authority_release(struct authority *authority)
{
    buf_release(&authority->certificate);
    secret_release(&authority->key);
}

/* Of a new CA. */
static const char *cluster_of(const struct tls_certificates *wanted)
{
    return wanted->cluster != NULL ? wanted->cluster : "roost";
}

static enum err authority_create(const struct tls_path *path, const struct tls_path *key_path,
                                 const struct tls_certificates *wanted, struct authority *authority,
                                 struct reason *reason)
{
    const char *cluster = cluster_of(wanted);
    int64_t valid_s = wanted->ca_valid_s != 0 ? wanted->ca_valid_s : (int64_t)CA_DAYS * DAY_S;
    TRY(tls_ca_create(cluster, wanted->now_s, valid_s, &authority->certificate, &authority->key,
                      reason));
    TRY(key_write(key_path->text, &authority->key, reason));
    return certificate_write(path->text, &authority->certificate, reason);
}

static enum err file_there(const char *path, bool *ret_there, struct reason *reason)
{
    struct file_info info;
    enum err err = file_stat(path, &info, reason);
    *ret_there = err == ERR_OK;
    return err == ERR_NOT_FOUND ? ERR_OK : err;
}

/* The directory's CA, made when there is none. */
static enum err authority_open(const char *dir, const struct tls_certificates *wanted,
                               struct authority *authority, struct reason *reason)
{
    struct tls_path path, key_path;
    TRY(path_of(dir, "ca", ".crt", &path, reason));
    TRY(path_of(dir, "ca", ".key", &key_path, reason));
    bool there = false, key_there = false;
    TRY(file_there(path.text, &there, reason));
    TRY(file_there(key_path.text, &key_there, reason));
    if (there && !key_there)
        return reason_set(reason, ERR_INVALID,
                          "%s: missing; certificates are made where the CA's key lies",
                          key_path.text);
    if (there) {
        TRY(pem_read(path.text, &authority->certificate, reason));
        TRY(pem_read(key_path.text, &authority->key, reason));
        TRY(key_check(key_path.text, reason));
    } else { /* a key alone is left of one who did not finish */
        TRY(authority_create(&path, &key_path, wanted, authority, reason));
    }
    TRY(tls_ca_cluster(buf_slice(&authority->certificate), path.text, authority->cluster, reason));
    if (wanted->cluster != NULL && strcmp(wanted->cluster, authority->cluster) != 0)
        return reason_set(reason, ERR_INVALID, "%s: is the CA of cluster \"%s\", not of \"%.80s\"",
                          path.text, authority->cluster, wanted->cluster);
    return ERR_OK;
}

/* The hosts that the certificate at `path` names already. A file that holds no certificate is made
 * anew. A certificate with a name that no host can have is refused: without that name, or with a part
 * of it, the new one would be for other hosts than the old one. */
static enum err hosts_before(const char *path, struct tls_hosts *ret_hosts, struct reason *reason)
{
    scoped(buf_release) struct buf before = {0};
    struct reason why = {0};
    *ret_hosts = (struct tls_hosts){0};
    enum err err = file_read(path, TLS_PEM_BYTES_MAX, &before, reason);
    if (err != ERR_OK)
        return err == ERR_NOT_FOUND ? ERR_OK : err;
    err = tls_hosts_of(buf_slice(&before), ret_hosts, &why);
    if (err == ERR_INVALID)
        return reason_set(reason, err,
                          "%s: %.200s; remove that file, and name its hosts anew (--host)", path,
                          why.text);
    return err == ERR_UNTRUSTED ? ERR_OK : err;
}

/* The hosts that are wanted, and those that the certificate at `path` names already. */
static enum err hosts_join(const char *path, const struct tls_certificates *wanted,
                           struct tls_hosts *ret_hosts, struct reason *reason)
{
    TRY(hosts_before(path, ret_hosts, reason));
    for (size_t i = 0; i < wanted->host_count; i++)
        TRY(tls_hosts_add(ret_hosts, wanted->hosts[i], reason));
    return ERR_OK;
}

static enum err name_copy(char ret_name[static TLS_NAME_BYTES_MAX + 1], const char *name,
                          struct reason *reason)
{
    int bytes = snprintf(ret_name, TLS_NAME_BYTES_MAX + 1, "%s", name);
    if (bytes < 0 || bytes > TLS_NAME_BYTES_MAX)
        return reason_set(reason, ERR_INVALID, "name \"%.80s...\": longer than %d bytes", name,
                          TLS_NAME_BYTES_MAX);
    return ERR_OK;
}

/* With the hosts that are wanted alone. */
static enum err request_of(const struct tls_certificates *wanted, enum tls_role role,
                           const char *cluster, struct tls_request *ret_request,
                           struct reason *reason)
{
    const char *name = wanted->name != NULL ? wanted->name : tls_role_name(role);
    *ret_request = (struct tls_request){
        .holder.role = role,
        .hosts = wanted->hosts,
        .host_count = wanted->host_count,
        .now_s = wanted->now_s,
        .valid_s = wanted->valid_s != 0 ? wanted->valid_s : (int64_t)CERTIFICATE_DAYS * DAY_S};
    TRY(name_copy(ret_request->holder.cluster, cluster, reason));
    return name_copy(ret_request->holder.name, name, reason);
}

/* Before anything is made. Where there is one of each role, the server's has all that can be wrong. */
static enum err wanted_check(const struct tls_certificates *wanted, struct reason *reason)
{
    struct tls_request request;
    enum tls_role role = wanted->role != TLS_ROLE_NONE ? wanted->role : TLS_ROLE_SERVER;
    TRY(request_of(wanted, role, cluster_of(wanted), &request, reason));
    return tls_request_check(&request, reason);
}

/* A new server needs the list, if there is one. */
static enum err give_list(const char *dir, const char *list, struct reason *reason)
{
    scoped(buf_release) struct buf revoked = {0};
    enum err err = file_read(list, REVOKED_BYTES_MAX, &revoked, reason);
    if (err != ERR_OK)
        return err == ERR_NOT_FOUND ? ERR_OK : err;
    return give_revoked(dir, buf_slice(&revoked), reason);
}

/* A folder for that machine: ca.crt, ROLE.crt, ROLE.key, and the list that a server needs. */
static enum err certificate_make(const char *dir, const struct authority *authority,
                                 enum tls_role role, const struct tls_certificates *wanted,
                                 struct reason *reason)
{
    struct tls_path folder, list, ca_path, path, key_path;
    struct tls_hosts hosts;
    scoped(buf_release) struct buf ending = {0};
    if (wanted->name != NULL)
        TRY(buf_printf(&ending, "-%s", wanted->name));
    TRY(path_of(dir, tls_role_name(role), ending.data != NULL ? (const char *)ending.data : "",
                &folder, reason));
    TRY(path_of(dir, "revoked", "", &list, reason));
    TRY(path_of(folder.text, "ca", ".crt", &ca_path, reason));
    TRY(path_of(folder.text, tls_role_name(role), ".crt", &path, reason));
    TRY(path_of(folder.text, tls_role_name(role), ".key", &key_path, reason));
    TRY(hosts_join(path.text, wanted, &hosts, reason));
    const char *names[TLS_HOSTS_MAX];
    for (size_t i = 0; i < hosts.count; i++)
        names[i] = hosts.names[i];
    struct tls_request request;
    TRY(request_of(wanted, role, authority->cluster, &request, reason));
    request.hosts = names;
    request.host_count = hosts.count;
    scoped(buf_release) struct buf certificate = {0};
    scoped(secret_release) struct buf key = {0};
    TRY(tls_issue(buf_slice(&authority->certificate), buf_slice(&authority->key), &request,
                  &certificate, &key, reason));
    TRY(file_make_public_dirs(folder.text, reason));
    TRY(certificate_write(ca_path.text, &authority->certificate, reason));
    if (role == TLS_ROLE_SERVER)
        TRY(give_list(dir, list.text, reason));
    TRY(key_write(key_path.text, &key, reason));
    return certificate_write(path.text, &certificate, reason);
}

/* The role of a machine's folder (worker-w7), and the machine's name. TLS_ROLE_NONE: it is none. */
static enum tls_role machine_of(const char *folder, const char **ret_name)
{
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++) {
        const char *word = tls_role_name((enum tls_role)role);
        size_t bytes = strlen(word);
        if (strncmp(folder, word, bytes) != 0 || folder[bytes] != '-')
            continue;
        *ret_name = folder + bytes + 1;
        return (enum tls_role)role;
    }
    return TLS_ROLE_NONE;
}

/* Whether the folder has the certificate of the machine that it is named after, not revoked. */
static enum err machine_is_due(const char *folder, const struct tls_certificates *machine,
                               const struct tls_revoked *revoked, bool *ret_due,
                               struct reason *reason)
{
    struct tls_path path;
    struct tls_revoked own = {0};
    scoped(buf_release) struct buf certificate = {0}, line = {0}, holder = {0};
    const char *role = tls_role_name(machine->role);
    *ret_due = false;
    TRY(path_of(folder, role, ".crt", &path, reason));
    if (file_stat(path.text, &(struct file_info){0}, NULL) != ERR_OK)
        return ERR_OK;
    TRY(pem_read(path.text, &certificate, reason));
    TRY(tls_revoked_line(buf_slice(&certificate), path.text, machine->now_s, &line, reason));
    TRY(tls_revoked_parse(buf_slice(&line), path.text, &own, reason));
    TRY(buf_printf(&holder, " %s/%s ", role, machine->name));
    *ret_due = strstr((const char *)line.data, (const char *)holder.data) != NULL &&
               !revoked_has(revoked, own.certificates[0]);
    return ERR_OK;
}

static enum err machine_renew(const char *dir, const char *name, const struct authority *authority,
                              const struct tls_certificates *wanted,
                              const struct tls_revoked *revoked, struct reason *reason)
{
    struct tls_path folder;
    struct tls_certificates machine = *wanted;
    bool due;
    machine.host_count = 0; /* those that are wanted are none of its */
    machine.role = machine_of(name, &machine.name);
    if (machine.role == TLS_ROLE_NONE)
        return ERR_OK;
    TRY(path_of(dir, name, "", &folder, reason));
    TRY(machine_is_due(folder.text, &machine, revoked, &due, reason));
    return due ? certificate_make(dir, authority, machine.role, &machine, reason) : ERR_OK;
}

/* Those that are there, each; the first error. */
static enum err machines_renew(const char *dir, const struct authority *authority,
                               const struct tls_certificates *wanted, struct reason *reason)
{
    struct tls_path list;
    struct tls_revoked revoked = {0};
    scoped(file_names_release) struct file_names names = {0};
    enum err first = ERR_OK;
    bool news;
    TRY(path_of(dir, "revoked", "", &list, reason));
    TRY(tls_revoked_read(list.text, &revoked, &news, reason));
    TRY(file_list(dir, &names, reason));
    for (size_t i = 0; i < names.count; i++) {
        struct reason why = {0};
        enum err err = machine_renew(dir, names.names[i], authority, wanted, &revoked, &why);
        if (err != ERR_OK && first == ERR_OK)
            first = reason_set(reason, err, "%s", reason_text(err, &why));
    }
    return first;
}

enum err tls_make_cluster_certificates(const char *dir, const struct tls_certificates *wanted,
                                       struct reason *reason)
{
    TRY(wanted_check(wanted, reason));
    TRY(file_make_public_dirs(dir, reason));
    scoped(file_claim_release) struct file_claim claim = {0};
    scoped(authority_release) struct authority authority = {0};
    TRY(dir_claim(dir, &claim, reason));
    TRY(authority_open(dir, wanted, &authority, reason));
    if (wanted->role != TLS_ROLE_NONE)
        return certificate_make(dir, &authority, wanted->role, wanted, reason);
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++)
        TRY(certificate_make(dir, &authority, (enum tls_role)role, wanted, reason));
    return wanted->name == NULL ? machines_renew(dir, &authority, wanted, reason) : ERR_OK;
}
