/* One daemon, from its settings to its end. */
#ifndef ROOST_SERVER_SERVER_H
#define ROOST_SERVER_SERVER_H

#include "common/err.h"
#include "proto/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct server_settings {
    char address[257];          /* to listen on; port 0: any free one */
    char advertise[257];        /* where workers and servers reach it; "": the address */
    char dir[513];              /* of this daemon's own state */
    char run_dir[513];          /* of the first run that names none, others in it; "": DIR/run */
    char continue_only[513];    /* the directory of a run; "": any interrupted run goes on */
    char coordinator[257];      /* "": this daemon is it */
    char name[WIRE_NAME_BYTES]; /* one of its kind in the cluster; "": the host's */
    char certs[513];
    char revoked[512]; /* the list; "": beside the certificate */
    bool insecure;
    bool no_chunks;  /* the coordinator's: it is no server of the run */
    uint32_t shards; /* threads; 0: one per core */
    uint32_t heartbeat_ms, lease_ms, stop_ms;
    uint32_t speculation_percent, speculation_ms_min;
    uint32_t certificate_members_max; /* workers with one certificate */
    uint32_t log_level;               /* enum log_level */
};

/* What a start would stumble over, or others would: ERR_INVALID. */
enum err server_check(const struct server_settings *settings, struct reason *reason) MUST_USE;

/* Of settings that server_check() takes. Runs until SIGTERM or SIGINT (OK), or until it can't go on
 * (the error, with its sentence). Process-wide: installs signal handling. */
enum err server_run(const struct server_settings *settings, struct reason *reason) MUST_USE;

#endif
