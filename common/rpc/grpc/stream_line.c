/* A stream whose messages go through shared memory: a line (common/shared/lines.h).
 *
 * A client's beginning says its machine. A server on the same machine answers with the offer of a
 * line; over TLS nobody else can read it. The client connects there. When the server has the link,
 * it says over the line how many messages it has given to the connection, and gives it no more: from
 * then on they go over the line. The client answers with the same words. So each end knows which
 * messages come before the line's first one, and the order stays.
 *
 * From the offer on the line's thread brings all events, one after another; the polling thread leaves
 * for it what the connection brings: messages, words that something was sent, the end. A client that
 * does not connect costs that way and no more.
 *
 * What comes over the line is copied before it is judged, and then immutable. The link's end says
 * nothing: the connection's does. */
#include "common/rpc/grpc/stream.h"

#include <stddef.h>
#include <string.h>

enum {
    AT_ONCE_BYTES_MAX = 64 << 10, /* of a message that whoever sends it writes */
    TURN_BYTES_MAX = 1 << 20,     /* that are read before other lines have their turn, … */
    MESSAGE_COST_BYTES = 1 << 10  /* … where a message counts as so many more */
};

enum word { WORD_MESSAGE = 1, WORD_SWITCH = 2, WORD_LOAN = 3 };

#define MACHINE_KEY "roost-machine"
#define LINE_KEY "roost-line"
enum { WORD_TEXT_BYTES = 2 * SHARED_LINK_WORD_BYTES };

/* ---- the offer ---- */

static const grpc_metadata *find_said(const grpc_metadata_array *metadata, const char *key)
{
    for (size_t i = 0; i < metadata->count; i++)
        if (grpc_slice_str_cmp(metadata->metadata[i].key, key) == 0)
            return &metadata->metadata[i];
    return NULL;
}

/* "": it does not tell. */
static const char *machine_of(const struct rpc_loop *loop)
{
    const struct lines *lines = loop->pollers[0].lines;
    return lines != NULL ? lines_machine(lines) : "";
}

/* Any of them. */
static struct lines *next_lines(struct rpc_loop *loop)
{
    unsigned next = atomic_fetch_add_explicit(&loop->next_lines, 1, memory_order_relaxed);
    return loop->pollers[next % loop->poller_count].lines;
}

bool rpc_is_near(const struct rpc_loop *loop, const grpc_metadata_array *metadata)
{
    const grpc_metadata *said = find_said(metadata, MACHINE_KEY);
    const char *machine = machine_of(loop);
    return said != NULL && machine[0] != 0 && grpc_slice_str_cmp(said->value, machine) == 0;
}

static void say_at_beginning(struct rpc_stream *stream, const char *key, const char *text)
{
    stream->said = (grpc_metadata){.key = grpc_slice_from_static_string(key),
                                   .value = grpc_slice_from_copied_string(text)};
    stream->says = true;
}

void stream_line_ask(struct rpc_stream *stream)
{
    const char *machine = machine_of(stream->loop);
    if (machine[0] != 0)
        say_at_beginning(stream, MACHINE_KEY, machine);
}

static enum line_state serve_line(struct line *line);

/* "NAME WORD", the word in hexadecimal digits. */
void stream_line_offer(struct rpc_stream *stream)
{
    struct line_offer offer;
    struct reason reason;
    char text[LINES_NAME_BYTES + 1 + WORD_TEXT_BYTES + 1];
    if (line_offer(next_lines(stream->loop), serve_line, &stream->line, &offer, &reason) != ERR_OK)
        return;
    int at = snprintf(text, sizeof text, "%s ", offer.name);
    for (size_t i = 0; i < sizeof offer.word; i++)
        at += snprintf(text + at, sizeof text - (size_t)at, "%02x", offer.word[i]);
    say_at_beginning(stream, LINE_KEY, text);
    stream->lined = true;
}

void stream_line_opened(struct rpc_stream *stream)
{
    atomic_store_explicit(&stream->opened, true, memory_order_release);
    if (stream->lined)
        line_kick(&stream->line);
}

static int digit_of(uint8_t letter)
{
    const char *digits = "0123456789abcdef", *at = strchr(digits, letter);
    return letter != 0 && at != NULL ? (int)(at - digits) : -1;
}

static bool read_offer(struct slice text, struct line_offer *ret_offer)
{
    *ret_offer = (struct line_offer){.name = ""};
    const uint8_t *space = memchr(text.data, ' ', text.bytes);
    size_t name_bytes = space != NULL ? (size_t)(space - text.data) : 0;
    if (name_bytes == 0 || name_bytes >= sizeof ret_offer->name ||
        text.bytes != name_bytes + 1 + WORD_TEXT_BYTES)
        return false;
    memcpy(ret_offer->name, text.data, name_bytes);
    for (size_t i = 0; i < sizeof ret_offer->word; i++) {
        int high = digit_of(space[1 + 2 * i]), low = digit_of(space[2 + 2 * i]);
        if (high < 0 || low < 0)
            return false;
        ret_offer->word[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

void stream_line_answered(struct rpc_stream *stream)
{
    const grpc_metadata *said = find_said(&stream->initial, LINE_KEY);
    struct line_offer offer;
    struct reason reason;
    if (!stream->says || said == NULL ||
        !read_offer(
            (struct slice){GRPC_SLICE_START_PTR(said->value), GRPC_SLICE_LENGTH(said->value)},
            &offer))
        return;
    stream->lined = true; /* first: serve_line() may begin at once */
    stream->lined = line_connect(next_lines(stream->loop), &offer, serve_line, &stream->line,
                                 &reason) == ERR_OK;
}

/* ---- what the connection brings ---- */

void stream_line_brought(struct rpc_stream *stream, struct rpc_message *take_message)
{
    struct brought *brought = malloc(sizeof *brought);
    if (brought == NULL) {
        rpc_message_unref(take_message);
        stream_give_up(stream, ERR_NOMEM, &(struct reason){.text = "no memory for a message"});
        return;
    }
    *brought = (struct brought){.message = take_message};
    thread_lock(&stream->lock);
    *stream->brought_end = brought;
    stream->brought_end = &brought->next;
    thread_unlock(&stream->lock);
    line_kick(&stream->line);
}

void stream_line_sent(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    stream->sent_due++;
    thread_unlock(&stream->lock);
    line_kick(&stream->line);
}

void stream_line_ended(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    stream->ended_due = true;
    thread_unlock(&stream->lock);
    line_kick(&stream->line);
}

void stream_line_over(struct rpc_stream *stream)
{
    rpc_stream_ref(stream); /* once it is due, the line's thread may close it before it is kicked */
    thread_lock(&stream->lock);
    stream->close_due = true;
    thread_unlock(&stream->lock);
    line_kick(&stream->line);
    rpc_stream_unref(stream);
}

/* ---- the line's thread: events ---- */

static struct brought *next_brought(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    struct brought *brought = stream->brought;
    if (brought != NULL)
        stream->brought = brought->next;
    if (stream->brought == NULL)
        stream->brought_end = &stream->brought;
    thread_unlock(&stream->lock);
    return brought;
}

static bool is_loan(const struct rpc_stream *stream)
{
    return stream->lending.bytes > 0;
}

/* The one that is written no more; NULL: it is lent, and comes back later. */
static struct outbound *end_writing_locked(struct rpc_stream *stream)
{
    struct outbound *ended = is_loan(stream) ? NULL : stream->writing;
    buf_clear(&stream->lending);
    stream->writing = NULL;
    return ended;
}

/* What was written in part: the line is in the middle of a message, and takes no other one. */
static void drop_written(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    stream->deaf = true;
    struct outbound *written = end_writing_locked(stream);
    thread_unlock(&stream->lock);
    outbound_free(written);
}

/* The other end wrote what nobody writes: nothing of it is read or written any more. */
static void break_line(struct rpc_stream *stream, enum err err, const struct reason *reason)
{
    drop_written(stream);
    stream_give_up(stream, err, reason);
    stream_drop_queued(stream); /* nobody may push any more */
}

/* More came over the connection than the other end says that it gave there. */
static bool is_beside(const struct rpc_stream *stream)
{
    return stream->switched_there && stream->brought_count > stream->before;
}

#define BESIDE "a message beside the stream's shared memory"

static void bring_brought(struct rpc_stream *stream)
{
    struct brought *brought;
    while ((brought = next_brought(stream)) != NULL) {
        stream->brought_count++;
        stream_bring(stream, brought->message);
        free(brought);
        if (is_beside(stream))
            break_line(stream, ERR_MALFORMED, &(struct reason){.text = BESIDE});
    }
}

static void bring_sent(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    uint32_t count = stream->sent_due;
    size_t queued = stream_queued_locked(stream);
    stream->sent_due = 0;
    thread_unlock(&stream->lock);
    for (; count > 0 && stream->events->sent != NULL && !stream->refused; count--)
        stream->events->sent(stream->owner, stream, queued);
}

static void bring_ended(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool due = stream->ended_due;
    stream->ended_due = false;
    thread_unlock(&stream->lock);
    if (due && stream->events->ended != NULL)
        stream->events->ended(stream->owner, stream);
    else if (due)
        rpc_stream_finish(stream, ERR_OK, NULL);
}

/* ---- what comes over the line ---- */

static enum err take_switch(struct rpc_stream *stream, const struct line_words *words,
                            uint64_t payload_bytes, struct reason *reason)
{
    if (stream->switched_there || payload_bytes != 0)
        return reason_set(reason, ERR_MALFORMED, "a stream that changes to shared memory twice");
    stream->switched_there = true;
    stream->before = words->given;
    return is_beside(stream) ? reason_set(reason, ERR_MALFORMED, BESIDE) : ERR_OK;
}

/* The next message, which is empty until its bytes come. ERR_BUSY: none has begun. */
static enum err begin_message(struct rpc_stream *stream, struct reason *reason)
{
    struct slice header;
    uint64_t bytes;
    struct line_words words;
    TRY(shared_link_next(stream->line.link, &header, &bytes, reason));
    if (header.bytes != sizeof words)
        return reason_set(reason, ERR_MALFORMED, "a message with %zu bytes of words", header.bytes);
    memcpy(&words, header.data, sizeof words);
    if (words.word == WORD_SWITCH)
        return take_switch(stream, &words, bytes, reason);
    if ((words.word != WORD_MESSAGE && words.word != WORD_LOAN) || !stream->switched_there)
        return reason_set(reason, ERR_MALFORMED, "shared memory with words that nobody writes");
    if (bytes > stream->message_bytes_max)
        return reason_set(reason, ERR_MALFORMED, "message has %zu bytes, the limit is %zu",
                          (size_t)bytes, stream->message_bytes_max);
    stream->arriving = rpc_message_empty((size_t)bytes, &stream->arriving_data);
    stream->arrived_bytes = 0;
    stream->words = words;
    return stream->arriving != NULL ? ERR_OK
                                    : reason_set(reason, ERR_NOMEM, "no memory for a message");
}

/* Copies what is there of the message, whose bytes may change meanwhile: the copy counts. ERR_BUSY:
 * more is to come. */
static enum err copy_message(struct rpc_stream *stream, struct reason *reason)
{
    struct shared_link *link = stream->line.link;
    while (stream->arrived_bytes < stream->arriving->bytes) {
        struct slice there;
        TRY(shared_link_look(link, &there, reason));
        if (there.bytes == 0)
            return ERR_BUSY;
        memcpy(stream->arriving_data + stream->arrived_bytes, there.data, there.bytes);
        shared_link_took(link, there.bytes);
        stream->arrived_bytes += there.bytes;
    }
    return ERR_OK;
}

/* What the other end gave back before it wrote a message is this side's again when the message is
 * brought: its owner may use that memory then. */
static void take_back(struct rpc_stream *stream)
{
    struct outbound *returned;
    do {
        thread_lock(&stream->lock);
        returned = stream_loan_next_locked(stream);
        thread_unlock(&stream->lock);
        outbound_free(returned); /* without the lock: they may release their parts */
    } while (returned != NULL);
}

static enum err read_message(struct rpc_stream *stream, size_t *left, struct reason *reason)
{
    if (stream->arriving == NULL)
        TRY(begin_message(stream, reason));
    if (stream->arriving == NULL)
        return ERR_OK; /* it was a word */
    TRY(copy_message(stream, reason));
    struct rpc_message *message = stream->arriving;
    stream->arriving = NULL;
    if (stream->words.word == WORD_LOAN)
        TRY(stream_loan_take(stream, message, &message, reason));
    size_t bytes = message->bytes + MESSAGE_COST_BYTES;
    *left -= *left < bytes ? *left : bytes;
    take_back(stream);
    stream_bring(stream, message);
    return ERR_OK;
}

/* Nothing is read: nobody is there who could take it, the messages that come before are not there yet,
 * or what comes is nonsense. */
static bool reads_nothing(const struct rpc_stream *stream)
{
    return !atomic_load_explicit(&stream->opened, memory_order_acquire) || stream->deaf ||
           (stream->switched_there && stream->brought_count < stream->before);
}

/* Until there is nothing more, or other lines have their turn: false. */
static bool read_line(struct rpc_stream *stream)
{
    struct reason reason = {0};
    enum err err = ERR_OK;
    size_t left = TURN_BYTES_MAX;
    while (err == ERR_OK && left > 0 && !reads_nothing(stream))
        err = read_message(stream, &left, &reason);
    if (err != ERR_OK && err != ERR_BUSY)
        break_line(stream, err, &reason);
    return left > 0;
}

/* ---- what goes over the line ---- */

static struct slice slice_of_words(const struct line_words *words)
{
    return (struct slice){(const uint8_t *)words, sizeof *words};
}

/* A server does when it has the link, a client when the server has: then both have it. */
static enum err switch_over(struct rpc_stream *stream, struct reason *reason)
{
    enum err err = ERR_OK;
    thread_lock(&stream->lock);
    if (!stream->switched && !stream->over && !stream->deaf &&
        (stream->server || stream->switched_there)) {
        const struct line_words words = {.word = WORD_SWITCH, .given = stream->given};
        err = shared_link_begin(stream->line.link, slice_of_words(&words), 0, reason);
        stream->switched = err == ERR_OK;
    }
    thread_unlock(&stream->lock);
    return err == ERR_BUSY ? ERR_OK : err; /* with the next news */
}

/* More of the message that is being written, as far as there is room. ERR_BUSY: not all of it. */
static enum err write_some_locked(struct rpc_stream *stream, struct slice bytes,
                                  struct reason *reason)
{
    size_t written = 0;
    TRY(shared_link_write(stream->line.link, bytes.data, bytes.bytes, &written, reason));
    stream->written_bytes += written;
    return written == bytes.bytes ? ERR_OK : ERR_BUSY;
}

static enum err write_slices_locked(struct rpc_stream *stream, struct reason *reason)
{
    const grpc_slice_buffer *buffer = &stream->writing->bytes->data.raw.slice_buffer;
    size_t skip = stream->written_bytes;
    for (size_t i = 0; i < buffer->count; i++) {
        size_t bytes = GRPC_SLICE_LENGTH(buffer->slices[i]);
        const uint8_t *data = GRPC_SLICE_START_PTR(buffer->slices[i]);
        if (skip < bytes)
            TRY(write_some_locked(stream, (struct slice){data + skip, bytes - skip}, reason));
        skip -= skip < bytes ? skip : bytes;
    }
    return ERR_OK;
}

static size_t bytes_to_write(const struct rpc_stream *stream)
{
    return is_loan(stream) ? stream->lending.bytes
                           : grpc_byte_buffer_length(stream->writing->bytes);
}

/* ERR_BUSY: there is no room for all of it. */
static enum err write_message_locked(struct rpc_stream *stream, struct reason *reason)
{
    const struct line_words words = {is_loan(stream) ? WORD_LOAN : WORD_MESSAGE, 0, stream->loan,
                                     stream->extents};
    if (!stream->begun)
        TRY(shared_link_begin(stream->line.link, slice_of_words(&words), bytes_to_write(stream),
                              reason));
    stream->begun = true;
    if (!is_loan(stream))
        return write_slices_locked(stream, reason);
    struct slice rest = buf_slice(&stream->lending);
    rest.data += stream->written_bytes;
    rest.bytes -= stream->written_bytes;
    return write_some_locked(stream, rest, reason);
}

static void choose_next_locked(struct rpc_stream *stream)
{
    stream->writing = stream_next_locked(stream);
    stream->begun = false;
    stream->written_bytes = 0;
    stream->loan = stream->extents = 0;
    if (stream->writing != NULL)
        stream_loan_begin_locked(stream, stream->writing);
}

/* True: a message was written, and *ret_free is to be freed, if it is not NULL. False: there is none,
 * or no room (*ret_err), or it is longer. */
static bool write_next_locked(struct rpc_stream *stream, size_t bytes_max,
                              struct outbound **ret_free, enum err *ret_err, struct reason *reason)
{
    if (stream->writing == NULL)
        choose_next_locked(stream);
    if (stream->writing == NULL || bytes_to_write(stream) - stream->written_bytes > bytes_max)
        return false;
    do
        *ret_err = write_message_locked(stream, reason);
    while (*ret_err == ERR_BUSY && !shared_link_rests_full(stream->line.link));
    if (*ret_err != ERR_OK)
        return false;
    *ret_free = end_writing_locked(stream);
    stream->sent_due++;
    return true;
}

/* Messages of at most so many bytes, in their order. */
static enum err write_out(struct rpc_stream *stream, size_t bytes_max, struct reason *reason)
{
    enum err err = ERR_OK;
    struct outbound *returned, *written;
    bool more;
    do {
        returned = written = NULL;
        more = false;
        thread_lock(&stream->lock);
        if (stream->switched && !stream->over && !stream->deaf) {
            returned = stream_loan_next_locked(stream);
            more = write_next_locked(stream, bytes_max, &written, &err, reason);
        }
        thread_unlock(&stream->lock);
        outbound_free(returned); /* without the lock: they may release their parts */
        outbound_free(written);
    } while (more || (returned != NULL && err == ERR_OK));
    return err == ERR_BUSY ? ERR_OK : err;
}

static bool has_work_locked(const struct rpc_stream *stream)
{
    return stream->sent_due > 0 || stream->writing != NULL || stream_queued_locked(stream) > 0;
}

void stream_line_pump(struct rpc_stream *stream)
{
    struct reason reason;
    ignore(write_out(stream, AT_ONCE_BYTES_MAX, &reason)); /* the thread will find it as well */
    thread_lock(&stream->lock);
    bool kick = has_work_locked(stream);
    thread_unlock(&stream->lock);
    if (kick)
        line_kick(&stream->line);
}

struct shared_pool *rpc_stream_pool(const struct rpc_stream *stream)
{
    return stream != NULL ? rpc_loop_pool(stream->loop) : NULL;
}

bool rpc_stream_is_shared(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool switched = stream->switched;
    thread_unlock(&stream->lock);
    return switched;
}

/* ---- the line's thread ---- */

static void use_link(struct rpc_stream *stream)
{
    struct reason reason = {0};
    enum err err = switch_over(stream, &reason);
    if (err == ERR_OK)
        err = write_out(stream, SIZE_MAX, &reason);
    if (err != ERR_OK && !stream->deaf)
        break_line(stream, err, &reason);
    stream_pump_connection(stream); /* the end may be due */
}

static bool is_over(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool over = stream->close_due;
    thread_unlock(&stream->lock);
    return over;
}

static bool is_cancelled(struct rpc_stream *stream)
{
    thread_lock(&stream->lock);
    bool cancelled = stream->cancelled;
    thread_unlock(&stream->lock);
    return cancelled;
}

/* A server writes all that it was given before it ends a stream: when the client has the end, the
 * rest is in the ring. Whoever writes on has no more read than that. */
static bool reads_rest(struct rpc_stream *stream)
{
    uint64_t read_bytes = shared_link_read_bytes(stream->line.link);
    if (stream->rest_end == 0)
        stream->rest_end = read_bytes + stream->loop->settings.shared_ring_bytes;
    return !stream->server && !is_cancelled(stream) && !reads_nothing(stream) &&
           read_bytes < stream->rest_end;
}

static void close_line(struct rpc_stream *stream)
{
    line_close(&stream->line);
    rpc_message_unref(stream->arriving);
    stream->arriving = NULL;
    drop_written(stream);
    stream_close(stream);
}

static enum line_state serve_line(struct line *line)
{
    struct rpc_stream *stream = CONTAINER_OF(line, struct rpc_stream, line);
    bool over = is_over(stream); /* then all that came before is there */
    bool all = true;
    bring_brought(stream);
    if (line->link != NULL) {
        all = read_line(stream);
        use_link(stream);
    }
    bring_sent(stream);
    if (all)
        bring_ended(stream);
    if (over && (all || !reads_rest(stream))) {
        close_line(stream);
        return LINE_CLOSED;
    }
    if (!all)
        line_kick(line);
    return !all || reads_nothing(stream) ? LINE_WAITS : LINE_RESTS;
}
