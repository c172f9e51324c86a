#include "tests/sim/twin.h"

#include "server/coordinator/run.h"
#include "tests/sim/sim.h"

enum { AGAIN_US = 50000 };

bool twin_start(struct sim *sim, uint32_t server)
{
    if (sim->twin.here)
        return false;
    sim->twin = (struct twin){.here = true,
                              .server = server,
                              .boot = UINT64_C(1) << 60 | sim_below(sim, UINT64_C(1) << 48),
                              .first_boot = sim->servers[server].boot};
    sim_trace(sim, "another s%u starts", server);
    return true;
}

/* 21 (P3): who is connected is asked first, and stays when it answers. */
static void check_taken(struct sim *sim, const struct twin *twin)
{
    if (!twin->asked || twin->answered)
        sim_violated(sim, 21, "a second s%u takes the place of one that %s", twin->server,
                     twin->answered ? "has answered" : "was not asked");
}

void twin_hello(struct sim *sim, struct coordinator *core, uint64_t now_ms)
{
    struct twin *twin = &sim->twin;
    struct reason reason = {.text = ""};
    uint64_t link;
    const struct server_entry *first =
        twin->here ? sim_coordinator_entry(core, twin->server) : NULL;
    bool lives = first != NULL && first->link != 0 && first->boot == twin->first_boot;
    bool newest = core->settings.term == sim->store.term; /* it hears what the first one answers */
    if (!lives || !newest || sim->now_us < twin->next_us)
        return;
    if (twin->term != core->settings.term || twin->link != first->link)
        twin->asked = twin->answered = false;
    twin->term = core->settings.term;
    twin->link = first->link;
    struct server_report hello = {
        .kind = SERVER_HELLO,
        .boot = twin->boot,
        .hello = {.wire_version = WIRE_VERSION, .wire_version_min = WIRE_VERSION}};
    snprintf(hello.hello.name, sizeof hello.hello.name, "s%u", twin->server);
    snprintf(hello.hello.address, sizeof hello.hello.address, "s%u:1", twin->server);
    enum err err = coordinator_server_hello(core, now_ms, &hello, &link, &reason);
    sim_trace(sim, "the other s%u says hello: %s", twin->server, err_name(err));
    twin->next_us = sim->now_us + AGAIN_US;
    twin->here = err == ERR_BUSY;
    if (err == ERR_OK) {
        check_taken(sim, twin);
        coordinator_server_lost(core, now_ms, link);
    }
    twin->asked = true;
}

void twin_note(struct sim *sim, const struct server_report *report, enum err err)
{
    struct twin *twin = &sim->twin;
    if (err == ERR_OK && report->kind == SERVER_HELD && report->boot == twin->first_boot)
        twin->answered = twin->asked;
}
