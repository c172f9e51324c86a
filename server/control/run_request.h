/* What an operator asks for when a run is to begin, completed by the coordinator's daemon: the
 * run's directory, where none is named, and the data set's facts, where the operator's machine has
 * no copy. */
#ifndef ROOST_SERVER_CONTROL_RUN_REQUEST_H
#define ROOST_SERVER_CONTROL_RUN_REQUEST_H

#include "common/data/run_data.h"
#include "common/files/run_directory.h"
#include "proto/wire.h"

struct run_request {
    struct start_run_request request;
    struct run_directory chosen; /* for a run that names none; "" otherwise */
    const char *directory;       /* the named one or the chosen one */
    struct data *data;           /* of this daemon; NULL: the operator has read it */
};

/* *wanted borrows the request, and may not be moved. RUN_DIR, RUN_DIR/run-2, RUN_DIR/run-3, … are
 * the directories of runs that name none. Reads the whole data set where the request has no
 * samples. ERR_EXISTS: no directory is left; ERR_DATA_SET: this daemon has no copy either;
 * data_open()'s. */
enum err run_request_init(struct run_request *wanted, const struct start_run_request *request,
                          const char *run_dir, struct reason *reason) MUST_USE;
void run_request_release(struct run_request *wanted); /* {0} is fine */

#endif
