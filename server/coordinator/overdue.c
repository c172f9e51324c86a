/* Commands whose answer is late. */
#include "server/coordinator/overdue.h"

#include "server/coordinator/generation.h"
#include "server/coordinator/moves.h"
#include "server/coordinator/send.h"

/* Of a server that is connected. */
static enum server_awaited awaited_of(const struct run *run, const struct server_entry *server)
{
    if (server->link == 0 || !run_active(run) || run_gathers(run))
        return SERVER_AWAITED_NOTHING;
    if (server->state == SERVER_IS_INVITED)
        return SERVER_AWAITED_JOINS;
    if (server->state == SERVER_PREPARES)
        return SERVER_AWAITED_READY;
    bool late = server->state == SERVER_SERVES && run->steps.committed && !server->acknowledged;
    return late ? SERVER_AWAITED_COMMITTED : SERVER_AWAITED_NOTHING;
}

void overdue_note(struct coordinator *coordinator, uint64_t now_ms)
{
    uint64_t due_ms = now_ms + coordinator->settings.lease_ms;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        struct server_entry *server = &coordinator->servers.list[i];
        enum server_awaited awaited = awaited_of(&coordinator->run, server);
        if (servers_await(server, awaited, due_ms) && awaited != SERVER_AWAITED_NOTHING)
            run_due(coordinator, due_ms);
    }
}

static void send_again(struct coordinator *coordinator, struct server_entry *server)
{
    static const char *const names[] = {
        [SERVER_AWAITED_READY] = "prepare",
        [SERVER_AWAITED_JOINS] = "prepare",
        [SERVER_AWAITED_COMMITTED] = "commit",
    };
    effects_log(&coordinator->effects, true,
                "server does not answer  server=%s command=%s next=again", server->name,
                names[server->awaited]);
    if (server->awaited == SERVER_AWAITED_READY)
        generation_prepare_again(coordinator, server);
    else if (server->awaited == SERVER_AWAITED_JOINS)
        moves_invite_again(coordinator, server);
    else
        send_commit(coordinator, server);
}

void overdue_send(struct coordinator *coordinator, uint64_t now_ms)
{
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        struct server_entry *server = &coordinator->servers.list[i];
        if (server->awaited == SERVER_AWAITED_NOTHING || now_ms < server->awaited_until_ms ||
            server->awaited != awaited_of(&coordinator->run, server))
            continue;
        send_again(coordinator, server);
        servers_await_anew(server);
    }
}

uint64_t overdue_due_ms(const struct coordinator *coordinator)
{
    uint64_t due_ms = UINT64_MAX;
    for (uint32_t i = 0; i < coordinator->servers.count; i++) {
        const struct server_entry *server = &coordinator->servers.list[i];
        if (server->awaited != SERVER_AWAITED_NOTHING && server->awaited_until_ms < due_ms)
            due_ms = server->awaited_until_ms;
    }
    return due_ms;
}
