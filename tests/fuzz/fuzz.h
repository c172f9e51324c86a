/* A fuzz target is one tests/fuzz/fuzz_NAME.c that defines this function: any bytes are fine, none
 * may crash, hang, leak or break a check(). Its kept inputs lie in tests/fuzz/corpus/NAME/. */
#ifndef ROOST_TESTS_FUZZ_FUZZ_H
#define ROOST_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* A part of an input that says what one event is: numbers, one after another. Behind its end there
 * are zeros. */
struct fuzz_piece {
    const uint8_t *data;
    size_t bytes;
};

static inline struct fuzz_piece fuzz_piece(const uint8_t *data, size_t bytes, size_t bytes_max)
{
    return (struct fuzz_piece){data, bytes < bytes_max ? bytes : bytes_max};
}

static inline uint8_t fuzz_byte(struct fuzz_piece *piece)
{
    if (piece->bytes == 0)
        return 0;
    piece->bytes--;
    return *piece->data++;
}

/* Mostly the number that is right. */
static inline uint64_t fuzz_near(struct fuzz_piece *piece, uint64_t right)
{
    static const uint64_t wild[] = {
        0, 1, 2, 63, 64, 1000, UINT32_MAX, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX};
    uint8_t how = fuzz_byte(piece);
    if (how % 8 < 5)
        return right;
    return how % 8 == 5   ? right + 1
           : how % 8 == 6 ? right - 1
                          : wild[how / 8 % (sizeof wild / sizeof wild[0])];
}

/* Called by libFuzzer; 0: fine, -1: do not keep this input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
