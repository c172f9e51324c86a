/* A certificate directory on disk. The clock is 2026-01-01. */
#include "common/file.h"
#include "common/rpc/tls.h"
#include "tests/unit/folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <openssl/pem.h>

enum { NOW_S = 1767225600 };

struct dir_fixture {
    void *folder;
    char path[300]; /* two folders below, not there yet */
    bool made;      /* but for the tests that begin with certificates in it */
    struct tls_identity identity;
    struct reason reason;
};

static void file_of(const struct dir_fixture *f, const char *name, char ret_path[static 320])
{
    snprintf(ret_path, 320, "%s/%s", f->path, name);
}

static void make(const struct dir_fixture *f, const struct tls_certificates *wanted)
{
    struct reason reason = {0};
    if (tls_make_cluster_certificates(f->path, wanted, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
}

static bool is_there(const struct dir_fixture *f, const char *name)
{
    char path[320];
    file_of(f, name, path);
    return access(path, F_OK) == 0;
}

static void dir_set_up(struct dir_fixture *f)
{
    assert_int_equal(folder_make(&f->folder), 0);
    snprintf(f->path, sizeof f->path, "%s", folder_path(&f->folder, "a/certs"));
    if (f->made)
        make(f, &(struct tls_certificates){.now_s = NOW_S});
}

static void dir_tear_down(struct dir_fixture *f)
{
    tls_identity_release(&f->identity);
    folder_remove(&f->folder);
}

static enum err read_worker(struct dir_fixture *f)
{
    return tls_identity_read(f->path, TLS_ROLE_WORKER, NOW_S, &f->identity, &f->reason);
}

TEST_F(one_call_makes_a_ca_and_a_certificate_of_each_role, dir, .made = true)
{
    for (unsigned role = TLS_ROLE_SERVER; role < TLS_ROLE_COUNT; role++) {
        scoped(tls_identity_release) struct tls_identity identity = {0};
        struct reason reason = {0};
        if (tls_identity_read(f->path, (enum tls_role)role, NOW_S, &identity, &reason) != ERR_OK)
            fail_msg("%s", reason.text);
        assert_string_equal(identity.holder.cluster, "roost");
        assert_string_equal(identity.holder.name, tls_role_name((enum tls_role)role));
        assert_int_equal(identity.not_after_s, NOW_S + 30 * 86400);
        assert_int_equal(strlen((const char *)identity.key.data), identity.key.bytes);
    }
    static const char *const keys[] = {"ca.key", "server/server.key", "worker/worker.key",
                                       "operator/operator.key"};
    for (size_t i = 0; i < 4; i++) {
        char path[320];
        struct stat info;
        file_of(f, keys[i], path);
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
}

/* The daemon's user reads the list `revoked`, in the folder where root has put it. */
TEST_F(modes_are_as_promised_whatever_the_umask_is, dir)
{
    static const struct {
        const char *name;
        unsigned mode;
    } rows[] = {{".", 0755},
                {"server", 0755},
                {"server/ca.crt", 0644},
                {"server/server.crt", 0644},
                {"server/server.key", 0600},
                {"server/revoked", 0644},
                {"server-ps3", 0755},
                {"server-ps3/revoked", 0644},
                {"ca.key", 0600},
                {"revoked", 0644}};
    char certificate[320], path[320];
    const struct tls_certificates all = {.now_s = NOW_S};
    const struct tls_certificates late = {.role = TLS_ROLE_SERVER, .name = "ps3", .now_s = NOW_S};
    file_of(f, "worker/worker.crt", certificate);
    mode_t before = umask(077);
    enum err err = tls_make_cluster_certificates(f->path, &all, &f->reason);
    enum err err_revoke = tls_revoke(f->path, certificate, NOW_S, &f->reason);
    enum err err_late = tls_make_cluster_certificates(f->path, &late, &f->reason);
    umask(before);
    assert_int_equal(err, ERR_OK);
    assert_int_equal(err_revoke, ERR_OK);
    assert_int_equal(err_late, ERR_OK);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct file_info info = {0};
        file_of(f, rows[i].name, path);
        assert_int_equal(file_stat(path, &info, NULL), ERR_OK);
        if (info.mode != rows[i].mode)
            fail_msg("%s has mode %04o", rows[i].name, info.mode);
    }
}

TEST_F(a_second_call_keeps_the_ca_and_replaces_what_is_asked_for, dir)
{
    make(f, &(struct tls_certificates){.cluster = "nest", .now_s = NOW_S});
    struct tls_identity before[2] = {0}, after[2] = {0};
    static const enum tls_role roles[] = {TLS_ROLE_SERVER, TLS_ROLE_WORKER};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(tls_identity_read(f->path, roles[i], NOW_S, &before[i], NULL), ERR_OK);
    make(f, &(struct tls_certificates){
                .role = TLS_ROLE_WORKER, .name = "w7", .now_s = NOW_S, .valid_s = 60});
    char folder[320]; /* of the machine: it needs nothing else, and has no other key */
    file_of(f, "worker-w7", folder);
    assert_int_equal(tls_identity_read(f->path, roles[0], NOW_S, &after[0], NULL), ERR_OK);
    assert_int_equal(tls_identity_read(folder, roles[1], NOW_S, &after[1], NULL), ERR_OK);
    scoped(file_names_release) struct file_names names = {0};
    assert_int_equal(file_list(folder, &names, NULL), ERR_OK);
    assert_int_equal(names.count, 3);
    assert_string_equal(before[0].certificate.data, after[0].certificate.data);
    assert_string_equal(before[1].ca.data, after[1].ca.data);
    assert_string_equal(after[1].holder.name, "w7");
    assert_string_equal(after[1].holder.cluster, "nest");
    assert_int_equal(after[1].not_after_s, NOW_S + 60);
    for (size_t i = 0; i < 2; i++) {
        tls_identity_release(&before[i]);
        tls_identity_release(&after[i]);
    }
    struct reason reason = {0};
    struct tls_certificates other = {.cluster = "other", .now_s = NOW_S};
    assert_int_equal(tls_make_cluster_certificates(f->path, &other, &reason), ERR_INVALID);
}

static void write_text(const struct dir_fixture *f, const char *name, const struct buf *text)
{
    char path[320];
    file_of(f, name, path);
    assert_int_equal(file_write_atomic(&file_ops_real, path, 0644, buf_slice(text), NULL), ERR_OK);
}

static struct buf text_of(const struct dir_fixture *f, const char *name)
{
    char path[320];
    struct buf text = {0};
    file_of(f, name, path);
    assert_int_equal(file_read(path, 1 << 20, &text, NULL), ERR_OK);
    return text;
}

/* An operator who adds a machine names that machine alone. */
TEST_F(a_servers_certificate_keeps_the_hosts_that_it_had, dir)
{
    static const char *const hosts[] = {"ps1.example", "10.0.0.7", "fd00::1"};
    scoped(buf_release) struct buf certificate = {0};
    struct tls_hosts found;
    char path[320];
    make(f, &(struct tls_certificates){.now_s = NOW_S, .hosts = hosts, .host_count = 2});
    make(f, &(struct tls_certificates){.now_s = NOW_S, .hosts = hosts + 2, .host_count = 1});
    make(f, &(struct tls_certificates){.now_s = NOW_S});
    file_of(f, "server/server.crt", path);
    assert_int_equal(file_read(path, TLS_PEM_BYTES_MAX, &certificate, NULL), ERR_OK);
    assert_int_equal(tls_hosts_of(buf_slice(&certificate), &found, NULL), ERR_OK);
    assert_int_equal(found.count, 3);
    for (size_t i = 0; i < 3; i++)
        assert_string_equal(found.names[i], hosts[i]);
}

/* The certificate in the file, with a byte 0 in the place of `character` in `host`; its signature is
 * wrong, then, which nobody asks about. */
static struct buf with_a_byte_0(const struct buf *pem, const char *host, char character)
{
    char *name, *header, *text;
    uint8_t *data;
    long bytes;
    struct buf changed = {0};
    BIO *in = BIO_new_mem_buf(pem->data, (int)pem->bytes), *out = BIO_new(BIO_s_mem());
    assert_int_equal(PEM_read_bio(in, &name, &header, &data, &bytes), 1);
    char *found = memmem(data, (size_t)bytes, host, strlen(host));
    assert_non_null(found);
    found[strchr(host, character) - host] = 0;
    assert_true(PEM_write_bio(out, name, header, data, bytes) > 0);
    size_t text_bytes = (size_t)BIO_get_mem_data(out, &text);
    assert_int_equal(buf_append(&changed, text, text_bytes), ERR_OK);
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(data);
    BIO_free(in);
    BIO_free(out);
    return changed;
}

TEST_F(a_servers_certificate_with_a_host_that_is_none_is_not_made_anew, dir)
{
    static const char *const hosts[] = {"ps1.example"};
    struct tls_certificates wanted = {.now_s = NOW_S, .hosts = hosts, .host_count = 1};
    make(f, &wanted);
    scoped(buf_release) struct buf before = text_of(f, "server/server.crt");
    scoped(buf_release) struct buf changed = with_a_byte_0(&before, hosts[0], '.');
    write_text(f, "server/server.crt", &changed);
    assert_int_equal(tls_make_cluster_certificates(f->path, &wanted, &f->reason), ERR_INVALID);
    assert_non_null(strstr(f->reason.text,
                           "/server/server.crt: one of its hosts is neither a name nor an address; "
                           "remove that file, and name its hosts anew (--host)"));
    scoped(buf_release) struct buf after = text_of(f, "server/server.crt");
    assert_int_equal(after.bytes, changed.bytes);
    assert_memory_equal(after.data, changed.data, changed.bytes);
    scoped(buf_release) struct buf damaged = {0};
    assert_int_equal(buf_printf(&damaged, "no PEM"), ERR_OK);
    write_text(f, "server/server.crt", &damaged);
    make(f, &wanted);
}

TEST_F(a_missing_file_is_named_and_what_to_do, dir)
{
    assert_int_equal(read_worker(f), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "/ca.crt"));
    assert_non_null(strstr(f->reason.text, "roost cert"));
    make(f, &(struct tls_certificates){.now_s = NOW_S});
    char path[320];
    file_of(f, "ca.key", path);
    assert_int_equal(unlink(path), 0);
    struct tls_certificates more = {.now_s = NOW_S};
    assert_int_equal(tls_make_cluster_certificates(f->path, &more, &f->reason), ERR_INVALID);
    assert_non_null(strstr(f->reason.text, "where the CA's key lies"));
    assert_int_equal(read_worker(f), ERR_OK); /* who only uses certificates needs no CA's key */
}

TEST_F(a_key_that_everybody_may_read_is_refused, dir, .made = true)
{
    char path[320];
    file_of(f, "worker/worker.key", path);
    assert_int_equal(chmod(path, 0644), 0);
    assert_int_equal(read_worker(f), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "chmod 600"));
    assert_int_equal(chmod(path, 0440), 0); /* as some systems hand out secrets */
    assert_int_equal(read_worker(f), ERR_OK);
}

/* It could make itself any role's certificate. */
TEST_F(a_ca_s_key_that_everybody_may_read_is_refused, dir, .made = true)
{
    struct tls_certificates more = {.role = TLS_ROLE_WORKER, .name = "w7", .now_s = NOW_S};
    char path[320];
    file_of(f, "ca.key", path);
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(tls_make_cluster_certificates(f->path, &more, &f->reason), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "/ca.key: everybody on this machine"));
    assert_int_equal(chmod(path, 0440), 0);
    assert_int_equal(tls_make_cluster_certificates(f->path, &more, &f->reason), ERR_OK);
}

TEST_F(a_week_before_its_end_a_certificate_is_reported, dir, .made = true)
{
    struct reason soon = {0};
    assert_int_equal(read_worker(f), ERR_OK);
    assert_false(tls_identity_ends_soon(&f->identity, NOW_S + 22 * 86400, &soon));
    assert_true(tls_identity_ends_soon(&f->identity, NOW_S + 23 * 86400, &soon));
    assert_non_null(strstr(soon.text, "worker.crt ends at "));
}

TEST(a_warning_comes_once_a_day_in_the_last_week)
{
    enum { DAY_S = 86400, HOUR_S = 3600, END_S = NOW_S + 30 * DAY_S };
    int64_t warned_s = 0;
    unsigned warnings = 0;
    assert_false(tls_warning_is_due(0, NOW_S, &warned_s)); /* there is none */
    for (int64_t now_s = NOW_S; now_s <= END_S; now_s += HOUR_S) {
        bool due = tls_warning_is_due(END_S, now_s, &warned_s);
        warnings += due;
        assert_true(!due || (END_S - now_s) % DAY_S == 0);
    }
    assert_int_equal(warnings, 8);
    assert_true(tls_warning_is_due(END_S, END_S - DAY_S, &warned_s)); /* the clock was put back */
}

TEST_F(the_certificate_that_lies_there_by_now_is_warned_of, dir, .made = true)
{
    enum { DAY_S = 86400 };
    struct reason soon = {0};
    int64_t warned_s = 0;
    assert_int_equal(read_worker(f), ERR_OK);
    struct tls_identity shown = tls_identity_names(&f->identity);
    assert_false(tls_identity_watch(&shown, NOW_S, &warned_s, &soon));
    assert_true(tls_identity_watch(&shown, NOW_S + 24 * DAY_S, &warned_s, &soon));
    assert_non_null(strstr(soon.text, "worker.crt ends at "));
    make(f, &(struct tls_certificates){.now_s = NOW_S + 25 * DAY_S});
    assert_false(tls_identity_watch(&shown, NOW_S + 26 * DAY_S, &warned_s, &soon));
    assert_int_equal(shown.not_after_s, NOW_S + 55 * DAY_S);
}

static enum err revoke_file(struct dir_fixture *f, const char *name)
{
    char certificate[320];
    file_of(f, name, certificate);
    return tls_revoke(f->path, certificate, NOW_S, &f->reason);
}

/* Somebody edited the list, and their editor does not end the last line. */
TEST_F(a_revoked_certificate_is_in_the_list, dir, .made = true)
{
    static struct tls_revoked revoked;
    bool news = true;
    struct reason reason = {0};
    char list[320];
    file_of(f, "server/revoked", list);
    assert_int_equal(tls_revoked_read(list, &revoked, &news, &reason), ERR_OK);
    assert_false(news);
    scoped(buf_release) struct buf by_hand = {0};
    assert_int_equal(buf_printf(&by_hand, "0102 worker/w5\naabb worker/old"), ERR_OK);
    write_text(f, "revoked", &by_hand);
    static const char *const names[] = {"worker/worker.crt", "operator/operator.crt"};
    for (uint32_t i = 0; i < 2; i++) {
        if (revoke_file(f, names[i]) != ERR_OK)
            fail_msg("%s", f->reason.text);
        assert_int_equal(tls_revoked_read(list, &revoked, &news, &reason), ERR_OK);
        assert_true(news);
        assert_int_equal(revoked.count, i + 3);
    }
    assert_int_equal(tls_revoked_read(list, &revoked, &news, &reason), ERR_OK);
    assert_false(news);
    const struct tls_revoked before = revoked;
    static const char bad[] = "0102 worker/w6\nworker/w7\n";
    assert_int_equal(file_write_atomic(&file_ops_real, list, 0644,
                                       (struct slice){(const uint8_t *)bad, sizeof bad - 1}, NULL),
                     ERR_OK);
    assert_int_equal(tls_revoked_read(list, &revoked, &news, &reason), ERR_UNTRUSTED);
    assert_non_null(strstr(reason.text, "line 2"));
    assert_memory_equal(&revoked, &before, sizeof before);
}

static struct tls_hosts hosts_of(const struct dir_fixture *f, const char *name)
{
    scoped(buf_release) struct buf certificate = text_of(f, name);
    struct tls_hosts hosts;
    assert_int_equal(tls_hosts_of(buf_slice(&certificate), &hosts, NULL), ERR_OK);
    return hosts;
}

static int64_t end_of(const struct dir_fixture *f, const char *folder, enum tls_role role,
                      const char *name)
{
    scoped(tls_identity_release) struct tls_identity identity = {0};
    struct reason reason = {0};
    char path[320];
    file_of(f, folder, path);
    if (tls_identity_read(path, role, NOW_S, &identity, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    assert_string_equal(identity.holder.name, name);
    return identity.not_after_s;
}

enum { LATER_S = 60 }; /* while the certificates of before are valid */

static void make_later(const struct dir_fixture *f, const char *host)
{
    make(f, &(struct tls_certificates){
                .now_s = NOW_S + LATER_S, .hosts = &host, .host_count = host != NULL ? 1 : 0});
}

TEST_F(certificates_of_machines_are_renewed_with_the_others, dir, .made = true)
{
    enum { END_S = NOW_S + LATER_S + 30 * 86400 };
    static const char *const host[] = {"ps2.example"};
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "w-7", .now_s = NOW_S});
    make(f,
         &(struct tls_certificates){
             .role = TLS_ROLE_SERVER, .name = "b", .now_s = NOW_S, .hosts = host, .host_count = 1});
    make_later(f, "ps3.example");
    assert_int_equal(end_of(f, "worker", TLS_ROLE_WORKER, "worker"), END_S);
    assert_int_equal(end_of(f, "worker-w-7", TLS_ROLE_WORKER, "w-7"), END_S);
    assert_int_equal(end_of(f, "server-b", TLS_ROLE_SERVER, "b"), END_S);
    struct tls_hosts own = hosts_of(f, "server-b/server.crt"),
                     added = hosts_of(f, "server/server.crt");
    assert_int_equal(own.count, 1); /* a new host is one of all servers' */
    assert_string_equal(own.names[0], host[0]);
    assert_int_equal(added.count, 1);
    assert_string_equal(added.names[0], "ps3.example");
}

TEST_F(a_revoked_machines_certificate_is_not_renewed, dir, .made = true)
{
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "a", .now_s = NOW_S});
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "b", .now_s = NOW_S});
    assert_int_equal(revoke_file(f, "worker-a/worker.crt"), ERR_OK);
    make_later(f, NULL);
    assert_int_equal(end_of(f, "worker-a", TLS_ROLE_WORKER, "a"), NOW_S + 30 * 86400);
    assert_int_equal(end_of(f, "worker-b", TLS_ROLE_WORKER, "b"), NOW_S + LATER_S + 30 * 86400);
}

/* A copy that was cut short. */
TEST_F(a_damaged_machines_folder_is_named_and_the_others_are_renewed, dir, .made = true)
{
    char path[320];
    const struct tls_certificates later = {.now_s = NOW_S + LATER_S};
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "a", .now_s = NOW_S});
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "b", .now_s = NOW_S});
    file_of(f, "worker-a/worker.crt", path);
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(tls_make_cluster_certificates(f->path, &later, &f->reason), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "worker-a/worker.crt"));
    assert_int_equal(end_of(f, "worker-b", TLS_ROLE_WORKER, "b"), NOW_S + LATER_S + 30 * 86400);
}

/* Somebody keeps a folder of before, and notes. */
TEST_F(a_folder_that_no_machine_has_is_left_alone, dir, .made = true)
{
    char from[320], to[320];
    scoped(buf_release) struct buf notes = {0};
    assert_int_equal(buf_printf(&notes, "copied in May"), ERR_OK);
    write_text(f, "server-notes", &notes);
    file_of(f, "worker", from);
    file_of(f, "worker-before", to);
    assert_int_equal(rename(from, to), 0);
    make_later(f, NULL);
    assert_int_equal(end_of(f, "worker-before", TLS_ROLE_WORKER, "worker"), NOW_S + 30 * 86400);
}

/* Who names one machine gets that one's. */
TEST_F(one_machines_certificate_renews_no_other, dir, .made = true)
{
    make(f, &(struct tls_certificates){.role = TLS_ROLE_WORKER, .name = "a", .now_s = NOW_S});
    make(f, &(struct tls_certificates){.name = "b", .now_s = NOW_S + LATER_S});
    assert_int_equal(end_of(f, "worker-a", TLS_ROLE_WORKER, "a"), NOW_S + 30 * 86400);
}

static enum err revoke_of_another_ca(struct dir_fixture *f)
{
    struct dir_fixture other = {0};
    char certificate[320];
    snprintf(other.path, sizeof other.path, "%s", folder_path(&f->folder, "other"));
    make(&other, &(struct tls_certificates){.now_s = NOW_S});
    file_of(&other, "worker/worker.crt", certificate);
    return tls_revoke(f->path, certificate, NOW_S, &f->reason);
}

/* Its line would revoke nothing, and the operator would take it for done. */
TEST_F(a_certificate_of_another_ca_is_not_revoked, dir, .made = true)
{
    assert_int_equal(revoke_of_another_ca(f), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "/other/worker/worker.crt is not of the CA in "));
    assert_non_null(
        strstr(f->reason.text, "/certs/ca.crt; --dir names the folder where it was made"));
    assert_false(is_there(f, "revoked"));
}

TEST_F(where_no_ca_is_nothing_is_revoked, dir)
{
    assert_int_equal(revoke_of_another_ca(f), ERR_UNTRUSTED);
    assert_non_null(strstr(f->reason.text, "/certs/ca.crt: "));
    assert_non_null(strstr(f->reason.text, "certificates are made by: roost cert"));
}

TEST_F(a_certificate_that_has_ended_can_be_revoked, dir, .made = true)
{
    char certificate[320];
    file_of(f, "worker/worker.crt", certificate);
    assert_int_equal(tls_revoke(f->path, certificate, NOW_S + 20 * 365 * INT64_C(86400), NULL),
                     ERR_OK);
    assert_true(is_there(f, "revoked"));
}

/* A CA in an empty folder would be one more that nobody asked for. */
TEST_F(what_is_refused_makes_no_ca, dir)
{
    static const char *const bad_host[] = {"a b"};
    char long_name[2 * TLS_NAME_BYTES_MAX] = {0};
    memset(long_name, 'n', sizeof long_name - 1);
    const struct tls_certificates rows[] = {
        {.hosts = bad_host, .host_count = 1},
        {.role = TLS_ROLE_SERVER, .hosts = bad_host, .host_count = 1},
        {.role = TLS_ROLE_WORKER, .name = "w/7"},
        {.name = long_name},
        {.cluster = "a/b"},
        {.cluster = long_name},
        {.valid_s = -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tls_certificates wanted = rows[i];
        wanted.now_s = NOW_S;
        assert_int_equal(tls_make_cluster_certificates(f->path, &wanted, &f->reason), ERR_INVALID);
        assert_false(is_there(f, ""));
    }
}

/* Again, since a server's folder may have had no room for the list. */
TEST_F(a_certificate_that_is_revoked_again_has_one_line, dir, .made = true)
{
    assert_int_equal(revoke_file(f, "worker/worker.crt"), ERR_OK);
    scoped(buf_release) struct buf before = text_of(f, "revoked");
    char list[320];
    file_of(f, "server/revoked", list);
    assert_int_equal(unlink(list), 0);
    assert_int_equal(revoke_file(f, "worker/worker.crt"), ERR_OK);
    scoped(buf_release) struct buf after = text_of(f, "revoked"),
                                   given = text_of(f, "server/revoked");
    assert_int_equal(after.bytes, before.bytes);
    assert_memory_equal(after.data, before.data, before.bytes);
    assert_int_equal(given.bytes, before.bytes);
}

/* A daemon refuses such a list as a whole: it would revoke nothing more. */
TEST_F(a_list_that_no_daemon_could_read_is_not_written, dir, .made = true)
{
    static const char damaged[] = "0102 worker/w6\nworker/w7\n";
    scoped(buf_release) struct buf full = {0}, lines = {0}, broad = {0};
    for (unsigned i = 0; i < TLS_REVOKED_MAX; i++)
        assert_int_equal(buf_printf(&full, "01%08x worker/w%u\n", i, i), ERR_OK);
    assert_int_equal(buf_append(&lines, damaged, sizeof damaged - 1), ERR_OK);
    /* one line, as long as a list may be */
    assert_int_equal(buf_printf(&broad, "0102 %*s\n", TLS_REVOKED_MAX * 160 - 6, "w6"), ERR_OK);
    const struct {
        const struct buf *list;
        const char *text;
    } rows[] = {
        {&full, "line 4097 is one too many"},
        {&lines, "/revoked: line 2 begins with no certificate's number"},
        {&broad, "/revoked: would be longer than 655360 bytes"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_text(f, "revoked", rows[i].list);
        assert_int_equal(revoke_file(f, "worker/worker.crt"), ERR_UNTRUSTED);
        assert_non_null(strstr(f->reason.text, "worker.crt is not revoked: "));
        assert_non_null(strstr(f->reason.text, rows[i].text));
        scoped(buf_release) struct buf after = text_of(f, "revoked");
        assert_int_equal(after.bytes, rows[i].list->bytes);
        assert_memory_equal(after.data, rows[i].list->data, after.bytes);
    }
}

/* A server without the list would take who is revoked. */
TEST_F(a_list_that_cannot_be_read_makes_no_server_without_one, dir, .made = true)
{
    scoped(buf_release) struct buf endless = {0};
    const struct tls_certificates added = {.role = TLS_ROLE_SERVER, .name = "b", .now_s = NOW_S};
    assert_int_equal(buf_printf(&endless, "%*s\n", TLS_REVOKED_MAX * 160, "01"), ERR_OK);
    write_text(f, "revoked", &endless);
    assert_int_equal(tls_make_cluster_certificates(f->path, &added, &f->reason), ERR_MALFORMED);
    assert_non_null(strstr(f->reason.text, "/revoked"));
    assert_false(is_there(f, "server-b/server.key"));
}

/* Another `roost cert` that works in the folder; it ends after so many waits of this one. */
static struct other_maker {
    struct file_claim claim;
    unsigned rests, rests_max; /* 0: it does not end */
} other;

void __wrap_thread_rest(uint64_t ns);

void __wrap_thread_rest(uint64_t ns)
{
    (void)ns;
    if (++other.rests == other.rests_max)
        file_claim_release(&other.claim);
}

static void other_begins(struct dir_fixture *f, unsigned rests_max)
{
    char path[320];
    file_of(f, "lock", path);
    other = (struct other_maker){.rests_max = rests_max};
    assert_int_equal(file_claim_take(path, false, &other.claim, NULL), ERR_OK);
}

/* Else one of two revocations, or of two CAs, is lost. */
TEST_F(one_at_a_time_works_in_the_folder, dir, .made = true)
{
    const struct tls_certificates later = {.now_s = NOW_S + LATER_S};
    other_begins(f, 0);
    assert_int_equal(revoke_file(f, "worker/worker.crt"), ERR_BUSY);
    assert_non_null(strstr(f->reason.text, "/certs/lock: another roost cert works in that folder"));
    assert_int_equal(tls_make_cluster_certificates(f->path, &later, &f->reason), ERR_BUSY);
    assert_false(is_there(f, "revoked"));
    assert_int_equal(end_of(f, "worker", TLS_ROLE_WORKER, "worker"), NOW_S + 30 * 86400);
    file_claim_release(&other.claim);
}

TEST_F(who_comes_second_waits_for_the_first, dir, .made = true)
{
    other_begins(f, 3);
    assert_int_equal(revoke_file(f, "worker/worker.crt"), ERR_OK);
    assert_int_equal(other.rests, 3);
    other_begins(f, 3);
    make_later(f, NULL);
    assert_int_equal(other.rests, 3);
}

TEST_F(a_file_that_is_no_certificate_is_named, dir, .made = true)
{
    char path[320];
    file_of(f, "worker/worker.crt", path);
    static uint8_t zeros[TLS_PEM_BYTES_MAX + 1];
    static const size_t sizes[] = {0, 10, TLS_PEM_BYTES_MAX, TLS_PEM_BYTES_MAX + 1};
    for (size_t i = 0; i < 4; i++) {
        struct slice bytes = {zeros, sizes[i]};
        assert_int_equal(file_write_atomic(&file_ops_real, path, 0644, bytes, NULL), ERR_OK);
        assert_int_equal(read_worker(f), ERR_UNTRUSTED);
        assert_non_null(strstr(f->reason.text, "worker.crt"));
    }
}
