/* Two starts of one name. */
#include "server/coordinator/rivals.h"

#include "server/coordinator/send.h"

static void ask(struct coordinator *coordinator, uint64_t now_ms, struct server_entry *server,
                uint64_t rival_boot)
{
    server->rival_boot = rival_boot;
    server->rival_until_ms = now_ms + coordinator->settings.lease_ms / 2;
    server->lives = false;
    send_command(coordinator, server, SERVER_ASK);
}

enum err rivals_judge(struct coordinator *coordinator, uint64_t now_ms,
                      const struct server_report *hello, struct reason *reason)
{
    struct server_entry *server = servers_named(&coordinator->servers, hello->hello.name);
    if (server == NULL || server->link == 0 || server->boot == hello->boot)
        return ERR_OK;
    bool asked = server->rival_boot == hello->boot;
    if (!asked)
        ask(coordinator, now_ms, server, hello->boot);
    if (!server->lives && now_ms < server->rival_until_ms)
        return reason_set(reason, ERR_BUSY,
                          "a server %s of %s is connected, and is asked whether it lives",
                          server->name, server->address);
    bool lives = server->lives;
    server->rival_boot = 0;
    server->lives = false;
    if (!lives)
        return ERR_OK;
    effects_log(&coordinator->effects, true,
                "server refused  server=%s address=%s err=%s connected=%s next=it ends",
                server->name, hello->hello.address, err_name(ERR_NAME_TAKEN), server->address);
    return reason_set(reason, ERR_NAME_TAKEN,
                      "a server %s of %s is connected and answers: each server needs a name of "
                      "its own (--name)",
                      server->name, server->address);
}

void rivals_note_answer(struct server_entry *server)
{
    server->lives = server->rival_boot != 0;
}
