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

/* The first step of which a server may lack tickets. In async one that restarts begins with the
 * newest cut, in the same generation (P12). */
static uint64_t first_lacked(const struct run *run)
{
    return run->settings.async ? run->cuts.newest.name.version : run->steps.version;
}

/* All of an older generation are forgotten, because that fences what they bring (P2); the others
 * when no server can lack the newest step of them all. */
static void forget_decided(struct coordinator *coordinator)
{
    struct ended *ended = &coordinator->ended;
    const struct run *run = &coordinator->run;
    if (ended->generation == run->generation && ended->step >= first_lacked(run))
        return;
    ended->generation = run->generation;
    ended->count = ended->told = ended->expelled = 0;
    ended->news = false;
}

/* The older half of those that left goes; where there are none, of those that were expelled. */
static void make_room(struct ended *ended)
{
    uint32_t left = ended->count - ended->expelled;
    uint32_t gone = left > 0 ? (left + 1) / 2 : ended->count / 2;
    ended->count -= gone;
    ended->expelled -= left > 0 ? 0 : gone;
    ended->told = ended->told > gone ? ended->told - gone : 0;
    memmove(ended->members, ended->members + gone, ended->count * sizeof *ended->members);
}

void ended_add(struct coordinator *coordinator, uint64_t member, bool expelled)
{
    struct ended *ended = &coordinator->ended;
    const struct run *run = &coordinator->run;
    forget_decided(coordinator);
    if (ended->count == WIRE_ENDED_MAX)
        make_room(ended);
    uint32_t behind = expelled ? 0 : ended->expelled;
    uint64_t *place = ended->members + ended->count - behind;
    memmove(place + 1, place, behind * sizeof *place);
    *place = member;
    ended->count++;
    ended->expelled += expelled;
    ended->news = true;
    ended->step =
        run->steps.granted_step > run->steps.version ? run->steps.granted_step : run->steps.version;
}

/* A server forgets them with the commit of their step. In async it never does: it may hear of that
 * commit before it has the step's tickets again. */
static void tell(struct coordinator *coordinator, const struct server_entry *server, uint32_t first)
{
    const struct ended *ended = &coordinator->ended;
    struct server_command *command = send_command(coordinator, server, SERVER_ENDED);
    command->ended.generation = ended->generation;
    command->ended.step = coordinator->run.settings.async ? UINT64_MAX : ended->step;
    command->ended.member_count = ended->count - first;
    command->ended.members = ended->members + first;
}

void ended_tell(struct coordinator *coordinator)
{
    struct ended *ended = &coordinator->ended;
    for (uint32_t i = 0; ended->news && i < coordinator->servers.chosen_count; i++) {
        const struct server_entry *server = servers_active(&coordinator->servers, i);
        if (server != NULL && server->link != 0)
            tell(coordinator, server, ended->told);
    }
    ended->told = ended->count - ended->expelled;
    ended->news = false;
}

void ended_tell_again(struct coordinator *coordinator, const struct server_entry *server)
{
    forget_decided(coordinator);
    if (coordinator->ended.count > 0 && server->map_index != SERVERS_NONE)
        tell(coordinator, server, 0);
}
