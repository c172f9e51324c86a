#include "server/coordinator/ended.h"

#include "server/coordinator/send.h"

#include <stdlib.h>
#include <string.h>

enum err ended_init(struct ended *ended)
{
    *ended = (struct ended){.members = calloc(WIRE_ENDED_MAX, sizeof *ended->members)};
    return ended->members == NULL ? ERR_NOMEM : ERR_OK;
}

void ended_release(struct ended *ended)
{
    free(ended->members);
    *ended = (struct ended){0};
}

/* All of an older generation are forgotten, because that fences what they bring (P2); the others
 * when the newest step of them all is decided. */
static void forget_decided(struct coordinator *coordinator)
{
    struct ended *ended = &coordinator->ended;
    const struct run *run = &coordinator->run;
    if (ended->generation == run->generation && ended->step >= run->steps.version)
        return;
    ended->generation = run->generation;
    ended->count = ended->told = 0;
}

void ended_add(struct coordinator *coordinator, uint64_t member)
{
    struct ended *ended = &coordinator->ended;
    const struct run *run = &coordinator->run;
    forget_decided(coordinator);
    if (ended->count == WIRE_ENDED_MAX) { /* the oldest make room */
        uint32_t half = WIRE_ENDED_MAX / 2;
        memmove(ended->members, ended->members + half, half * sizeof *ended->members);
        ended->count = half;
        ended->told = ended->told > half ? ended->told - half : 0;
    }
    ended->members[ended->count++] = member;
    ended->step =
        run->steps.granted_step > run->steps.version ? run->steps.granted_step : run->steps.version;
}

static void tell(struct coordinator *coordinator, const struct server_entry *server, uint32_t first)
{
    const struct ended *ended = &coordinator->ended;
    struct server_command *command = send_command(coordinator, server, SERVER_ENDED);
    command->ended.generation = ended->generation;
    command->ended.step = ended->step;
    command->ended.member_count = ended->count - first;
    command->ended.members = ended->members + first;
}

void ended_tell(struct coordinator *coordinator)
{
    struct ended *ended = &coordinator->ended;
    for (uint32_t i = 0; ended->told < ended->count && i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && server->link != 0)
            tell(coordinator, server, ended->told);
    }
    ended->told = ended->count;
}

void ended_tell_again(struct coordinator *coordinator, const struct server_entry *server)
{
    forget_decided(coordinator);
    if (coordinator->ended.count > 0 && server->map_index != SERVERS_NONE)
        tell(coordinator, server, 0);
}
