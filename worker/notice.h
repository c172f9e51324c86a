/* A cloud's notices of the machine's end: the questions to its metadata service, and the meaning of
 * the answers. Pure; notice_watch.h asks.
 *
 * AWS (IMDSv2): spot/instance-action is 404 until the instance is marked, two minutes before it
 * goes; events/recommendations/rebalance only reports a higher risk than usual. GCP:
 * instance/preempted turns TRUE, up to thirty seconds before. Azure: scheduledevents lists what is
 * planned for all machines of a set, ours by its name; Preempt comes thirty seconds before, Reboot
 * fifteen minutes, and Redeploy, where hardware is failing, up to seven days. A worker loses nothing
 * when its machine goes, so it goes on after a mere recommendation, and until an event is near.
 *
 * Azure lists a Reboot or Redeploy as Started until some minutes after it, when the machine is up
 * again. A worker that left because of it would end with 0, and stay away. So what has started before
 * the worker's first answer is behind the machine, for as long as it is listed. */
#ifndef ROOST_WORKER_NOTICE_H
#define ROOST_WORKER_NOTICE_H

#include "common/buf.h"

#include <stdbool.h>

enum { NOTICE_TEXT_BYTES = 96 };

enum notice_cloud { NOTICE_AWS, NOTICE_GCP, NOTICE_AZURE, NOTICE_CLOUD_COUNT };

const char *notice_cloud_name(enum notice_cloud cloud); /* "aws" */

/* The graver, the higher. */
enum notice_verdict {
    NOTICE_NOTHING,
    NOTICE_WARNING, /* the machine may have to go, or goes later */
    NOTICE_LEAVE    /* the machine goes */
};

/* The machine that is asked about. */
struct notice_machine {
    const char *name; /* as the probe found it */
    uint64_t soon_ns; /* wall clock: what may begin by then is a reason to leave */
    bool may_be_back; /* true at first; false from the first answer without a started reboot on */
};

enum { NOTICE_QUESTIONS_MAX = 2 };

/* What to ask a cloud's service. */
struct notice_questions {
    const char *secret_method; /* asked once, and again when an answer is 401; NULL: never */
    const char *secret_path;
    const char *secret_header;
    const char *secret_name; /* header that carries the answer; NULL: none is needed */
    const char *header;      /* sent with each question instead; NULL: none */
    const char *probe_path;  /* 200: this cloud is here */
    bool probe_is_name;      /* the probe's answer is the machine's name */
    uint32_t count;
    struct {
        const char *path;
        enum notice_verdict (*judge)(unsigned status, struct slice body,
                                     struct notice_machine *machine,
                                     char ret_text[static NOTICE_TEXT_BYTES]);
    } questions[NOTICE_QUESTIONS_MAX];
};

const struct notice_questions *notice_questions(enum notice_cloud cloud);

/* Takes a secret or a name from the service's answer: printable ASCII without blanks, into
 * ret_text. False: the answer is none, or longer than the room. */
bool notice_word(struct slice body, char *ret_text, size_t text_bytes);

#endif
