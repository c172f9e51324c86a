/* What an operator asks for when a run is to begin, completed by the coordinator's daemon: the
 * run's directory, where none is named, and the data set's facts, where the operator's machine has
 * no copy. */
#ifndef ROOST_SERVER_CONTROL_RUN_REQUEST_H
#define ROOST_SERVER_CONTROL_RUN_REQUEST_H

#include "common/files/run_directory.h"
#include "proto/wire.h"
#include "server/control/data_reader.h"
#include "server/disk/store.h"

struct run_request {
    struct start_run_request request;
    struct run_directory chosen; /* for a run that names none; "" otherwise */
    const char *spelled;         /* the named directory or the chosen one, as it was written */
    char directory[WIRE_TEXT_BYTES_MAX + 1]; /* its one name: run_directory_name() */
    bool reads; /* this daemon its data set: the operator has no copy */
};

/* Of this daemon. */
struct run_places {
    struct store *store; /* whose runs' directories are taken */
    const char *run_dir; /* of the first run that names no directory; others in it */
    const char *folder;  /* that relative ones begin in */
};

/* *wanted borrows the request, and may not be moved. RUN_DIR, RUN_DIR/run-2, RUN_DIR/run-3, … are
 * the directories of runs that name none. Asks for the data set where the request has no samples.
 * ERR_EXISTS: no directory is left; ERR_INVALID: its path is too long; ERR_DATA_SET: this daemon has
 * no copy either; others of data_reader_ask() and the store's. */
enum err run_request_init(struct run_request *wanted, const struct start_run_request *request,
                          const struct run_places *places, struct data_reader *reader,
                          uint64_t now_ns, struct reason *reason) MUST_USE;

#endif
