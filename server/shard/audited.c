/* Which tickets are audited. */
#include "server/shard/audited.h"

#include <string.h>

static const char label[] = "audit";

void audited_key(struct digest_mac *mac, const uint8_t secret[static DIGEST_KEY_BYTES],
                 uint8_t ret_key[static DIGEST_KEY_BYTES])
{
    digest_mac_set_key(mac, secret);
    struct digest key = digest_mac(mac, (struct slice){(const uint8_t *)label, sizeof label - 1});
    memcpy(ret_key, key.bytes, DIGEST_KEY_BYTES);
}

bool audited(struct digest_mac *mac, double share, uint64_t step, uint32_t slot)
{
    const uint64_t numbers[] = {step, slot};
    uint8_t bytes[sizeof numbers];
    uint64_t drawn = 0;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(numbers[i / 8] >> 8 * (i % 8));
    struct digest whole = digest_mac(mac, (struct slice){bytes, sizeof bytes});
    for (size_t i = 0; i < sizeof drawn; i++)
        drawn |= (uint64_t)whole.bytes[i] << 8 * i;
    return (double)(drawn >> 11) < share * (double)(UINT64_C(1) << 53);
}
