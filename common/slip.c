#include "common/slip.h"

#include <stdbool.h>
#include <string.h>

enum { WORD_BYTES = 64 };

struct slip slip_of(const char *written)
{
    return (struct slip){.written = written, .apart = SLIP_MAX};
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The distance of the first i letters of `a` and the first j of `b`, from those of fewer
 * letters. */
static size_t extend(size_t known[WORD_BYTES][WORD_BYTES], const char *a, size_t i, const char *b,
                     size_t j)
{
    size_t least = known[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
    least = lesser(least, lesser(known[i - 1][j], known[i][j - 1]) + 1);
    bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
    return swapped ? lesser(least, known[i - 2][j - 2] + 1) : least;
}

/* SLIP_MAX: one is too long to say. */
static size_t letters_apart(const char *a, const char *b)
{
    size_t a_bytes = strlen(a), b_bytes = strlen(b), known[WORD_BYTES][WORD_BYTES];
    if (a_bytes >= WORD_BYTES || b_bytes >= WORD_BYTES)
        return SLIP_MAX;
    for (size_t i = 0; i <= a_bytes; i++)
        for (size_t j = 0; j <= b_bytes; j++)
            known[i][j] = i == 0 ? j : j == 0 ? i : extend(known, a, i, b, j);
    return known[a_bytes][b_bytes];
}

size_t slip_distance(const char *a, const char *b)
{
    size_t apart = letters_apart(a, b);
    return 3 * apart <= strlen(a) ? apart : SLIP_MAX; /* else it is another word */
}

static void take_nearer(struct slip *slip, const char *word, size_t apart)
{
    if (apart >= slip->apart)
        return;
    slip->apart = apart;
    slip->meant = word;
}

void slip_try(struct slip *slip, const char *word)
{
    take_nearer(slip, word, slip_distance(slip->written, word));
}

void slip_try_flag(struct slip *slip, const char *flag)
{
    enum { LETTERS_MIN = 5 };
    size_t apart = strlen(slip->written) < LETTERS_MIN ? slip_distance(slip->written, flag)
                                                       : letters_apart(slip->written, flag);
    take_nearer(slip, flag, apart);
}
