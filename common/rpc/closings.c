/* A row for each limit. */
#include "common/rpc/closings.h"

#include <stdio.h>

static const struct {
    const char *word, *text;
    uint64_t pause_ns;
} table[] = {
#define CLOSING_ROW(name, word, seconds, text) [CLOSING_##name] = {word, text, seconds##000000000u},
    CLOSING_TABLE(CLOSING_ROW)
#undef CLOSING_ROW
};

const char *closing_word(enum closing closing)
{
    return table[closing].word;
}

const char *closing_text(enum closing closing)
{
    return table[closing].text;
}

void closings_add(struct closings *closings, enum closing closing, const struct tls_holder *holder,
                  const char *address)
{
    struct closed *closed = &closings->rows[closing].closed;
    if (closed->count++ > 0)
        return;
    closed->holder = holder != NULL ? *holder : (struct tls_holder){0};
    snprintf(closed->address, sizeof closed->address, "%s", address);
}

bool closings_take(struct closings *closings, enum closing closing, uint64_t now_ns,
                   struct closed *ret_closed)
{
    struct closings_row *row = &closings->rows[closing];
    if (row->closed.count == 0 ||
        (row->said_ns != 0 && now_ns - row->said_ns < table[closing].pause_ns))
        return false;
    *ret_closed = row->closed;
    row->closed = (struct closed){0};
    row->said_ns = now_ns;
    return true;
}
