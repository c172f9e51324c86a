/* An operator's connection to the coordinator. */
#ifndef ROOST_DEPLOY_ROOST_CLIENT_H
#define ROOST_DEPLOY_ROOST_CLIENT_H

#include "common/arena.h"
#include "common/rpc/rpc.h"
#include "proto/wire.h"

#include <argp.h>
#include <stdatomic.h>
#include <stdio.h>

/* Where the cluster is; shared by the commands that talk to one. */
struct client_options {
    const char *cluster; /* host:port of the coordinator */
    const char *certs;   /* folder with operator.crt and operator.key */
    bool insecure;
    bool named; /* by a flag or the environment */
};

/* --cluster, --certs, --insecure, with the environment's ROOST_CLUSTER and ROOST_CERTS below them;
 * `input` is a struct client_options. */
extern const struct argp client_argp;

/* The same options again, to be pasted into a shell: `--cluster HOST:PORT --certs DIR`. */
void client_print_options(FILE *out, const struct client_options *options);

/* command_fail(); says where a cluster's options come from when none were given. */
int client_fail(const struct client_options *options, enum err err, const struct reason *reason);

struct client {
    struct rpc_loop *loop;
    struct rpc_channel *channel;
    struct tls_identity identity;
    bool search_said; /* that the newest call to start a run waits for a whole checkpoint */
    /* While more signals than `signals_heard` have come, a call is given up that is not answered at
     * once: ERR_UNREACHABLE. Its request may be carried out all the same. NULL: no call is. */
    const atomic_uint *signals;
    unsigned signals_heard;
};

enum err client_open(const struct client_options *options, struct client *ret_client,
                     struct reason *reason) MUST_USE;
void client_release(struct client *client); /* {0} is fine */

/* One call each; the answers' pointers live in `answer`. */
struct client_answer {
    struct buf bytes;
    struct arena arena;
};
void client_answer_release(struct client_answer *answer); /* and empty again */

/* Of all calls ERR_UNREACHABLE says as well that the coordinator ends, and is back soon. */
enum err client_status(struct client *client, struct client_answer *answer,
                       struct status_reply *ret_status, struct reason *reason) MUST_USE;
enum err client_describe(struct client *client, struct client_answer *answer,
                         struct describe_reply *ret_reply, struct reason *reason) MUST_USE;
/* ERR_SEARCHING: a sentence on stderr has said what is read, once; ask again. */
enum err client_start_run(struct client *client, const struct start_run_request *request,
                          struct client_answer *answer, struct start_run_reply *ret_reply,
                          struct reason *reason) MUST_USE;
enum err client_stop_run(struct client *client, const char *why, struct reason *reason) MUST_USE;
enum err client_drain(struct client *client, const struct drain_request *request,
                      struct client_answer *answer, struct drain_reply *ret_reply,
                      struct reason *reason) MUST_USE;
enum err client_checkpoint(struct client *client, struct cut_name *ret_newest,
                           struct reason *reason) MUST_USE;

#endif
