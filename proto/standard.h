/* The two standard services that tools expect of any gRPC server: health (grpc.health.v1) and
 * reflection (v1 and v1alpha, the same bytes). Pure: bytes in, bytes out; any thread. */
#ifndef ROOST_PROTO_STANDARD_H
#define ROOST_PROTO_STANDARD_H

#include "common/buf.h"

#include <stdbool.h>

/* The answer to a Check, or one message of a Watch. ERR_NOT_FOUND: the service is not served here;
 * ERR_MALFORMED. Served are "" (all), roost.v1.Cluster and roost.v1.Shard. */
enum err standard_health(struct slice request, bool serving, struct buf *response,
                         struct reason *reason) MUST_USE;

/* The answer to one ServerReflectionRequest; what cannot be found is an ErrorResponse, as the
 * protocol has it. ERR_MALFORMED; ERR_NOMEM. */
enum err standard_reflection(struct slice request, struct buf *response,
                             struct reason *reason) MUST_USE;

#endif
