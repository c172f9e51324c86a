/* Addresses as users write them. */
#include "common/rpc/rpc.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool host_is_loopback(const char *host)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcmp(host, "localhost") == 0;
}

static bool port_valid(const char *port)
{
    size_t digits = strspn(port, "0123456789");
    return digits >= 1 && digits <= 5 && port[digits] == 0 && atol(port) <= 65535;
}

enum err rpc_address_host(const char *address, char ret_host[static RPC_HOST_BYTES],
                          struct reason *reason)
{
    const char *colon = strrchr(address, ':');
    size_t bytes = colon == NULL ? 0 : (size_t)(colon - address);
    bool bracketed = bytes > 2 && address[0] == '[' && address[bytes - 1] == ']';
    if (bracketed)
        bytes -= 2;
    const char *host = address + bracketed, *never = bracketed ? "[]" : "[]:";
    if (bytes == 0 || bytes >= RPC_HOST_BYTES || !port_valid(colon + 1) ||
        strcspn(host, never) < bytes)
        return reason_set(reason, ERR_INVALID, "\"%.100s\": not an address (host:port, [::1]:port)",
                          address);
    memcpy(ret_host, host, bytes);
    ret_host[bytes] = 0;
    return ERR_OK;
}

enum err rpc_address_check(const char *address, bool loopback_only, struct reason *reason)
{
    char host[RPC_HOST_BYTES];
    TRY(rpc_address_host(address, host, reason));
    if (loopback_only && !host_is_loopback(host))
        return reason_set(reason, ERR_INVALID,
                          "%s: not a loopback address; without TLS (--insecure) only localhost, "
                          "127.0.0.1 and ::1 are allowed",
                          host);
    return ERR_OK;
}

void rpc_address_canonical(const char *address, char ret_address[static RPC_ADDRESS_BYTES])
{
    char host[RPC_HOST_BYTES], shortest[INET6_ADDRSTRLEN];
    struct in6_addr six;
    bool is_six = rpc_address_host(address, host, NULL) == ERR_OK &&
                  inet_pton(AF_INET6, host, &six) == 1 &&
                  inet_ntop(AF_INET6, &six, shortest, sizeof shortest) != NULL;
    if (is_six)
        snprintf(ret_address, RPC_ADDRESS_BYTES, "[%s]%s", shortest, strrchr(address, ':'));
    else
        snprintf(ret_address, RPC_ADDRESS_BYTES, "%s", address);
}

enum err rpc_address_of(const char *address, unsigned port, char *ret_address, size_t bytes,
                        struct reason *reason)
{
    const char *colon = strrchr(address, ':');
    bool any = colon != NULL && atol(colon + 1) == 0;
    int host = any ? (int)(colon - address) : (int)strlen(address);
    int written = any ? snprintf(ret_address, bytes, "%.*s:%u", host, address, port)
                      : snprintf(ret_address, bytes, "%s", address);
    return written < (int)bytes
               ? ERR_OK
               : reason_set(reason, ERR_INVALID, "an address is at most %zu bytes long", bytes - 1);
}
