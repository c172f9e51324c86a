#include "server/member/proof.h"

#include <string.h>

enum { KIND_BYTES = 8, NUMBERS_MAX = 14 + 4 * WIRE_RANGES_MAX };

/* What is signed. */
struct content {
    uint8_t bytes[KIND_BYTES + NUMBERS_MAX * sizeof(uint64_t)];
    size_t count;
};

static struct content content_of(const char *kind)
{
    struct content content = {.count = KIND_BYTES};
    check(strlen(kind) <= KIND_BYTES);
    memcpy(content.bytes, kind, strlen(kind));
    return content;
}

static void put(struct content *content, uint64_t number)
{
    check(content->count + sizeof number <= sizeof content->bytes);
    for (size_t i = 0; i < sizeof number; i++)
        content->bytes[content->count++] = (uint8_t)(number >> 8 * i);
}

static struct proof sign(struct digest_mac *key, const struct content *content)
{
    struct digest whole = digest_mac(key, (struct slice){content->bytes, content->count});
    struct proof proof;
    memcpy(proof.bytes, whole.bytes, sizeof proof.bytes);
    return proof;
}

struct proof proof_member(struct digest_mac *key, uint64_t run, uint64_t member)
{
    struct content content = content_of("member");
    put(&content, run);
    put(&content, member);
    return sign(key, &content);
}

static void put_range(struct content *content, const struct grant_range *range)
{
    put(content, range->chunks.first);
    put(content, range->chunks.count);
    put(content, range->parts.first);
    put(content, range->parts.count);
}

static struct proof sign_ticket(struct digest_mac *key, const char *kind, uint64_t run,
                                const struct ticket *ticket)
{
    const uint64_t numbers[] = {
        run,
        ticket->generation,
        ticket->kind,
        ticket->step,
        ticket->version,
        ticket->node.level,
        ticket->node.index,
        ticket->attempt,
        ticket->member,
    };
    struct content content = content_of(kind);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        put(&content, numbers[i]);
    put_range(&content, &(struct grant_range){ticket->chunks, ticket->parts});
    if (ticket->also_count > 0) /* servers that know no places judge other tickets as before */
        put(&content, ticket->also_count);
    for (uint32_t i = 0; i < ticket->also_count; i++)
        put_range(&content, &ticket->also[i]);
    return sign(key, &content);
}

struct proof proof_ticket(struct digest_mac *key, uint64_t run, const struct ticket *ticket)
{
    return sign_ticket(key, "grant", run, ticket);
}

struct proof proof_audited(struct digest_mac *key, uint64_t run, const struct ticket *ticket)
{
    return sign_ticket(key, "audited", run, ticket);
}

bool proof_granted(struct digest_mac *key, uint64_t run, const struct ticket *ticket,
                   bool *ret_audited)
{
    const struct proof plain = proof_ticket(key, run, ticket);
    *ret_audited = false;
    if (proof_same(&plain, &ticket->grant))
        return true;
    const struct proof audited = proof_audited(key, run, ticket);
    *ret_audited = proof_same(&audited, &ticket->grant);
    return *ret_audited;
}

bool proof_same(const struct proof *a, const struct proof *b)
{
    return digest_same(a->bytes, b->bytes, sizeof a->bytes);
}
