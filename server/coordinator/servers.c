/* The daemons that the coordinator knows. */
#include "server/coordinator/servers.h"

#include <stdlib.h>
#include <string.h>

enum err servers_init(struct servers *servers)
{
    *servers = (struct servers){0};
    servers->list = calloc(WIRE_SERVERS_MAX, sizeof *servers->list);
    return servers->list == NULL ? ERR_NOMEM : ERR_OK;
}

void servers_release(struct servers *servers)
{
    free(servers->list);
    *servers = (struct servers){0};
}

static struct server_entry *find_name(struct servers *servers, const char *name)
{
    for (uint32_t i = 0; i < servers->count; i++)
        if (strcmp(servers->list[i].name, name) == 0)
            return &servers->list[i];
    return NULL;
}

enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older)
{
    struct server_entry *server = find_name(servers, hello->hello.name);
    if (server == NULL && servers->count == WIRE_SERVERS_MAX)
        return ERR_BUSY;
    if (server == NULL) {
        server = &servers->list[servers->count++];
        *server = (struct server_entry){.map_index = SERVERS_NONE};
        memcpy(server->name, hello->hello.name, sizeof server->name);
    }
    memcpy(server->address, hello->hello.address, sizeof server->address);
    server->boot = hello->boot;
    server->held_generation = hello->hello.generation;
    *ret_older = server->link;
    server->link = ++servers->links;
    *ret_server = server;
    return ERR_OK;
}

struct server_entry *servers_find(struct servers *servers, uint64_t link)
{
    if (link == 0)
        return NULL;
    for (uint32_t i = 0; i < servers->count; i++)
        if (servers->list[i].link == link)
            return &servers->list[i];
    return NULL;
}

struct server_entry *servers_of_map(struct servers *servers, uint32_t map_index)
{
    check(map_index < servers->chosen_count);
    return &servers->list[servers->chosen[map_index]];
}

uint32_t servers_connected(const struct servers *servers)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++)
        count += servers->list[i].link != 0 ? 1 : 0;
    return count;
}

/* The connected server whose name is the lowest above `name` (NULL: the lowest of all). */
static struct server_entry *next_by_name(struct servers *servers, const char *name)
{
    struct server_entry *next = NULL;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (server->link == 0 || (name != NULL && strcmp(server->name, name) <= 0))
            continue;
        if (next == NULL || strcmp(server->name, next->name) < 0)
            next = server;
    }
    return next;
}

uint32_t servers_choose(struct servers *servers)
{
    servers_unchoose(servers);
    for (struct server_entry *server = next_by_name(servers, NULL); server != NULL;
         server = next_by_name(servers, server->name)) {
        server->map_index = servers->chosen_count++;
        servers->chosen[server->map_index] = (uint32_t)(server - servers->list);
    }
    return servers->chosen_count;
}

void servers_unchoose(struct servers *servers)
{
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        servers_of_map(servers, i)->ready = false;
        servers_of_map(servers, i)->map_index = SERVERS_NONE;
    }
    servers->chosen_count = 0;
}
