/* What an agent is set up with, what it asks its loop to do, and what it is told of maps and
 * computes: the words that agent.h and the agent's parts share. */
#ifndef ROOST_WORKER_AGENT_EFFECTS_H
#define ROOST_WORKER_AGENT_EFFECTS_H

#include "common/model/model.h"
#include "proto/wire.h"
#include "worker/boundary_sums.h"

struct agent_config {
    const struct model *model; /* borrowed for the agent's life */
    enum codec push_codec;
    enum codec weights_codec;
    bool async;
    bool streamed;         /* units are asked for by agent_asked(), each time they are used */
    struct spec_mesh mesh; /* the run's; stages 0 or 1: a member computes all of a ticket */
    uint32_t leases;       /* in such a mesh, tickets at a time; 0: 1 */
    uint32_t lanes[WIRE_PLACES_MAX]; /* by stage: of these it computes so many at a time; 0: 1 */
    uint64_t seed;                   /* of the jitter */
};

enum {
    AGENT_TICKETS_MAX = WIRE_LEASES_MAX,
    AGENT_LANES_MAX = AGENT_TICKETS_MAX,
};

enum agent_effect_kind {
    AGENT_JOIN = 1,   /* Describe and Join; answer with agent_joined() or agent_join_failed() */
    AGENT_DESCRIBE,   /* the map may be old: agent_mapped() or agent_map_failed() */
    AGENT_OPEN,       /* (re)open the Exchange stream to `server`: agent_stream_up() or _lost() */
    AGENT_ACQUIRE,    /* agent_acquired() answers, with the same sequence */
    AGENT_GENERATION, /* leases of an older `generation` are over (S8); this and the three below
                         only in a mesh of several places */
    AGENT_KEEP,       /* all leases but those that `keep` names are over (S3) */
    AGENT_LEASE,      /* values are given and taken for `ticket` now, at `place` of `places` */
    AGENT_PLACES,     /* that lease, or one that is kept, has changed: the newest `places` */
    AGENT_COMPUTE, /* run the lane's executor, of `place`, on `ticket`; agent_computed() ends it. In
                         a mesh agent_placed() says when weights may come */
    AGENT_CANCEL,  /* end the lane's compute soon; agent_computed() still follows */
    AGENT_GIVE_BACK,  /* all weights that agent_lent() named: nothing is computed */
    AGENT_COPY,       /* `chunk` of the lane's weights, from lane `from` */
    AGENT_PULL,       /* send `pull` to `server` */
    AGENT_UNIT_READY, /* the unit's weights are in place */
    AGENT_UNIT_ACKED, /* streamed: all of the unit's gradients are acknowledged, and read no more */
    AGENT_PUSH,       /* encode the entries, send to `server` */
    AGENT_COMPLETE,   /* report to the coordinator; no answer is waited for */
    AGENT_LEAVE,      /* report to the coordinator; only AGENT_STOP follows */
    AGENT_STOP        /* the run is over (OK), or this worker must not go on: the error */
};

/* Pointers live until the answer to that message, or the next agent_joined(). */
struct agent_effect {
    enum agent_effect_kind kind;
    uint32_t server;
    uint32_t lane; /* of LEASE, COMPUTE, CANCEL, COPY, UNIT_READY, UNIT_ACKED, PUSH and COMPLETE */
    union {
        struct acquire_request acquire;
        struct {
            struct ticket ticket;
            struct place place;
            struct places places; /* not of COMPUTE */
        };
        struct {
            const uint64_t *attempts;
            uint32_t count;
        } keep;
        uint64_t generation;
        struct pull pull;
        struct push push;
        uint32_t unit;
        struct {
            uint32_t chunk, from;
        };
        struct complete_request complete;
        enum err stop;
    };
};

/* Which server owns each chunk: `chunk_servers` has one number per chunk of the model. A server
 * keeps its number from map to map; a number without chunks may belong to no server. */
struct agent_map {
    uint64_t number;
    uint32_t server_count;
    const uint32_t *chunk_servers;
    uint64_t generation; /* of the run, in which maps are numbered */
};

/* The executor ended. CANCELLED after AGENT_CANCEL; in a mesh also the errors of peers_take(). For
 * a validation ticket the sums are the result, else they are ignored. */
struct agent_result {
    enum err err;
    double loss_sum;
    uint64_t sample_count;
    uint64_t correct_count;
    float scale;     /* async, training: of the gradient (worker/whole.h) */
    uint64_t blamed; /* the member that an error of peers_take() is about; 0: none */
    uint32_t lane;
    struct boundary_sums sums; /* in a mesh */
    uint64_t replicated;       /* mesh.tensor: the sum of replicated_add(); 0: there is none */
};

#endif
