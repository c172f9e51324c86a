/* worker/notice_watch.h: a cloud whose notices the simulator makes up. */
#include "worker/notice_watch.h"

#include "tests/sim/sim.h"

struct notice_watch {
    struct notice_watch_config config;
};

enum err notice_watch_new(const struct notice_watch_config *config, struct notice_watch **ret_watch,
                          struct reason *reason)
{
    (void)reason;
    struct notice_watch *watch = calloc(1, sizeof *watch);
    check(watch != NULL);
    watch->config = *config;
    watch->config.said(config->owner, NOTICE_NOTHING, "aws");
    world.life->notice = *ret_watch = watch;
    return ERR_OK;
}

void notice_watch_free(struct notice_watch *watch)
{
    world.life->notice = NULL;
    free(watch);
}

void sim_notice_report(struct life *life, enum notice_verdict verdict)
{
    const struct notice_watch *watch = life->notice;
    life_enter(life);
    watch->config.said(watch->config.owner, verdict, "spot");
    life_leave();
}
