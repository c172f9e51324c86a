/* What a crash or a rotten disk leaves of a cut: a restart finds the cut before it or the new one,
 * whole, and a flipped bit is found.
 * The protocol of a cut runs once with each of its operations being the last one (dying_disk.h). */
#include "tests/unit/dying_disk.h"
#include "tests/unit/faults.h"
#include "tests/unit/folder.h"

#include "common/files/checkpoint.h"
#include "common/rand.h"

enum { SERVERS = 2, CHUNKS = 6, WEIGHTS = 40, STATES = 1, FLIPS = 10000 };

static const struct checkpoint_arrays arrays = {.states = STATES};

/* ---- a cut ---- */

static float value_of(struct checkpoint_name cut, uint32_t chunk)
{
    return (float)(cut.version * 100 + chunk);
}

static enum err write_server(const struct file_ops *ops, const char *dir,
                             struct checkpoint_name cut, uint32_t server,
                             struct digest *ret_manifest)
{
    scoped(checkpoint_writer_free_scoped) struct checkpoint_writer *writer = NULL;
    TRY(checkpoint_writer_new(ops, dir, cut, server, arrays, &writer, NULL));
    for (uint32_t chunk = server; chunk < CHUNKS; chunk += SERVERS) {
        float values[(1 + STATES) * WEIGHTS];
        for (uint32_t i = 0; i < (1 + STATES) * WEIGHTS; i++)
            values[i] = value_of(cut, chunk);
        TRY(checkpoint_writer_add(writer, chunk, WEIGHTS, values, values + WEIGHTS, NULL));
    }
    return checkpoint_writer_finish(writer, ret_manifest, NULL);
}

static enum err write_cut(const struct file_ops *ops, const char *dir, struct checkpoint_name cut)
{
    struct checkpoint_record record = {
        .name = cut, .run = 7, .spec = "model: {kind: mlp}\n", .server_count = SERVERS};
    for (uint32_t i = 0; i < SERVERS; i++)
        TRY(write_server(ops, dir, cut, i, &record.manifests[i]));
    return checkpoint_record(ops, dir, &record, NULL);
}

/* A restart: the newest recorded cut, every byte of it as it was written. */
static struct checkpoint_name restart(const char *dir)
{
    struct checkpoint_name cut = {0};
    struct reason reason = {{0}};
    scoped(checkpoint_free_scoped) struct checkpoint *checkpoint = NULL;
    assert_int_equal(checkpoint_newest(dir, &cut, &reason), ERR_OK);
    if (checkpoint_open(dir, cut, &checkpoint, &reason) != ERR_OK ||
        checkpoint_verify(checkpoint, &reason) != ERR_OK)
        fail_msg("%s", reason.text);
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct checkpoint_chunk chunk;
        assert_int_equal(checkpoint_read(checkpoint, i, &chunk, &reason), ERR_OK);
        assert_int_equal(chunk.n, WEIGHTS);
        assert_true(chunk.values[WEIGHTS - 1] == value_of(cut, i));
    }
    return cut;
}

/* Dies after `die_at` operations of the second cut; whether that one was there. */
static bool crash(const char *dir, int die_at, enum death death)
{
    const struct checkpoint_name before = {1, 10}, during = {1, 20}, after = {2, 15};
    const struct file_ops ops = quick_ops();
    struct disk disk;
    assert_int_equal(write_cut(&ops, dir, before), ERR_OK);
    disk_init(&disk, die_at);
    bool written = write_cut(&disk.ops, dir, during) == ERR_OK;
    disk_lose(&disk, death);
    struct checkpoint_name newest = restart(dir);
    assert_true(newest.version == during.version || (!written && newest.version == before.version));
    /* Life goes on beside what was left. */
    assert_int_equal(write_cut(&ops, dir, during), ERR_OK);
    assert_int_equal(write_cut(&ops, dir, after), ERR_OK);
    assert_int_equal(checkpoint_prune(dir, after, 1, NULL), ERR_OK);
    assert_int_equal(restart(dir).generation, after.generation);
    assert_int_equal(file_remove_tree(dir, NULL), ERR_OK);
    return written;
}

TEST_IN_FOLDER(every_crash_point_of_a_cut_leaves_a_whole_one)
{
    const char *dir = folder_path(state, "checkpoints");
    for (int death = 0; death < DEATHS; death++) {
        int die_at = 0;
        while (!crash(dir, die_at, (enum death)death))
            die_at++;
        assert_true(die_at > 20); /* for two servers and cut.json: open, write, fsync, rename … */
        print_message("# %d crash points, 0 bad restarts\n", die_at + 1);
    }
}

/* ---- a disk that rots ---- */

/* One bit of the file differs while `restart` looks; what it says. */
static enum err look_with_flipped_bit(const char *dir, int fd, uint64_t bit)
{
    struct checkpoint_name cut;
    struct checkpoint *checkpoint = NULL;
    uint8_t byte, flipped;
    off_t at = (off_t)(bit / 8);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    flipped = (uint8_t)(byte ^ (1u << bit % 8));
    assert_int_equal(pwrite(fd, &flipped, 1, at), 1);
    enum err err = checkpoint_newest(dir, &cut, NULL);
    if (err == ERR_OK)
        err = checkpoint_open(dir, cut, &checkpoint, NULL);
    if (err == ERR_OK)
        err = checkpoint_verify(checkpoint, NULL);
    checkpoint_free(checkpoint);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    return err;
}

TEST_IN_FOLDER(ten_thousand_flipped_bits_are_all_found)
{
    const char *dir = folder_path(state, "checkpoints");
    const struct checkpoint_name cut = {1, 10};
    const struct file_ops ops = quick_ops();
    struct rand_state random = {.state = 3};
    assert_int_equal(write_cut(&ops, dir, cut), ERR_OK);
    uint64_t bits[SERVERS + 1], bits_all = 0;
    int fds[SERVERS + 1];
    for (uint32_t i = 0; i <= SERVERS; i++) {
        struct checkpoint_path path;
        assert_int_equal(checkpoint_file(dir, cut, i, &path), ERR_OK);
        if (i == SERVERS)
            strcpy(strrchr(path.text, '/'), "/cut.json");
        fds[i] = open(path.text, O_RDWR | O_CLOEXEC);
        assert_true(fds[i] >= 0);
        bits[i] = (uint64_t)lseek(fds[i], 0, SEEK_END) * 8;
        bits_all += bits[i];
    }
    for (int flip = 0; flip < FLIPS; flip++) {
        uint64_t bit = rand_below(&random, bits_all);
        uint32_t file = 0;
        while (bit >= bits[file])
            bit -= bits[file++];
        if (look_with_flipped_bit(dir, fds[file], bit) == ERR_OK)
            fail_msg("file %u, bit %llu (seed 3)", file, (unsigned long long)bit);
    }
    for (uint32_t i = 0; i <= SERVERS; i++)
        close(fds[i]);
    restart(dir);
}
