/* The daemons that the coordinator knows. */
#include "server/coordinator/servers.h"

#include <stdlib.h>
#include <string.h>

static const bool may_follow[SERVER_STATES][SERVER_STATES] = {
    [SERVER_IS_IDLE] = {[SERVER_IS_INVITED] = true, [SERVER_IS_CHOSEN] = true},
    [SERVER_IS_INVITED] = {[SERVER_IS_IDLE] = true,
                           [SERVER_IS_INVITED] = true, /* once more */
                           [SERVER_HAS_JOINED] = true,
                           [SERVER_IS_CHOSEN] = true},
    [SERVER_HAS_JOINED] = {[SERVER_IS_IDLE] = true,
                           [SERVER_HAS_JOINED] = true, /* reported again */
                           [SERVER_IS_CHOSEN] = true,  /* P12: with a new generation */
                           [SERVER_IS_NEW] = true},
    [SERVER_IS_CHOSEN] = {[SERVER_IS_IDLE] = true,
                          [SERVER_PREPARES] = true,
                          [SERVER_SERVES] = true}, /* P7: adopted */
    [SERVER_PREPARES] = {[SERVER_IS_IDLE] = true,
                         [SERVER_PREPARES] = true,
                         [SERVER_SERVES] = true,
                         [SERVER_HAS_LOST] = true},
    [SERVER_SERVES] = {[SERVER_IS_IDLE] = true,
                       [SERVER_PREPARES] = true, /* P10: a rewind */
                       [SERVER_SERVES] = true,   /* reported again */
                       [SERVER_IS_EMPTIED] = true,
                       [SERVER_HAS_LOST] = true},
    [SERVER_IS_NEW] = {[SERVER_IS_IDLE] = true, [SERVER_HAS_JOINED] = true, [SERVER_SERVES] = true},
    [SERVER_IS_EMPTIED] = {[SERVER_IS_IDLE] = true, [SERVER_IS_EMPTIED] = true},
    [SERVER_HAS_LOST] =
        {[SERVER_IS_IDLE] = true, [SERVER_PREPARES] = true, [SERVER_HAS_LOST] = true},
};

static void enter(struct server_entry *server, enum server_state state)
{
    check(may_follow[server->state][state]);
    server->state = state;
}

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

/* P3: commands name a boot. Those of an earlier start, and its requests, count no more. */
static void begin_boot(struct server_entry *server, uint64_t boot)
{
    static const enum server_state next[SERVER_STATES] = {
        [SERVER_IS_IDLE] = SERVER_IS_IDLE,       [SERVER_IS_INVITED] = SERVER_IS_IDLE,
        [SERVER_HAS_JOINED] = SERVER_IS_IDLE,    [SERVER_IS_CHOSEN] = SERVER_IS_CHOSEN,
        [SERVER_PREPARES] = SERVER_HAS_LOST,     [SERVER_SERVES] = SERVER_HAS_LOST,
        [SERVER_IS_EMPTIED] = SERVER_IS_EMPTIED, [SERVER_HAS_LOST] = SERVER_HAS_LOST,
    };
    check(server->state != SERVER_IS_NEW); /* only while a commit is decided */
    server->boot = boot;
    server->state = next[server->state];
    server->unfit = false;
    if (server->leaving != SERVER_DRAINS) /* an operator's call is about every start */
        server->leaving = SERVER_STAYS;
}

enum err servers_make(struct servers *servers, const char *name, struct server_entry **ret_server)
{
    check(name[0] != 0);
    *ret_server = servers_named(servers, name);
    if (*ret_server != NULL)
        return ERR_OK;
    struct server_entry *server = servers_named(servers, ""); /* a forgotten one */
    if (server == NULL && servers->count == WIRE_SERVERS_MAX)
        return ERR_BUSY;
    if (server == NULL)
        server = &servers->list[servers->count++];
    *server = (struct server_entry){.map_index = SERVERS_NONE};
    snprintf(server->name, sizeof server->name, "%s", name);
    *ret_server = server;
    return ERR_OK;
}

bool servers_forget_gone(struct server_entry *server)
{
    bool asked = server->given_up || server->leaving == SERVER_DRAINS;
    if (server->link != 0 || server->map_index != SERVERS_NONE || asked)
        return false;
    *server = (struct server_entry){.map_index = SERVERS_NONE};
    return true;
}

enum err servers_hello(struct servers *servers, const struct server_report *hello,
                       struct server_entry **ret_server, uint64_t *ret_older)
{
    struct server_entry *server;
    TRY(servers_make(servers, hello->hello.name, &server));
    memcpy(server->address, hello->hello.address, sizeof server->address);
    if (server->boot != hello->boot)
        begin_boot(server, hello->boot);
    server->rival_boot = 0;
    server->lives = false;
    server->journal_full = false; /* it says so again */
    /* Nothing begins on one that drains, so nothing waits for it either. */
    server->given_up = server->given_up && servers_drains(server);
    server->held_generation = hello->hello.generation;
    server->prepared_generation = hello->hello.prepared;
    *ret_older = server->link;
    server->link = ++servers->links;
    *ret_server = server;
    return ERR_OK;
}

void servers_lost(struct server_entry *server)
{
    server->link = 0;
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
    return server == NULL || server->state == SERVER_IS_EMPTIED ? NULL : server;
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
        if (server != NULL && server->state != SERVER_SERVES)
            return false;
    }
    return true;
}

const struct server_entry *servers_journal_full(const struct servers *servers)
{
    for (uint32_t i = 0; i < servers->chosen_count; i++) {
        const struct server_entry *server = servers_active(servers, i);
        if (server != NULL && server->journal_full)
            return server;
    }
    return NULL;
}

bool servers_is_available(const struct server_entry *server)
{
    return server->link != 0 && server->leaving == SERVER_STAYS;
}

uint32_t servers_available(const struct servers *servers, const struct server_entry *without)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++)
        count += &servers->list[i] != without && servers_is_available(&servers->list[i]) ? 1 : 0;
    return count;
}

/* ---- which are the run's ---- */

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

void servers_want(struct server_entry *server, bool wanted)
{
    server->wanted = wanted;
}

uint32_t servers_choose(struct servers *servers)
{
    for (uint32_t i = 0; i < servers->count; i++)
        servers_want(&servers->list[i], servers_is_available(&servers->list[i]));
    return servers_choose_wanted(servers);
}

uint32_t servers_choose_wanted(struct servers *servers)
{
    servers_unchoose(servers);
    for (struct server_entry *server = next_by_name(servers, NULL); server != NULL;
         server = next_by_name(servers, server->name)) {
        bool chosen = servers_choose_one(servers, server);
        check(chosen); /* there is a place for every name */
    }
    return servers->chosen_count;
}

/* The lowest free place. */
static bool take_place(struct servers *servers, struct server_entry *server,
                       enum server_state state)
{
    uint32_t place = 0;
    check(server->map_index == SERVERS_NONE);
    while (place < servers->chosen_count && servers->chosen[place] != SERVERS_NONE)
        place++;
    if (place == WIRE_SERVERS_MAX)
        return false;
    if (place == servers->chosen_count)
        servers->chosen_count++;
    servers->chosen[place] = (uint32_t)(server - servers->list);
    server->map_index = place;
    server->acknowledged = true; /* it has no commit to acknowledge yet */
    enter(server, state);
    return true;
}

static void leave_place(struct servers *servers, struct server_entry *server,
                        enum server_state state)
{
    check(servers_of_map(servers, server->map_index) == server);
    servers->chosen[server->map_index] = SERVERS_NONE;
    server->map_index = SERVERS_NONE;
    enter(server, state);
    while (servers->chosen_count > 0 && servers->chosen[servers->chosen_count - 1] == SERVERS_NONE)
        servers->chosen_count--;
}

bool servers_choose_one(struct servers *servers, struct server_entry *server)
{
    return take_place(servers, server, SERVER_IS_CHOSEN);
}

bool servers_add(struct servers *servers, struct server_entry *server)
{
    return take_place(servers, server, SERVER_IS_NEW);
}

void servers_take_back(struct servers *servers, struct server_entry *server)
{
    leave_place(servers, server, SERVER_HAS_JOINED);
}

void servers_unchoose_one(struct servers *servers, struct server_entry *server)
{
    leave_place(servers, server, SERVER_IS_IDLE);
}

void servers_unchoose(struct servers *servers)
{
    for (uint32_t i = servers->chosen_count; i-- > 0;)
        if (i < servers->chosen_count && servers_of_map(servers, i) != NULL)
            servers_unchoose_one(servers, servers_of_map(servers, i));
}

/* ---- how far each is ---- */

void servers_invite(struct server_entry *server, uint64_t invitation)
{
    check(server->map_index == SERVERS_NONE);
    check(invitation > server->invitation);
    server->invitation = invitation;
    servers_await_anew(server);
    enter(server, SERVER_IS_INVITED);
}

void servers_prepare(struct server_entry *server)
{
    servers_prepare_again(server);
    server->acknowledged = true;
}

/* P12: others may have gone on meanwhile. P6: a commit that came behind the command is still to be
 * acknowledged. */
void servers_prepare_again(struct server_entry *server)
{
    check(server->map_index != SERVERS_NONE);
    /* Nobody waits for one that is emptied: it prepares without chunks. */
    enter(server, server->state == SERVER_IS_EMPTIED ? SERVER_IS_EMPTIED : SERVER_PREPARES);
    servers_await_anew(server);
}

bool servers_was_told(const struct server_entry *server)
{
    return server->state != SERVER_IS_IDLE && server->state != SERVER_IS_CHOSEN &&
           server->state != SERVER_HAS_LOST;
}

void servers_note_ready(struct server_entry *server)
{
    static const enum server_state next[SERVER_STATES] = {
        [SERVER_IS_INVITED] = SERVER_HAS_JOINED, [SERVER_HAS_JOINED] = SERVER_HAS_JOINED,
        [SERVER_PREPARES] = SERVER_SERVES,       [SERVER_SERVES] = SERVER_SERVES,
        [SERVER_IS_NEW] = SERVER_IS_NEW,         [SERVER_IS_EMPTIED] = SERVER_IS_EMPTIED,
    };
    check(servers_was_told(server));
    enter(server, next[server->state]);
}

void servers_adopt(struct server_entry *server, bool acknowledged)
{
    enter(server, SERVER_SERVES);
    server->acknowledged = acknowledged;
    server->past_cut = false;
}

void servers_forget(struct server_entry *server)
{
    check(server->map_index == SERVERS_NONE);
    if (server->state != SERVER_IS_IDLE)
        enter(server, SERVER_IS_IDLE);
}

void servers_serve(struct server_entry *server)
{
    check(server->state == SERVER_IS_NEW);
    enter(server, SERVER_SERVES);
}

void servers_empty(struct server_entry *server)
{
    check(servers_drains(server));
    enter(server, SERVER_IS_EMPTIED);
}

void servers_tell_commit(struct server_entry *server)
{
    server->acknowledged = false;
    servers_await_anew(server);
}

void servers_tell_new_commit(struct server_entry *server)
{
    check(server->acknowledged); /* P6 */
    servers_tell_commit(server);
    server->past_cut = false;
}

void servers_acknowledge(struct server_entry *server)
{
    server->acknowledged = true;
}

void servers_miss_cut(struct server_entry *server)
{
    server->past_cut = true;
}

void servers_number_file(struct server_entry *server, uint32_t file)
{
    server->file = file;
}

/* ---- leaving ---- */

bool servers_drains(const struct server_entry *server)
{
    return server->leaving == SERVER_DRAINS || server->leaving == SERVER_ENDS;
}

void servers_drain(struct server_entry *server, bool ends)
{
    check(!servers_drains(server));
    server->leaving = ends ? SERVER_ENDS : SERVER_DRAINS;
}

void servers_drain_over(struct server_entry *server)
{
    if (servers_drains(server))
        server->leaving = SERVER_STAYS;
}

void servers_leave(struct server_entry *server)
{
    check(servers_drains(server));
    server->leaving = SERVER_HAS_LEFT;
}

void servers_leave_later(struct server_entry *server)
{
    check(server->leaving == SERVER_HAS_LEFT);
    server->leaving = SERVER_ENDS;
}

void servers_note_unfit(struct server_entry *server)
{
    server->unfit = true;
}

/* ---- what is awaited ---- */

bool servers_await(struct server_entry *server, enum server_awaited awaited, uint64_t until_ms)
{
    if (server->awaited == awaited)
        return false;
    server->awaited = awaited;
    server->awaited_until_ms = until_ms;
    return true;
}

void servers_await_anew(struct server_entry *server)
{
    server->awaited = SERVER_AWAITED_NOTHING;
}

/* ---- who will not come back ---- */

void servers_give_up(struct server_entry *server)
{
    check(server->link == 0);
    server->given_up = true;
}

void servers_expect_all(struct servers *servers)
{
    for (uint32_t i = 0; i < servers->count; i++)
        servers->list[i].given_up = false;
}

uint32_t servers_given_up(const struct servers *servers)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < servers->count; i++)
        count += servers->list[i].given_up ? 1 : 0;
    return count;
}
