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

struct server_entry *servers_named(const struct servers *servers, const char *name)
{
    for (uint32_t i = 0; i < servers->count; i++)
        if (strcmp(servers->list[i].name, name) == 0)
            return &servers->list[i];
    return NULL;
}

enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older)
{
    struct server_entry *server = servers_named(servers, hello->hello.name);
    if (server == NULL && servers->count == WIRE_SERVERS_MAX)
        return ERR_BUSY;
    if (server != NULL && server->link != 0 && hello->boot < server->boot)
        return ERR_OLD_BOOT; /* P3: an earlier start's, late */
    if (server == NULL) {
        server = &servers->list[servers->count++];
        *server = (struct server_entry){.map_index = SERVERS_NONE};
        memcpy(server->name, hello->hello.name, sizeof server->name);
    }
    memcpy(server->address, hello->hello.address, sizeof server->address);
    server->boot = hello->boot;
    if (server->drain_boot != 0 && server->drain_boot != hello->boot)
        servers_drain_over(server); /* it has ended, and is back */
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

struct server_entry *servers_of_map(const struct servers *servers, uint32_t map_index)
{
    check(map_index < servers->chosen_count);
    uint32_t place = servers->chosen[map_index];
    return place == SERVERS_NONE ? NULL : &servers->list[place];
}

struct server_entry *servers_active(const struct servers *servers, uint32_t map_index)
{
    struct server_entry *server = servers_of_map(servers, map_index);
    return server == NULL || server->emptied ? NULL : server;
}

bool servers_connected(const struct servers *servers)
{
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        if (server != NULL && server->link == 0)
            return false;
    }
    return servers->chosen_count > 0;
}

bool servers_ready(const struct servers *servers)
{
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        if (server != NULL && !server->ready)
            return false;
    }
    return true;
}

bool servers_is_available(const struct server_entry *server)
{
    return server->link != 0 && !server->draining && server->left_boot != server->boot;
}

uint32_t servers_available(const struct servers *servers, const struct server_entry *without)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++)
        count += &servers->list[i] != without && servers_is_available(&servers->list[i]) ? 1 : 0;
    return count;
}

/* The wanted server whose name is the lowest above `name` (NULL: the lowest of all). */
static struct server_entry *next_by_name(struct servers *servers, const char *name)
{
    struct server_entry *next = NULL;
    for (uint32_t i = 0; i < servers->count; i++) {
        struct server_entry *server = &servers->list[i];
        if (!server->wanted || (name != NULL && strcmp(server->name, name) <= 0))
            continue;
        if (next == NULL || strcmp(server->name, next->name) < 0)
            next = server;
    }
    return next;
}

uint32_t servers_choose(struct servers *servers)
{
    for (uint32_t i = 0; i < servers->count; i++)
        servers->list[i].wanted = servers_is_available(&servers->list[i]);
    return servers_choose_wanted(servers);
}

uint32_t servers_choose_wanted(struct servers *servers)
{
    servers_unchoose(servers);
    for (struct server_entry *server = next_by_name(servers, NULL); server != NULL;
         server = next_by_name(servers, server->name)) {
        bool chosen = servers_choose_one(servers, server);
        check(chosen); /* there are as many places as names */
    }
    return servers->chosen_count;
}

bool servers_choose_one(struct servers *servers, struct server_entry *server)
{
    uint32_t place = 0;
    while (place < servers->chosen_count && servers->chosen[place] != SERVERS_NONE)
        place++;
    if (place == WIRE_SERVERS_MAX)
        return false;
    if (place == servers->chosen_count)
        servers->chosen_count++;
    servers->chosen[place] = (uint32_t)(server - servers->list);
    server->map_index = place;
    server->acknowledged = true; /* no commit was for it yet */
    server->emptied = false;
    return true;
}

void servers_unchoose_one(struct servers *servers, struct server_entry *server)
{
    servers->chosen[server->map_index] = SERVERS_NONE;
    server->map_index = SERVERS_NONE;
    server->ready = server->emptied = false;
    while (servers->chosen_count > 0 && servers->chosen[servers->chosen_count - 1] == SERVERS_NONE)
        servers->chosen_count--;
}

void servers_unchoose(struct servers *servers)
{
    for (uint32_t i = servers->chosen_count; i-- > 0;)
        if (i < servers->chosen_count && servers_of_map(servers, i) != NULL)
            servers_unchoose_one(servers, servers_of_map(servers, i));
}

void servers_drain_over(struct server_entry *server)
{
    server->draining = false;
    server->drain_boot = 0;
}
