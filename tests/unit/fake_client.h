/* For tests of commands: the client of a coordinator that is not there. The test says what it
 * answers. */
#ifndef ROOST_TESTS_UNIT_FAKE_CLIENT_H
#define ROOST_TESTS_UNIT_FAKE_CLIENT_H

#include "deploy/roost/client.h"
#include "tests/unit/unit.h"

enum err client_open(const struct client_options *options, struct client *ret_client,
                     struct reason *reason)
{
    (void)options, (void)reason;
    *ret_client = (struct client){0};
    return ERR_OK;
}

void client_release(struct client *client)
{
    (void)client;
}

void client_answer_release(struct client_answer *answer)
{
    (void)answer;
}

#endif
