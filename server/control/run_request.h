/* What an operator asks for when a run is to begin, completed by the coordinator's daemon: the
 * run's directory, where none is named, and the data set's facts, where the operator's machine has
 * no copy. */
#ifndef ROOST_SERVER_CONTROL_RUN_REQUEST_H
#define ROOST_SERVER_CONTROL_RUN_REQUEST_H

#include "common/files/run_directory.h"
#include "proto/wire.h"
#include "server/control/data_reader.h"

struct run_request {
    struct start_run_request request;
    struct run_directory chosen; /* for a run that names none; "" otherwise */
    const char *directory;       /* the named one or the chosen one */
    bool reads;                  /* this daemon its data set: the operator has no copy */
};

/* *wanted borrows the request, and may not be moved. RUN_DIR, RUN_DIR/run-2, RUN_DIR/run-3, … are
 * the directories of runs that name none. Asks for the data set where the request has no samples.
 * ERR_EXISTS: no directory is left; ERR_DATA_SET: this daemon has no copy either; others of
 * data_reader_ask(). */
enum err run_request_init(struct run_request *wanted, const struct start_run_request *request,
                          const char *run_dir, struct data_reader *reader, uint64_t now_ns,
                          struct reason *reason) MUST_USE;

#endif
