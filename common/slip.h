/* What somebody meant who wrote a word that nobody knows: the known one that is a slip of the
 * finger away. */
#ifndef ROOST_COMMON_SLIP_H
#define ROOST_COMMON_SLIP_H

#include <stddef.h>

struct slip {
    const char *written; /* borrowed */
    size_t apart;
    const char *meant; /* NULL: none is near */
};

struct slip slip_of(const char *written);

/* Letters of `a` to insert, remove, change, or swap with the next; at least SLIP_MAX where more
 * than a third of them differ: that is another word. */
enum { SLIP_MAX = 3 };
size_t slip_distance(const char *a, const char *b);

/* One known word; of equally near ones the first counts. Borrowed. */
void slip_try(struct slip *slip, const char *word);
/* The same for a program's flags, which are few: in five letters, too, two may differ. */
void slip_try_flag(struct slip *slip, const char *flag);

#endif
