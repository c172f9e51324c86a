/* The coordinator's list of its members' and servers' streams. Main thread. */
#ifndef ROOST_SERVER_CONTROL_CONNECTIONS_H
#define ROOST_SERVER_CONTROL_CONNECTIONS_H

#include "common/id_table.h"
#include "server/connection.h"
#include "server/coordinator/coordinator.h"

struct connections {
    struct id_table by_member;
    size_t member_count, server_count;
    struct connection **members, **servers;
};

enum err connections_init(struct connections *connections) MUST_USE; /* ERR_NOMEM */
void connections_release(struct connections *connections);           /* streams are ended */

/* Takes a reference; no connection of the member is listed yet. A server's id may become known
 * later. ERR_BUSY: COORDINATOR_MEMBERS_MAX or WIRE_SERVERS_MAX are listed. */
enum err connections_add(struct connections *connections, struct connection *connection,
                         uint64_t id) MUST_USE;
/* Takes the connection off the list and drops the reference; nothing happens when it is not
 * listed. */
void connections_remove(struct connections *connections, struct connection *connection);
struct connection *connections_member(const struct connections *connections,
                                      uint64_t member); /* NULL: not there */
struct connection *connections_server(const struct connections *connections, uint64_t link);
/* A server's stream whose end no event says; NULL: there is none. */
struct connection *connections_closed_server(const struct connections *connections);
/* Ends the stream for that reason, and takes the connection off the list. */
void connections_send_away(struct connections *connections, struct connection *connection,
                           enum err err, const char *why);

/* To all members. A member whose stream is full gets the next notice; one whose stream is closed is
 * about to be lost. */
/* To that member, if it is there. */
void connections_notice_one(const struct connections *connections, uint64_t member,
                            const struct member_notice *notice);
void connections_notice(const struct connections *connections, const struct member_notice *notice);
/* A command must not be lost. When it cannot be sent, the stream is ended, and over the server's
 * next stream the coordinator sends all that the server misses. */
void connections_command(const struct connection *server, const struct server_command *command);

#endif
