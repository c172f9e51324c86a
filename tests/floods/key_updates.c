/* Keys of TLS that are renewed again and again (RFC 8446 4.6.3), which Python's library cannot ask
 * for; as flood.py is called:
 *
 *     key-updates HOST:PORT CERTS ROLE key_updates COUNT SECONDS
 *
 * One connection after another sends COUNT updates, each of which wants an answer that nobody
 * reads. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/ssl.h>

static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0"; /* and SETTINGS */

static void need(bool fine, const char *what)
{
    if (fine)
        return;
    fprintf(stderr, "key-updates: no %s\n", what);
    exit(1);
}

static SSL_CTX *context_of(const char *certs, const char *role)
{
    char certificate[512], key[512];
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    need(context != NULL, "memory");
    snprintf(certificate, sizeof certificate, "%s/%s/%s.crt", certs, role, role);
    snprintf(key, sizeof key, "%s/%s/%s.key", certs, role, role);
    need(SSL_CTX_use_certificate_chain_file(context, certificate) == 1, certificate);
    need(SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) == 1, key);
    need(SSL_CTX_set_alpn_protos(context, (const unsigned char *)"\2h2", 3) == 0, "protocol");
    return context;
}

static int connect_to(const char *address)
{
    char host[256];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    need(getaddrinfo(host, colon + 1, &hints, &found) == 0, "such address");
    int file = socket(found->ai_family, SOCK_STREAM, 0);
    need(connect(file, found->ai_addr, found->ai_addrlen) == 0, "connection");
    freeaddrinfo(found);
    return file;
}

/* The records of all updates, after a handshake over `file`; the SSL owns them. */
static SSL *make_updates(SSL_CTX *context, int file, unsigned count)
{
    SSL *connection = SSL_new(context);
    need(SSL_set_fd(connection, file) == 1 && SSL_connect(connection) == 1, "handshake");
    need(SSL_write(connection, hello, sizeof hello) == sizeof hello, "beginning");
    SSL_set0_wbio(connection, BIO_new(BIO_s_mem()));
    for (unsigned i = 0; i < count; i++)
        need(SSL_key_update(connection, SSL_KEY_UPDATE_REQUESTED) == 1 &&
                 SSL_do_handshake(connection) == 1,
             "update");
    return connection;
}

/* Until all is sent and the peer has read it or has closed the connection: returns whether it has
 * closed it. */
static bool send_all(int file, const char *bytes, size_t count)
{
    char answers[65536];
    for (size_t sent = 0; sent < count;) {
        ssize_t more = send(file, bytes + sent, count - sent, MSG_NOSIGNAL);
        if (more <= 0)
            return true;
        sent += (size_t)more;
    }
    (void)shutdown(file, SHUT_WR); /* now it closes, too */
    ssize_t got;
    while ((got = recv(file, answers, sizeof answers, 0)) > 0) {
    }
    return got < 0;
}

int main(int count, char **words)
{
    need(count == 7, "HOST:PORT CERTS ROLE key_updates COUNT SECONDS");
    SSL_CTX *context = context_of(words[2], words[3]);
    unsigned updates = (unsigned)atoi(words[5]), connections = 0, closed = 0;
    time_t until = time(NULL) + atoi(words[6]);
    printf("begins\n");
    fflush(stdout);
    while (time(NULL) < until) {
        char *bytes;
        int file = connect_to(words[1]);
        SSL *connection = make_updates(context, file, updates);
        long all = BIO_get_mem_data(SSL_get_wbio(connection), &bytes);
        closed += send_all(file, bytes, (size_t)all);
        connections++;
        SSL_free(connection);
        (void)close(file);
    }
    SSL_CTX_free(context);
    printf("{\"connections\": %u, \"closed\": %u}\n", connections, closed);
    return 0;
}
