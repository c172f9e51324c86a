/* Messages through shared memory: also from a side that writes nonsense, or dies. */
#include "tests/unit/unit.h"

#include "common/rand.h"
#include "common/shared/shared_link.h"
#include "common/shared/shared_ring.h"
#include "common/time.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, HEAD = 8192, SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static const struct shared_link_options options = {
    .ring_bytes = MIB, .payload_bytes_max = 64 * MIB, .spins = 10};

struct links_fixture {
    uint32_t ring_bytes; /* 0: as `options` has it */
    struct shared_link *a, *b;
    struct reason reason;
};

static uint64_t soon(void)
{
    return time_after_ms(time_now_ns(), 5000);
}

static void links_set_up(struct links_fixture *f)
{
    struct shared_link_options own = options;
    int sockets[2];
    if (f->ring_bytes != 0)
        own.ring_bytes = f->ring_bytes;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    assert_int_equal(shared_link_offer(sockets[0], &own, &f->a, &f->reason), ERR_OK);
    assert_int_equal(shared_link_take(sockets[1], &own, soon(), &f->b, &f->reason), ERR_OK);
}

static void links_tear_down(struct links_fixture *f)
{
    shared_link_free(f->a);
    shared_link_free(f->b);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 7 + i / 4096);
}

/* Reads what is there of a payload, and compares it. */
static size_t compare(struct shared_link *link, size_t at)
{
    struct slice there;
    assert_int_equal(shared_link_look(link, &there, NULL), ERR_OK);
    for (size_t i = 0; i < there.bytes; i += 61)
        assert_int_equal(there.data[i], byte_at(at + i));
    shared_link_took(link, there.bytes);
    return there.bytes;
}

static void pass(struct shared_link *from, struct shared_link *to, const uint8_t *bytes,
                 size_t count)
{
    struct slice header;
    uint64_t payload_bytes;
    size_t written = 0, read = 0, some;
    assert_int_equal(shared_link_begin(from, slice_of("this is it"), count, NULL), ERR_OK);
    assert_int_equal(shared_link_next(to, &header, &payload_bytes, NULL), ERR_OK);
    assert_int_equal(header.bytes, 10);
    assert_memory_equal(header.data, "this is it", 10);
    assert_int_equal(payload_bytes, count);
    while (read < count) {
        assert_int_equal(shared_link_write(from, bytes + written, count - written, &some, NULL),
                         ERR_OK);
        written += some;
        read += compare(to, read);
    }
    assert_int_equal(written, count);
}

TEST_F(sixty_four_mebibytes_pass_through_one, links)
{
    scoped(free_scoped) uint8_t *bytes = malloc(64 * MIB);
    assert_non_null(bytes);
    for (size_t i = 0; i < 64 * MIB; i++)
        bytes[i] = byte_at(i);
    pass(f->a, f->b, bytes, 64 * MIB);
    pass(f->b, f->a, bytes, 3 * MIB);
}

TEST_F(messages_of_any_size_pass_where_the_ring_ends, links, .ring_bytes = PAGE)
{
    scoped(free_scoped) uint8_t *bytes = malloc(MIB);
    assert_non_null(bytes);
    for (size_t i = 0; i < MIB; i++)
        bytes[i] = byte_at(i);
    for (size_t count = 0; count < 600; count++)
        pass(count % 2 == 0 ? f->a : f->b, count % 2 == 0 ? f->b : f->a, bytes, count * 13);
}

TEST_F(what_a_full_ring_has_no_room_for_waits, links, .ring_bytes = PAGE)
{
    struct slice header;
    uint64_t payload_bytes;
    uint32_t begun = 0, come = 0;
    while (shared_link_begin(f->a, slice_of("x"), 0, NULL) == ERR_OK)
        begun++;
    assert_int_equal(begun, PAGE / 64);
    while (shared_link_next(f->b, &header, &payload_bytes, NULL) == ERR_OK)
        come++;
    assert_int_equal(come, begun);
    assert_int_equal(shared_link_begin(f->a, slice_of("x"), 0, NULL), ERR_OK);
}

/* ---- a peer in another process ---- */

/* In the other process: when nothing comes any more, it ends. */
static void wait_here(struct shared_link *link)
{
    if (shared_link_ended(link) || shared_link_wait(&link, 1, soon()) != ERR_OK)
        _exit(1);
}

/* Takes a payload and says nothing. */
static void swallow(struct shared_link *link, uint64_t left)
{
    struct slice there;
    while (left > 0) {
        check(shared_link_look(link, &there, NULL) == ERR_OK);
        shared_link_took(link, there.bytes);
        left -= there.bytes;
        if (left > 0)
            wait_here(link);
    }
}

/* Sends back what comes but for what begins with "s", until the other side is gone. */
static void echo(struct shared_link *link)
{
    struct slice header, there;
    uint64_t bytes, left;
    uint8_t block[3000];
    for (;;) {
        ignore(shared_link_wait(&link, 1, soon())); /* the other side's test says why */
        if (shared_link_ended(link))
            return;
        if (shared_link_next(link, &header, &bytes, NULL) != ERR_OK)
            continue;
        if (header.data[0] == 's') {
            swallow(link, bytes);
            continue;
        }
        while (shared_link_begin(link, header, bytes, NULL) == ERR_BUSY)
            wait_here(link);
        for (left = bytes; left > 0;) {
            check(shared_link_look(link, &there, NULL) == ERR_OK);
            size_t some = there.bytes < sizeof block ? there.bytes : sizeof block, at = 0, wrote;
            memcpy(block, there.data, some);
            shared_link_took(link, some);
            for (; at < some; at += wrote) {
                check(shared_link_write(link, block + at, some - at, &wrote, NULL) == ERR_OK);
                if (at + wrote < some)
                    wait_here(link);
            }
            left -= some;
            if (left > 0 && some == 0)
                wait_here(link);
        }
    }
}

static pid_t start_echo(int listener)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct shared_link *link = NULL;
        check(shared_link_accept(listener, &options, soon(), &link, NULL) == ERR_OK);
        echo(link);
        _exit(0);
    }
    return child;
}

static int listen_here(char ret_name[static 64])
{
    struct reason reason;
    int listener = -1;
    snprintf(ret_name, 64, "roost-test-%d", (int)getpid());
    if (shared_link_listen(ret_name, &listener, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    return listener;
}

static void send_and_hear(struct shared_link *link, uint8_t *bytes, size_t count)
{
    struct slice header;
    uint64_t come;
    size_t written = 0, read = 0;
    assert_int_equal(shared_link_begin(link, slice_of("e"), count, NULL), ERR_OK);
    bool begun = false;
    while (!begun || read < count || written < count) {
        size_t some, more = 0;
        assert_int_equal(shared_link_write(link, bytes + written, count - written, &some, NULL),
                         ERR_OK);
        written += some;
        if (!begun)
            begun = shared_link_next(link, &header, &come, NULL) == ERR_OK;
        if (begun)
            more = compare(link, read);
        read += more;
        if (some == 0 && more == 0 && (!begun || read < count))
            assert_int_equal(shared_link_wait(&link, 1, soon()), ERR_OK);
    }
    assert_int_equal(come, count);
}

/* Only its reader wakes it. */
static void send_only(struct shared_link *link, const uint8_t *bytes, size_t count)
{
    assert_int_equal(shared_link_begin(link, slice_of("s"), count, NULL), ERR_OK);
    for (size_t written = 0, some; written < count; written += some) {
        assert_int_equal(shared_link_write(link, bytes + written, count - written, &some, NULL),
                         ERR_OK);
        if (some == 0)
            assert_int_equal(shared_link_wait(&link, 1, soon()), ERR_OK);
    }
}

TEST(another_process_is_woken_and_wakes)
{
    char name[64];
    int listener = listen_here(name), status;
    pid_t child = start_echo(listener);
    struct shared_link_options own = options;
    struct shared_link *link = NULL;
    scoped(free_scoped) uint8_t *bytes = malloc(4 * MIB);
    assert_non_null(bytes);
    for (size_t i = 0; i < 4 * MIB; i++)
        bytes[i] = byte_at(i);
    own.spins = 0;
    assert_int_equal(shared_link_connect(name, &own, &link, NULL), ERR_OK);
    for (size_t i = 0; i < 200; i++)
        send_and_hear(link, bytes, i);
    send_and_hear(link, bytes, 4 * MIB);
    send_only(link, bytes, 4 * MIB);
    shared_link_free(link);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(listener);
}

TEST(a_peer_that_is_killed_is_noticed_and_leaves_nothing)
{
    char name[64];
    int listener = listen_here(name), status, again;
    pid_t child = start_echo(listener);
    struct shared_link *link = NULL;
    struct slice header;
    uint64_t bytes;
    assert_int_equal(shared_link_connect(name, &options, &link, NULL), ERR_OK);
    uint8_t nothing[8] = {0};
    send_and_hear(link, nothing, 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    while (!shared_link_ended(link))
        assert_int_equal(shared_link_wait(&link, 1, soon()), ERR_OK);
    assert_int_equal(shared_link_next(link, &header, &bytes, NULL), ERR_BUSY);
    assert_int_equal(waitpid(child, &status, 0), child);
    shared_link_free(link);
    close(listener);
    assert_int_equal(shared_link_connect(name, &options, &link, NULL), ERR_UNREACHABLE);
    assert_int_equal(shared_link_listen(name, &again, NULL), ERR_OK);
    struct reason reason;
    assert_int_equal(shared_link_listen(name, &again, &reason), ERR_EXISTS);
    close(again);
}

TEST_F(a_wait_ends_at_its_deadline, links)
{
    struct shared_link *const links[] = {f->a, NULL, f->b};
    assert_int_equal(shared_link_wait(links, 3, time_now_ns()), ERR_DEADLINE);
    assert_false(shared_link_ended(f->a));
}

/* ---- nonsense ---- */

/* A side that has the memory and knows no rules. */
struct hostile_fixture {
    uint8_t *memory;
    struct shared_link *link; /* of the honest side, which took it */
    struct reason reason;
};

enum { HOSTILE_RING = PAGE, HOSTILE_BYTES = HEAD + 2 * HOSTILE_RING };

struct hello {
    uint64_t magic, ring_bytes;
    uint8_t word[16];
};
static const struct hello good_hello = {UINT64_C(0x32306b6e696c6472), HOSTILE_RING, {0}};

/* The honest side's end of a socket over which that came, with up to two files. */
static int hand_over_files(const struct hello *hello, size_t bytes, const int *files, size_t count)
{
    int sockets[2];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {.bytes = {0}};
    struct iovec vector = {(void *)(uintptr_t)hello, bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof *files);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof *files);
        memcpy(CMSG_DATA(rights), files, count * sizeof *files);
    }
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    assert_true(sendmsg(sockets[0], &message, 0) == (ssize_t)bytes);
    close(sockets[0]);
    return sockets[1];
}

/* The same; file -1: without one. */
static int hand_over(const struct hello *hello, size_t bytes, int file)
{
    return hand_over_files(hello, bytes, &file, file >= 0 ? 1 : 0);
}

static int memory_of(size_t bytes, int seals)
{
    int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(memory >= 0);
    assert_int_equal(ftruncate(memory, (off_t)bytes), 0);
    assert_int_equal(fcntl(memory, F_ADD_SEALS, seals), 0);
    return memory;
}

static void hostile_set_up(struct hostile_fixture *f)
{
    static const struct shared_link_options small = {.ring_bytes = HOSTILE_RING,
                                                     .payload_bytes_max = 3 * HOSTILE_RING};
    int memory = memory_of(HOSTILE_BYTES, SEALS);
    int socket = hand_over(&good_hello, sizeof good_hello, memory);
    f->memory = mmap(NULL, HOSTILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_true(f->memory != MAP_FAILED);
    close(memory);
    assert_int_equal(shared_link_take(socket, &small, soon(), &f->link, &f->reason), ERR_OK);
}

static void hostile_tear_down(struct hostile_fixture *f)
{
    munmap(f->memory, HOSTILE_BYTES);
    shared_link_free(f->link);
}

/* Where it hurts: positions, frames at the beginning of lines, else anywhere. */
static void scribble(struct hostile_fixture *f, const uint32_t words[static 4])
{
    static const uint64_t likely[] = {0, 1, 63, 64, 65, 4032, 4096, 4097, 8192, UINT64_MAX};
    uint64_t value = words[0] % 4 == 0 ? (uint64_t)words[1] << 32 | words[2]
                                       : likely[words[1] % 10] + words[2] % 2 * 64;
    uint32_t lines = words[2] % 2 == 0 ? 8 : HEAD / 64;
    size_t at = words[0] % 3 == 0 ? words[3] % lines * 64
                                  : HEAD + (words[0] % 3 == 1 ? words[3] % 128 * 64
                                                              : words[3] % (2 * HOSTILE_RING - 8));
    memcpy(f->memory + at, &value, sizeof value);
}

struct reading {
    uint64_t left; /* of the payload that is being read */
    uint64_t to_write;
};

static enum err read_some(struct hostile_fixture *f, struct reading *reading, uint32_t some)
{
    struct slice bytes;
    uint8_t copy[HOSTILE_RING];
    if (reading->left == 0)
        return shared_link_next(f->link, &bytes, &reading->left, &f->reason);
    TRY(shared_link_look(f->link, &bytes, &f->reason));
    assert_true(bytes.bytes <= reading->left && bytes.bytes <= HOSTILE_RING);
    if (bytes.bytes > some % HOSTILE_RING)
        bytes.bytes = some % HOSTILE_RING;
    if (bytes.bytes > 0)
        memcpy(copy, bytes.data, bytes.bytes);
    shared_link_took(f->link, bytes.bytes);
    reading->left -= bytes.bytes;
    return ERR_OK;
}

static enum err write_some(struct hostile_fixture *f, struct reading *reading, uint32_t some)
{
    static const uint8_t bytes[3 * HOSTILE_RING];
    size_t written;
    if (reading->to_write == 0) {
        TRY(shared_link_begin(f->link, (struct slice){bytes, some % 400}, some % sizeof bytes,
                              &f->reason));
        reading->to_write = some % sizeof bytes;
        return ERR_OK;
    }
    TRY(shared_link_write(f->link, bytes, reading->to_write, &written, &f->reason));
    reading->to_write -= written;
    return ERR_OK;
}

/* A new link each time that it has said so: what it can do wrong, it does from the beginning on. */
static uint32_t scribble_and_use(struct hostile_fixture *f, uint64_t seed, bool only_bytes)
{
    struct reading reading = {0, 0};
    for (uint32_t turn = 0; turn < 200; turn++) {
        uint32_t words[4], more[4];
        rand_words(rand_key(seed, RAND_DATA, 1), turn, words);
        rand_words(rand_key(seed, RAND_DATA, 2), turn, more);
        if (only_bytes) { /* and one honest step */
            uint64_t written;
            memcpy(&written, f->memory, 8);
            written += words[3] % 2 * 64;
            words[0] = words[0] / 3 * 3 + 1;
            memcpy(f->memory, &written, 8);
        }
        if (turn % 4 == 0 || only_bytes)
            scribble(f, words);
        enum err err =
            more[0] % 2 == 0 ? read_some(f, &reading, more[1]) : write_some(f, &reading, more[1]);
        if (err == ERR_MALFORMED) {
            assert_true(f->reason.text[0] != 0);
            return turn;
        }
        assert_true(err == ERR_OK || err == ERR_BUSY);
    }
    return UINT32_MAX;
}

TEST(nonsense_in_the_memory_is_an_error_at_most)
{
    uint32_t found = 0;
    for (uint64_t seed = 0; seed < 2000; seed++) {
        struct hostile_fixture f = {0};
        hostile_set_up(&f);
        found += scribble_and_use(&f, seed, seed % 2 == 0) != UINT32_MAX;
        hostile_tear_down(&f);
    }
    assert_true(found > 1000);
}

static void shows(struct hostile_fixture *f, size_t at, uint64_t value)
{
    memcpy(f->memory + at, &value, sizeof value);
}

TEST_F(a_position_that_cannot_be_is_refused_in_a_sentence, hostile)
{
    struct slice header;
    uint64_t bytes;
    shows(f, 0, HOSTILE_RING + 1);
    assert_int_equal(shared_link_next(f->link, &header, &bytes, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text,
                        "the writer says that it has written 4097 bytes, of 0 read and 0 written "
                        "before");
    shows(f, 256 + 64, 1);
    assert_int_equal(shared_link_begin(f->link, slice_of("x"), 0, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text,
                        "the reader says that it has read 1 bytes, of 0 written and 0 read before");
}

TEST_F(a_frame_that_cannot_be_is_refused_in_a_sentence, hostile)
{
    struct slice header;
    uint64_t bytes;
    shows(f, 0, 64);
    shows(f, HEAD, 449);
    assert_int_equal(shared_link_next(f->link, &header, &bytes, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text, "a message with a header of 449 bytes");
    shows(f, HEAD, 4);
    shows(f, HEAD + 8, 3 * HOSTILE_RING + 1);
    assert_int_equal(shared_link_next(f->link, &header, &bytes, &f->reason), ERR_MALFORMED);
    assert_string_equal(f->reason.text, "a message of 12289 bytes, where there are at most 12288");
}

TEST(memory_that_could_go_away_is_not_taken)
{
    const struct hello other_magic = {1, HOSTILE_RING, {0}},
                       odd_size = {good_hello.magic, 5000, {0}};
    const struct {
        const struct hello *hello;
        size_t bytes, memory_bytes;
        int seals;
        const char *text;
    } rows[] = {
        {&good_hello, 32, 0, 0, "a hello without shared memory"},
        {&good_hello, 9, HOSTILE_BYTES, SEALS, "a hello of 9 bytes"},
        {&other_magic, 32, HOSTILE_BYTES, SEALS, "shared memory with a hello that is none"},
        {&odd_size, 32, HOSTILE_BYTES, SEALS, "shared memory with a hello that is none"},
        {&good_hello, 32, HOSTILE_BYTES, F_SEAL_GROW, "shared memory that is not sealed"},
        {&good_hello, 32, HOSTILE_BYTES, SEALS | F_SEAL_WRITE,
         "shared memory that cannot be written"},
        {&good_hello, 32, HOSTILE_BYTES - 1, SEALS,
         "shared memory of another size than it should be"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct shared_link *link = NULL;
        struct reason reason = {{0}};
        int memory =
            rows[i].memory_bytes == 0 ? -1 : memory_of(rows[i].memory_bytes, rows[i].seals);
        int socket = hand_over(rows[i].hello, rows[i].bytes, memory);
        assert_int_equal(shared_link_take(socket, &options, soon(), &link, &reason), ERR_MALFORMED);
        assert_string_equal(reason.text, rows[i].text);
        close(memory);
    }
}

/* The number of the next file that is opened. */
static int next_file(void)
{
    int file = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    assert_true(file >= 0);
    close(file);
    return file;
}

TEST(a_second_file_beside_the_memory_is_not_kept)
{
    int memory = memory_of(HOSTILE_BYTES, SEALS);
    const int files[] = {memory, STDERR_FILENO};
    int before = next_file();
    for (int i = 0; i < 3; i++) {
        struct shared_link *link = NULL;
        struct reason reason = {{0}};
        int socket = hand_over_files(&good_hello, sizeof good_hello, files, 2);
        assert_int_equal(shared_link_take(socket, &options, soon(), &link, &reason), ERR_OK);
        shared_link_free(link);
    }
    assert_int_equal(next_file(), before);
    close(memory);
}
