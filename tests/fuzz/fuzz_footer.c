/* A closed segment of a step log, of which the last line is its footer. By the first byte the line
 * is given the digest that a writer would have put at its end, because no mutation would get past
 * it. What is read is printed and read again as the same. */
#include "tests/fuzz/fuzz.h"

#include "common/files/step_log_format.h"
#include "common/scoped.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct segment {
    int file;
    char path[32];
};

static struct segment segment_new(struct slice text)
{
    struct segment segment = {.file = memfd_create("segment", MFD_CLOEXEC)};
    check(segment.file >= 0);
    check(write(segment.file, text.data, text.bytes) == (ssize_t)text.bytes);
    snprintf(segment.path, sizeof segment.path, "/proc/self/fd/%d", segment.file);
    return segment;
}

static enum err read_segment(struct slice text, struct step_log_footer *ret_footer,
                             struct reason *reason)
{
    struct segment segment = segment_new(text);
    enum err err = step_log_read_footer(segment.path, ret_footer, reason);
    check(close(segment.file) == 0);
    return err;
}

/* The text's last line as an object without its brace, its digest behind it. */
static void put_digest(struct buf *text)
{
    struct digest digest;
    size_t begin = text->bytes;
    while (begin > 0 && text->data[begin - 1] != '\n')
        begin--;
    check(buf_append(text, "}", 1) == ERR_OK);
    struct slice object = {text->data + begin, text->bytes - begin};
    check(digest_sha256(object, &digest) == ERR_OK);
    text->bytes--;
    check(buf_printf(text, ",\"check\":\"%s\"}\n", digest_to_hex(&digest).text) == ERR_OK);
}

/* Behind as many bytes of rows as it says. */
static void check_printed_again(struct step_log_footer *footer)
{
    scoped(buf_release) struct buf first = {0}, second = {0};
    struct step_log_footer again;
    struct reason reason;
    footer->rows_bytes = 0;
    check(step_log_print_footer(footer, &first) == ERR_OK);
    check(read_segment(buf_slice(&first), &again, &reason) == ERR_OK);
    check(again.has_times && again.rows_bytes == 0);
    check(step_log_print_footer(&again, &second) == ERR_OK);
    check(first.bytes == second.bytes && memcmp(first.data, second.data, first.bytes) == 0);
    ledger_release(&again.state.sums);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    scoped(buf_release) struct buf text = {0};
    struct step_log_footer footer;
    struct reason reason = {.text = ""};
    if (bytes == 0)
        return 0;
    check(buf_append(&text, data + 1, bytes - 1) == ERR_OK);
    if (data[0] % 2 == 0)
        put_digest(&text);
    if (read_segment(buf_slice(&text), &footer, &reason) != ERR_OK) {
        check(reason.text[0] != 0);
        return 0;
    }
    check(footer.rows_bytes < text.bytes && ledger_epoch_count(&footer.state.sums) == 1);
    check_printed_again(&footer);
    ledger_release(&footer.state.sums);
    return 0;
}
