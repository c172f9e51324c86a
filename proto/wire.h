/* The messages of roost.proto that carry the protocol, as our structs, and the functions between
 * them and bytes. wire_messages.inc declares each message once: its fields, and what a peer may
 * send in them. Encoders, decoders and tests are made of that. All validation of what a peer sends
 * is there: after a successful decode every number is within the limits below and every array
 * within its count. What depends on the run (is this chunk mine, is this slot one of the step's)
 * the receiving core judges, and answers with an `enum err`, never with a check().
 *
 * These structs are also what the pure cores take and give, and what the simulator delivers. They
 * are plain data. What a pointer of a decoded struct leads to lies in the decoder's arena; what a
 * struct to be encoded points to is the sender's, and is not copied. Both live as long as the
 * handler's call.
 *
 * The data path: a message is a protobuf header followed by the payload as its last `bytes` field,
 * so it is valid protobuf, and the payload is a slice of our own memory. */
#ifndef ROOST_PROTO_WIRE_H
#define ROOST_PROTO_WIRE_H

#include "common/buf.h"
#include "common/tree.h"

#include <stdbool.h>

enum {
    WIRE_VERSION = 3,                    /* the newest that is spoken here, */
    WIRE_VERSION_MIN = 2,                /* and the oldest */
    WIRE_VERSION_SPARSE = 3,             /* a server of this one takes sparse entries */
    WIRE_PAYLOAD_BYTES_MAX = 512 * 1024, /* a largest chunk; small chunks are fused up to this */
    WIRE_HEADER_BYTES_MAX = 64 * 1024,
    WIRE_CONTROL_BYTES_MAX = 8 * 1024 * 1024, /* a whole report or description */
    WIRE_ENTRIES_MAX = 1024,                  /* chunks named by one data message */
    WIRE_ROWS_MAX = 16384,      /* rows named by one entry; a header has room for about as many */
    WIRE_CREDITS = 8,           /* unanswered pushes of a stream, and pulls */
    WIRE_TEXT_BYTES_MAX = 1024, /* names, reasons, addresses */
    WIRE_SPEC_BYTES_MAX = 64 * 1024,
    WIRE_PRODUCTS_BYTES_MAX = 16 * 1024,
    WIRE_SERVERS_MAX = 256,
    WIRE_TERM_MAX = INT32_MAX, /* members and attempts have the term in their upper 32 bits */
    WIRE_CHUNKS_MAX = 1 << 20,
    WIRE_DIGEST_BYTES = 32,
    WIRE_PROOF_BYTES = 16,
    WIRE_TICKETS_MAX = 8,         /* that one push is brought under */
    WIRE_RANGES_MAX = 8,          /* that a ticket names beside its first */
    WIRE_PLACES_MAX = 64,         /* of a mesh */
    WIRE_DEVICES_MAX = 64,        /* of a worker */
    WIRE_PLACES_SHOWN_MAX = 1024, /* in a status */
    WIRE_LEASES_MAX = 8,          /* of a member */
    WIRE_BOUNDARIES_MAX = 32,     /* of a place: both sides of its runs of units, both ways */
    WIRE_NAME_BYTES = 64,         /* of a worker or a server, with its end */
    WIRE_ADDRESS_BYTES = 128,
    WIRE_VALUE_BYTES_MAX = 64 * 1024 * 1024, /* that passes between places */
    WIRE_FRAGMENTS_MAX = 64,                 /* messages that a value comes in */
    WIRE_ENDED_MAX = 8192,                   /* members that one command names */
    WIRE_LACKS_MAX = 64,                     /* of which the chunk is named */
    WIRE_SLOT_WORDS_MAX = 1024,              /* a bit for each slot of a step (TREE_SLOTS_MAX) */
    WIRE_APPLIED_WORDS_MAX = 1024,           /* bits for 65,536 tickets */
    WIRE_TRANSFER_ARRAYS_MAX = 36, /* weights, states, and the versions that a delay keeps */
    /* so many arrays of a largest chunk, 131,072 weights, and the header */
    WIRE_TRANSFER_BYTES_MAX = WIRE_TRANSFER_ARRAYS_MAX * 512 * 1024 + 64,
};

#define WIRE_FILE_NONE UINT32_MAX
/* What a server may hold: the next ones are above it. */
#define WIRE_GENERATION_MAX (UINT64_C(1) << 48)
#define WIRE_STEP_MAX (UINT64_C(1) << 44)

/* What the coordinator gave to a member and servers can check (server/member/proof.h). Who has it
 * copies it, and needs no cryptography. */
struct proof {
    uint8_t bytes[WIRE_PROOF_BYTES];
};

/* How weights or gradients are written in a payload. */
enum codec { CODEC_FP32, CODEC_BF16, CODEC_COUNT };

/* Bytes of one weight. */
static inline uint32_t codec_bytes(enum codec codec)
{
    return codec == CODEC_BF16 ? 2 : 4;
}

/* ---- tickets ---- */

enum ticket_kind { TICKET_TRAIN = 1, TICKET_VALIDATE };

/* Numbers [first, first + count). */
struct number_range {
    uint32_t first, count;
};

struct grant_range {
    struct number_range chunks, parts;
};

/* The right to compute `node` of `step` on weights of `version`, and to push these chunks'
 * parts. */
struct ticket {
    enum ticket_kind kind;
    uint64_t generation;
    uint64_t step;
    uint64_t version;
    struct node node;
    uint64_t attempt;
    uint64_t member; /* that it is granted to */
    struct number_range chunks, parts;
    uint32_t also_count; /* a place of a mesh: what it pushes beside those */
    struct grant_range also[WIRE_RANGES_MAX];
    struct proof grant; /* that all of it is what the coordinator granted */
};

/* S1, S9: whether the lease of `a` is older: that of the lower step; of one step training before
 * validation, lower slots before higher ones, and earlier attempts before later ones. */
static inline bool ticket_is_older(const struct ticket *a, const struct ticket *b)
{
    if (a->step != b->step)
        return a->step < b->step;
    if (a->kind != b->kind)
        return a->kind < b->kind;
    if (node_first(a->node) != node_first(b->node))
        return node_first(a->node) < node_first(b->node);
    return a->attempt < b->attempt;
}

/* Whether the ticket names that part of that chunk. */
static inline bool ticket_names(const struct ticket *ticket, uint32_t chunk, uint32_t part)
{
    struct grant_range range = {ticket->chunks, ticket->parts};
    for (uint32_t i = 0;; range = ticket->also[i++]) {
        if (chunk >= range.chunks.first && chunk - range.chunks.first < range.chunks.count &&
            part >= range.parts.first && part - range.parts.first < range.parts.count)
            return true;
        if (i == ticket->also_count)
            return false;
    }
}

/* ---- places ---- */

/* A place of a mesh: its members compute the units of that stage. */
struct place {
    uint32_t stage, stages; /* stages 0: there is no mesh */
    uint32_t rank, ranks;   /* of the members of the place */
    uint64_t try_number;    /* no other place's or lease's; rises when a member is lost */
};

/* Several members compute the ticket, each a part of it. */
static inline bool place_is_shared(const struct place *place)
{
    return place->stages > 1 || place->ranks > 1;
}

/* Who computes at a place of a lease. */
struct peer {
    uint32_t stage, rank;
    uint64_t try_number;
    uint64_t member;
    char address[WIRE_ADDRESS_BYTES];       /* host:port */
    uint8_t certificate[WIRE_DIGEST_BYTES]; /* SHA-256 of the one that it showed; zeros: none */
};

struct places {
    uint64_t attempt; /* of the lease; 0: none */
    uint64_t number;  /* what is older than what was heard is ignored (S7) */
    uint32_t peer_count;
    const struct peer *peers; /* a place that waits for a member has none */
};

/* What a place cost, by its members' clocks and counters. Nothing is decided by it. */
struct place_cost {
    uint64_t busy_ns;       /* in acts that compute */
    uint64_t span_ns;       /* from the first of them to the last; 0: not known */
    uint64_t peer_bytes;    /* payloads of values that came from other places */
    uint64_t device_bytes;  /* taken of the device, */
    uint64_t weights_bytes; /* and of that for weights */
    uint64_t host_bytes;    /* activations that are offloaded, values kept for other places */
};

/* ---- Shard.Exchange, worker to server ---- */

/* One chunk's part of the gradient sum of a node. Its name is
 * (run, generation, step, node, chunk, part). */
struct push_entry {
    uint32_t chunk;
    uint32_t part;
    uint32_t bytes;   /* of this entry in the payload */
    uint64_t version; /* async: of the chunk, as it was pulled */
    bool sparse;      /* the payload has `rows` of the chunk alone; all others are zeros */
    uint32_t row_count;
    const uint32_t *rows; /* ascending */
};

/* Gradients of one node of one step; the payload holds the entries' bytes, one after another. */
struct push {
    uint64_t id; /* the sender's number; the acknowledgement repeats it */
    uint64_t generation;
    uint64_t step;
    struct node node;
    enum codec codec; /* of all entries but the loss parameter's, which is always fp32 */
    uint32_t entry_count;
    const struct push_entry *entries;
    /* Not on the wire; the receiver notes here: */
    uint64_t member; /* who sent it */
    bool audited;    /* by its grant, two workers are to bring it */
    /* async only: */
    uint64_t attempt;
    uint64_t boot; /* of the server, when these chunks were pulled (P12) */
    float scale;   /* clips this ticket's gradient; 0: count the ticket, apply nothing */
    /* What the sender may push by: its own ticket, then those of whose sums it brings as well. */
    uint32_t ticket_count;
    const struct ticket *tickets;
};

/* Asks for the weights of chunks, of one shard together at most WIRE_PAYLOAD_BYTES_MAX. */
struct pull {
    uint64_t id; /* the sender's number; the answers repeat it */
    uint64_t generation;
    uint64_t version; /* exactly this one */
    uint32_t chunk_count;
    const uint32_t *chunks;
    bool newest;      /* async: the version that each chunk has now; `version` does not count */
    uint64_t attempt; /* newest: for which attempt, in the order log; 0: for none */
};

enum to_shard_kind { TO_SHARD_HELLO = 1, TO_SHARD_PUSH, TO_SHARD_PULL };

struct to_shard {
    enum to_shard_kind kind;
    union {
        struct {
            uint64_t member;
            struct proof secret; /* from JoinReply */
        } hello;                 /* the first message of a stream */
        struct push push;
        struct pull pull;
    };
    size_t payload_offset; /* where the payload begins in the message */
    size_t payload_bytes;
};

/* ---- Shard.Exchange, server to worker ---- */

/* Answers one push. ERR_OK: every entry is counted, now or before. Otherwise the entries from
 * `first_refused` on are not counted, and `code` is the error of the first of them. After ERR_BUSY
 * the worker sends these entries again. */
struct push_ack {
    uint64_t id; /* the push's */
    enum err code;
    uint32_t first_refused;
};

/* Published weights: the answer to a pull, or to a part of it. The payload holds the chunks, one
 * after another. */
struct weights {
    uint64_t id;      /* the pull's */
    uint64_t version; /* of all chunks, unless `versions` is there */
    enum codec codec; /* of all chunks but the loss parameter's, which is always fp32 */
    uint32_t chunk_count;
    const uint32_t *chunks;
    const uint64_t *versions; /* async: of each chunk; else NULL */
};

/* A pull that gets no weights now. ERR_TOO_EARLY: the server keeps the pull and sends the weights
 * when they are published; the worker may send another pull. Every other code ends the pull. */
struct pull_refusal {
    uint64_t id; /* the pull's */
    enum err code;
};

enum from_shard_kind {
    FROM_SHARD_WELCOME = 1, /* answers the hello: boot and generation of the server */
    FROM_SHARD_ACK,
    FROM_SHARD_WEIGHTS,
    FROM_SHARD_REFUSAL
};

struct from_shard {
    enum from_shard_kind kind;
    union {
        struct {
            uint64_t boot;
            uint64_t generation;
            uint32_t wire_version; /* 0: one before 3 */
        } welcome;
        struct push_ack ack;
        struct weights weights;
        struct pull_refusal refusal;
    };
    size_t payload_offset;
    size_t payload_bytes;
};

/* ---- Shard.Transfer: from server to server ---- */

/* A chunk that moves, as it is at `version` (P11). The payload holds `arrays` times `weights`
 * values, fp32: weights, then each optimizer state. The answer is empty, or an error. */
struct transfer {
    uint64_t generation;
    uint64_t version;
    uint32_t chunk;
    uint32_t weights; /* of the chunk */
    uint32_t arrays;
    uint32_t wire_version, wire_version_min; /* wire_speaks() */
};

/* ---- Peer.Exchange: between workers ---- */

enum value_way { VALUE_FORWARD, VALUE_BACKWARD, VALUE_WAY_COUNT };

/* What passes between places. The name decides the bits, and is all that fences (S2). */
struct value_name {
    uint64_t generation; /* these four are the ticket's */
    enum ticket_kind kind;
    uint64_t step;
    uint64_t version;
    uint32_t slot;       /* of the step; TICKET_VALIDATE: the piece */
    uint32_t microbatch; /* of the slot */
    uint32_t boundary;   /* the unit whose input it is, or whose input's gradient */
    enum value_way way;
    /* A partial sum, which the members of one place hand each other (S6); then the three before
     * are 0. Else the next three are. */
    uint64_t try_number; /* of the place */
    uint32_t sequence;   /* of the sums of the lease, from 1 on; 0: a value between places */
    uint32_t round;      /* of the sum's exchange */
    uint32_t rank; /* of the member that gives it; between places, who takes it has the same */
};

struct want {
    uint64_t id; /* the sender's number; the answers repeat it */
    struct value_name name;
};

enum to_peer_kind { TO_PEER_HELLO = 1, TO_PEER_WANT };

struct to_peer {
    enum to_peer_kind kind;
    union {
        struct {
            uint64_t member;
            bool fragments; /* a value may come in several messages */
        } hello;            /* the first message of a stream */
        struct want want;
    };
};

enum from_peer_kind { FROM_PEER_HAVE = 1, FROM_PEER_PARKED, FROM_PEER_GONE, FROM_PEER_FRAGMENT };

struct from_peer {
    enum from_peer_kind kind;
    union {
        struct {
            uint64_t id;
            uint64_t digest; /* of name and value */
            uint64_t rest;   /* bytes of the value that follow, in fragments */
        } have;              /* the payload is the value, or begins it */
        struct {
            uint64_t id;
        } parked; /* the value follows when it is there */
        struct {
            uint64_t id;
            enum err code;
        } gone;
        struct {
            uint64_t rest; /* bytes of the value that follow this one */
        } fragment;        /* the payload continues the value that was begun last */
    };
    size_t payload_offset;
    size_t payload_bytes;
};

/* ---- Cluster, worker to coordinator ---- */

enum run_state {
    RUN_NONE,
    RUN_STARTING,
    RUN_TRAINING,
    RUN_ENDED,
    RUN_STOPPED,
    RUN_FAILED,
    RUN_STATE_COUNT
};

struct join_request {
    uint32_t wire_version;
    char name[WIRE_NAME_BYTES]; /* for people; need not be unique */
    char device[64];            /* "cpu", "cuda NVIDIA H200" */
    uint8_t fingerprint[WIRE_DIGEST_BYTES];
    uint8_t data_digest[WIRE_DIGEST_BYTES]; /* zeros when the daemons serve the data */
    uint64_t previous_member; /* this process's earlier membership, which ends; 0: none */
    struct proof previous_secret;
    char address[WIRE_ADDRESS_BYTES]; /* host:port that other workers reach; "": none may */
    uint32_t devices;                 /* that compute one ticket together; 0 is 1 */
    /* Not on the wire, but of the caller's connection: */
    uint64_t certificate;             /* 0: none */
    char host[64];                    /* its address without a port */
    uint8_t shown[WIRE_DIGEST_BYTES]; /* SHA-256 of the whole certificate; zeros: none */
};

/* A worker opens the stream after Join and keeps it open. The first report names the member; the
 * following ones are heartbeats. */
struct member_report {
    uint64_t member;
    struct proof secret;
    uint64_t kept_bytes; /* of values that it keeps for others of its leases */
    /* S7: a peer that does not answer, in the lease `attempt`; 0: all do. */
    uint64_t unreachable, attempt;
    uint32_t wait_count; /* attempts of leases in which its place waits for a peer */
    const uint64_t *waits;
};

enum notice_kind {
    NOTICE_ALIVE,
    NOTICE_CHANGED,
    NOTICE_RUN_OVER,
    NOTICE_PLACES,
    NOTICE_KIND_COUNT
};

struct member_notice {
    enum notice_kind kind;
    const char *text;
    struct places places; /* PLACES: of a lease of the member; without peers it is over */
};

struct leave_request {
    uint64_t member;
    struct proof secret;
    const char *reason;
    struct place place;     /* that was computed last */
    struct place_cost cost; /* there, since the complete before */
};

struct join_reply {
    uint64_t member;
    struct proof secret; /* that the member is who it says: in every stream's first message and
                            every call of it */
    uint64_t run;
    uint64_t generation;
    uint32_t heartbeat_ms;
    uint32_t lease_ms;
};

struct acquire_request {
    uint64_t member;
    struct proof secret;
    uint64_t generation;
    uint64_t sequence; /* rises with each new acquire; the same one gets the same lease (P1) */
    uint32_t wait_ms;  /* how long the coordinator may keep the question */
};

enum acquire_result { ACQUIRE_TICKET = 1, ACQUIRE_WAIT, ACQUIRE_END };

struct acquire_reply {
    enum acquire_result result; /* WAIT: nothing free, ask again; END: the run is over */
    struct ticket ticket;
    uint64_t map_number; /* of the chunk map for the ticket's version; 0: not given */
    struct place place;
    struct places places; /* of the ticket's lease */
    uint32_t lease_count; /* attempts whose values the member keeps; others are over (S3) */
    const uint64_t *leases;
};

/* The values that a place gave to another, or took from it, over one boundary, one way. */
struct boundary_sum {
    uint32_t boundary;
    enum value_way way;
    bool given;     /* else taken */
    uint32_t stage; /* of the other place */
    uint64_t sum;   /* of the values' digests, modulo 2^64 */
};

struct complete_request {
    uint64_t member;
    struct proof secret;
    struct ticket ticket;
    enum err outcome; /* OK: all pushes are acknowledged; else why the worker dropped the ticket */
    /* TICKET_VALIDATE only: */
    double loss_sum;
    uint64_t sample_count;
    uint64_t correct_count;
    /* async, outcome OK: boots of the servers that acknowledged, in the map's order (P12) */
    uint32_t boot_count;
    const uint64_t *boots;
    struct place place;     /* that is complete, or given up */
    uint64_t unreachable;   /* the member that it waited for in vain; 0: nobody (S7) */
    struct place_cost cost; /* of tickets computed there since the complete before */
    /* outcome OK, of a mesh: each boundary, way and direction once; count 0: not said */
    uint32_t boundary_count;
    const struct boundary_sum *boundaries;
    bool again; /* an earlier one was not answered: when this comes does not tell what it took */
    /* outcome OK, of a place of several members: the sum of the digests of those gradients that each
     * of them has (worker/replicated.h); 0: not said */
    uint64_t replicated;
};

struct samples_request {
    uint64_t run;
    uint64_t member;
    struct proof secret;
    struct ticket ticket;
    uint32_t slot;
};

struct samples_reply {
    uint32_t sample_count;
    struct slice inputs;  /* int32 or float32 */
    struct slice targets; /* int32 */
};

/* ---- Cluster.Serve: one stream between each server and the coordinator ---- */

struct cut_name {
    uint64_t generation;
    uint64_t version;
};

/* A cut that is recorded, and the oldest that its coordinator may still go back to; generation 0: not
 * known. */
struct recorded_cut {
    uint64_t generation, version;
    struct cut_name oldest;
};

/* A chunk's part of a seal. */
struct chunk_seal {
    uint32_t chunk;
    bool finite;
    double sumsq; /* of the summed, unscaled gradient */
};

/* A seal: the sender's chunks of a step are reduced. */
struct reduced {
    uint64_t generation;
    uint64_t step;
    uint32_t seal_count;
    const struct chunk_seal *seals;
    bool has_loss; /* true: the sender owns the loss chunk, and fills the following fields */
    double loss_sum;
    double sample_count;
    double correct_count;
};

/* The coordinator's one decision for a step. It has done all scalar arithmetic. */
struct commit {
    uint64_t generation;
    uint64_t term;
    uint64_t step; /* the commit makes version step + 1 */
    bool apply;    /* false: skip the step; the version rises, the weights stay */
    bool cut;      /* version step + 1 is a cut */
    float scale;   /* gradient factor: 1 / samples, times the clip factor */
    float lr;
    float bias1; /* adamw: 1 - beta1^n, n the number of applied updates, this one included */
    float bias2;
    uint64_t samples; /* the coordinator's counters after this step (P8) */
    uint64_t applied;
    uint64_t skips_in_row;
};

enum server_report_kind {
    SERVER_HELLO = 1,
    SERVER_READY, /* its chunks are initialised or loaded, or cannot be */
    SERVER_REDUCED,
    SERVER_COMMITTED,
    SERVER_MANIFEST, /* the cut's file is durable, or could not be written */
    SERVER_WRONG_BITS,
    SERVER_STATISTICS,
    SERVER_DRAIN,  /* it is about to end, and gives its chunks away first */
    SERVER_HELD,   /* what it holds of a run: the answer to a new coordinator that asks (P7) */
    SERVER_MISSING /* the slots that a thread lacks of a step: the answer to SERVER_ASK_MISSING */
};

/* Chunks [first, first + count) live on `server`, an index into the run's servers. */
struct chunk_range {
    uint32_t first;
    uint32_t count;
    uint32_t server;
};

/* What a server holds of a run. */
struct server_held {
    uint64_t run;
    uint64_t generation; /* 0: it holds nothing that a run can go on with */
    uint64_t version;    /* with which it began this generation */
    uint64_t spec;       /* digest of the spec and the checkpoint folder of its prepare command */
    uint32_t range_count;
    const struct chunk_range *ranges; /* its chunks */
    bool has_decision;
    struct commit decision; /* the newest commit that it got */
    uint32_t file;          /* number of its file in that cut; WIRE_FILE_NONE: it has none */
    uint32_t attempt;       /* the newest at that cut */
};

/* A chunk's part that lacks a slot. */
struct lack {
    uint32_t slot, chunk, part;
};

struct server_report {
    enum server_report_kind kind;
    uint64_t boot; /* of the reporting server */
    union {
        struct {
            char name[WIRE_NAME_BYTES];
            char address[256];            /* where workers reach it */
            uint64_t generation, version; /* what it holds in memory; 0, 0: nothing */
            uint64_t term;                /* the highest it has obeyed (P7); 0: none */
            uint64_t prepared; /* the highest generation since its start; 0: none, or not known */
            uint32_t wire_version, wire_version_min; /* wire_speaks() */
        } hello;
        struct {
            struct cut_name cut; /* the version that it holds now */
            enum err code;       /* not OK: it cannot hold its chunks; `text` has the reason */
            const char *text;
            /* async: the tickets that every chunk of the server has taken. These are all below
             * applied_low, and applied_low + n where bit n of `applied` is set. */
            uint64_t applied_low;
            uint32_t applied_words;
            const uint64_t *applied;
            uint64_t invitation; /* of the newest Prepare that it obeyed */
        } ready;
        struct reduced reduced;
        struct {
            uint64_t generation;
            uint64_t step;
        } committed;
        struct {
            struct cut_name cut;
            uint32_t attempt;                  /* which of the commit's */
            enum err code;                     /* not OK: this server could not write the cut */
            uint8_t digest[WIRE_DIGEST_BYTES]; /* SHA-256 of its file's header */
        } manifest;
        struct {
            uint64_t member;       /* sent the duplicate, whose digest differs */
            uint64_t first_member; /* sent the push that was counted */
            uint64_t step;
            struct node node;
            uint32_t chunk;
        } wrong_bits;
        struct {
            uint64_t pushed_bytes, spared_bytes, pulled_bytes;
            uint64_t duplicates, open_nodes_max, audited;
            bool journal_full; /* it waits for room, and acknowledges no gradient meanwhile */
        } statistics;
        struct server_held held;
        struct {
            uint64_t generation, step, question; /* of the command */
            uint32_t word_count;
            const uint64_t *slots; /* bit n of word w: some chunk lacks slot 64 w + n */
            uint32_t lack_count;
            const struct lack *lacks; /* of the lowest of them, one for each */
        } missing;
    };
};

enum server_command_kind {
    SERVER_PREPARE = 1, /* own these chunks in this generation, new ones or those of a cut */
    SERVER_COMMIT,
    SERVER_RECORDED,   /* a cut is recorded: delete what nobody goes back to (P9) */
    SERVER_END,        /* the run is over: forget it */
    SERVER_LEAVE,      /* no one needs the server any more: it may end (P11) */
    SERVER_ENDED,      /* these members are none any more */
    SERVER_ASK,        /* answer with SERVER_HELD, and send all reports again (P7) */
    SERVER_ASK_MISSING /* answer with SERVER_MISSING when slots of the open step are */
};

/* Chunks that move with a commit (P11), as the server that gets the commit sees them. */
struct server_move {
    uint32_t first;
    uint32_t count;
    const char *to; /* address of their new owner; "": this server is */
};

struct server_command {
    enum server_command_kind kind;
    uint64_t term;
    uint64_t boot;                  /* which start of the server this is for (P3) */
    uint8_t key[WIRE_DIGEST_BYTES]; /* of the term: makes and checks proofs */
    union {
        struct {
            uint64_t run;
            uint64_t generation;
            bool from_cut;
            struct cut_name cut; /* when from_cut */
            const char *spec;    /* YAML */
            const char *checkpoint_dir;
            const char *restore; /* file with the initial weights; "": from the seed */
            uint32_t server;     /* the receiver's own index */
            bool joins; /* the run goes on at cut.version; chunks come to this server later (P11) */
            bool cuts;  /* write what it begins with at once, as a cut of this generation */
            uint64_t invitation; /* when it joins: never the same again; READY repeats it */
            uint32_t range_count;
            const struct chunk_range *ranges;
        } prepare;
        struct commit commit;
        struct recorded_cut recorded;
        struct {
            uint64_t generation;
            uint64_t step; /* the newest that they may have tickets of; UINT64_MAX: any (async) */
            uint32_t member_count;
            const uint64_t *members;
        } ended;
        struct {
            uint64_t generation, step;
            uint64_t question; /* the answer repeats it */
        } ask_missing;
    };
    /* SERVER_COMMIT: */
    uint32_t file;    /* number of the receiver's file in this cut, or WIRE_FILE_NONE */
    uint32_t attempt; /* at writing the cut; above 0: there was no room for it */
    uint32_t move_count;
    const struct server_move *moves;
};

/* ---- Cluster, what there is to join ---- */

/* A block of a parameter, which is a matrix: rows [row, row + rows), columns [col, col + cols). */
struct chunk_description {
    const char *parameter;
    uint32_t row, rows, col, cols;
    uint32_t parts; /* contributions of each node */
};

struct server_description {
    const char *name;
    const char *address; /* where workers reach it */
    uint64_t boot;
    bool connected;
    uint32_t chunks;             /* that it owns */
    const char *state;           /* a word for people; NULL is "" */
    uint64_t certificate_ends_s; /* of its stream; 0: there is none */
};

struct describe_request {
    bool with_chunks;
};

struct describe_reply {
    uint32_t wire_version, wire_version_min;
    bool has_run;
    uint64_t run;
    uint64_t generation;
    enum run_state state;
    const char *spec; /* YAML */
    uint8_t data_digest[WIRE_DIGEST_BYTES];
    uint64_t samples;
    uint64_t validation_samples;
    uint32_t chunk_count; /* 0, unless the request has with_chunks */
    const struct chunk_description *chunks;
    uint32_t server_count;
    const struct server_description *servers;
    uint32_t range_count;
    const struct chunk_range *ranges;
    uint64_t map_number;
};

/* ---- Cluster, operators ---- */

struct start_run_request {
    const char *spec;
    uint32_t servers_min;
    bool resume;
    const char *directory;
    uint8_t data_digest[WIRE_DIGEST_BYTES];
    uint64_t samples;
    uint64_t validation_samples;
    const char *restore;    /* file with the initial weights; "": from the seed */
    double unigram_entropy; /* nats, of text as bytes; 0: unknown */
};

struct start_run_reply {
    uint64_t run;
    const char *notes;
};

struct stop_run_request {
    const char *reason;
};

struct products_request {
    uint64_t run;
    const char *products;
};

struct products_reply {
    const char *products;
};

struct drain_request {
    const char *server;
    bool lost; /* it will not come back: the run goes on from its newest recorded cut */
};

struct drain_reply {
    bool drained;
    uint32_t chunks_left;
    const char *waits_for;
};

/* Chunks that changed their server since the run was started or continued. */
struct move_status {
    uint64_t chunks, bytes, commits;
    double gap_ms_max; /* the longest step while chunks were moving */
    double step_ms;    /* the mean of the other steps */
    uint64_t servers_added, servers_drained;
};

/* Tickets that a second worker computed on purpose. */
struct audit_status {
    double share; /* of tickets; 0: none */
    uint64_t chosen, agreed, differed, not_compared;
    uint64_t ms;     /* of the attempts that came second */
    uint64_t pushes; /* that came second, chunk by chunk; no duplicates */
    /* as a mean, until a worker is named that computes 1 in 100 of its tickets wrongly: of its own
     * tickets; of the run, with the workers that are there (0: none is) */
    double tickets_to_name, steps_to_name;
};

struct member_status {
    uint64_t member;
    const char *name;
    const char *device;
    const char *state;
    const char *reason;
    uint64_t tickets;
    double silent_seconds;
    uint64_t certificate_ends_s; /* of its stream; 0: there is none */
    uint64_t kept_bytes;         /* of values that it keeps for others of its leases */
};

/* A place of an open lease of a mesh. */
struct place_status {
    enum ticket_kind kind;
    uint64_t step; /* validation: the version */
    uint32_t slot, slots;
    uint64_t attempt;
    bool copy;
    uint32_t stage, rank;
    uint64_t member; /* 0: nobody has it */
    const char *name;
    bool done;
    uint32_t tries; /* of the place: 1, and one more with each loss */
    double seconds; /* since the member has it, or it is empty */
};

/* Two members that failed to reach each other. */
struct unreachable_status {
    const char *worker, *other;
    uint32_t times;
    bool apart; /* they are not put side by side any more */
};

struct status_reply {
    enum run_state state;
    bool stops; /* it will be over after a checkpoint */
    const char *reason;
    const char *directory;   /* of the run, on the coordinator's machine; "": no run */
    const char *coordinator; /* a server's name */
    uint64_t run, generation;
    uint64_t step, steps;
    double loss, accuracy;
    double validation_loss, validation_accuracy;
    bool has_validation;
    uint64_t samples;
    double seconds;
    uint64_t samples_here;
    uint64_t workers_joined, workers_lost;
    uint64_t tickets_redone, duplicates, skipped_steps;
    struct cut_name cut;
    const char *cut_state;
    uint64_t pushed_bytes, spared_bytes, pulled_bytes; /* spared: of the pushed, did not travel */
    double lr, norm;
    uint64_t member_ms, useful_ms, wasted_ms;
    uint64_t map_number;
    struct move_status moves;
    struct audit_status audits;
    uint32_t cost_count;
    const struct place_cost *costs; /* of each place: sums of times and peer_bytes, else the most */
    uint64_t validation_peer_bytes; /* of all places' */
    uint32_t member_count;
    const struct member_status *members;
    uint32_t server_count;
    const struct server_description *servers;
    uint32_t place_count; /* the oldest lease's first */
    const struct place_status *places;
    uint32_t unreachable_count;
    const struct unreachable_status *unreachable;
};

/* Whether a server that speaks those versions speaks one that is spoken here. 0, 0: it does not say
 * so, as none did before there was a range, and speaks 2. */
static inline bool wire_speaks(uint32_t oldest, uint32_t newest)
{
    uint32_t unsaid = newest == 0 ? 2 : 0;
    return oldest + unsaid <= WIRE_VERSION && newest + unsaid >= WIRE_VERSION_MIN;
}

/* ---- bytes ----
 *
 * wire_encode_X appends the message to `buf`: ERR_NOMEM, ERR_BUSY past the buffer's limit.
 * wire_decode_X reads one whole message. Pointers in the result lead into `arena`, and are valid
 * until it is released. ERR_MALFORMED: the reason names the field and its limit; ERR_NOMEM: the
 * message needs more than the arena's cap. Any thread. */

struct arena;

#define WIRE_MESSAGES(X)                                                                           \
    X(join_request)                                                                                \
    X(join_reply)                                                                                  \
    X(member_report)                                                                               \
    X(member_notice)                                                                               \
    X(acquire_request)                                                                             \
    X(acquire_reply)                                                                               \
    X(complete_request)                                                                            \
    X(leave_request)                                                                               \
    X(samples_request)                                                                             \
    X(samples_reply)                                                                               \
    X(products_request)                                                                            \
    X(products_reply)                                                                              \
    X(describe_request)                                                                            \
    X(describe_reply)                                                                              \
    X(start_run_request)                                                                           \
    X(start_run_reply)                                                                             \
    X(stop_run_request)                                                                            \
    X(cut_name) /* CheckpointReply */                                                              \
    X(drain_request)                                                                               \
    X(drain_reply)                                                                                 \
    X(status_reply)                                                                                \
    X(server_report)                                                                               \
    X(server_command)                                                                              \
    X(to_peer)

#define WIRE_DECLARE(name)                                                                         \
    enum err wire_encode_##name(const struct name *message, struct buf *buf) MUST_USE;             \
    enum err wire_decode_##name(struct slice bytes, struct arena *arena, struct name *ret_message, \
                                struct reason *reason) MUST_USE;
WIRE_MESSAGES(WIRE_DECLARE)
#undef WIRE_DECLARE

/* The header of a transfer; the caller sends the payload behind it. Of a transfer that was
 * received, *ret_payload is the payload, a part of `bytes`, as long as the header tells. */
enum err wire_encode_transfer(const struct transfer *message, struct buf *buf) MUST_USE;
enum err wire_decode_transfer(struct slice bytes, struct arena *arena, struct transfer *ret_message,
                              struct slice *ret_payload, struct reason *reason) MUST_USE;

/* Data messages: the header. The caller sends the payload of `payload_bytes` behind it. The payload
 * field's tag and length are a part of the header; without a payload they are left out. */
enum err wire_encode_to_shard(const struct to_shard *message, struct buf *buf) MUST_USE;
enum err wire_encode_from_shard(const struct from_shard *message, struct buf *buf) MUST_USE;

/* `slices` are the received message. The decoder reads only the header, and copies it to the arena
 * when it spans slices. payload_offset and payload_bytes of the result are the payload's place in
 * the message. A push's payload has as many bytes as its entries together. */
enum err wire_decode_to_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                              struct to_shard *ret_message, struct reason *reason) MUST_USE;
enum err wire_decode_from_shard(const struct slice *slices, size_t slice_count, struct arena *arena,
                                struct from_shard *ret_message, struct reason *reason) MUST_USE;

/* The same between workers: a value is the payload. */
enum err wire_encode_from_peer(const struct from_peer *message, struct buf *buf) MUST_USE;
enum err wire_decode_from_peer(const struct slice *slices, size_t slice_count, struct arena *arena,
                               struct from_peer *ret_message, struct reason *reason) MUST_USE;

#endif
