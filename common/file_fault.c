/* Files that are mapped and then lose bytes: somebody truncates them, or the disk cannot read them
 * (of a checkpoint's bytes that is asked beforehand: file_map_load()).
 * The system answers a read of such bytes with SIGBUS. What the reader was doing cannot go on, and
 * its next start finds out what became of the file: the process ends with EXIT_AGAIN. So it does when
 * the machine has no memory for a page that is shared (common/shared/shared_pool.h): such a file
 * cannot shrink.
 *
 * The handler knows no map of ours. It asks the system which file lies at the address, with calls
 * that are safe at any moment; nothing is kept for it while all goes well. */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

enum { LINE_BYTES = PATH_MAX + 128 };
#define SHARED "/memfd:roost" /* as the system names all memory that we share */

/* The file of a line of /proc/self/maps, `7f00-8f00 r--p 0000 08:01 12 /a/file`, if the line is
 * about `address`; else NULL. */
static const char *file_of_line(const char *line, uintptr_t address)
{
    char *end;
    uintptr_t from = strtoul(line, &end, 16);
    uintptr_t to = *end == '-' ? strtoul(end + 1, NULL, 16) : 0;
    return address >= from && address < to ? strchr(line, '/') : NULL;
}

/* The file that is mapped at `address`, in `line`; NULL: none is, or the system does not say. */
static const char *file_at(uintptr_t address, char line[static LINE_BYTES])
{
    char piece[1024];
    size_t bytes = 0;
    const char *file = NULL;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    for (ssize_t got = 1; fd >= 0 && file == NULL && got > 0;) {
        got = read(fd, piece, sizeof piece);
        for (ssize_t i = 0; i < got && file == NULL; i++) {
            if (bytes < LINE_BYTES - 1)
                line[bytes++] = piece[i];
            if (piece[i] != '\n')
                continue;
            line[bytes - 1] = 0;
            file = file_of_line(line, address);
            bytes = 0;
        }
    }
    if (fd >= 0)
        close(fd);
    return file;
}

static void end_with_sentence(int number, siginfo_t *fault, void *context)
{
    (void)context;
    char line[LINE_BYTES], text[LINE_BYTES + 256];
    const char *file = file_at((uintptr_t)fault->si_addr, line);
    if (file == NULL) { /* no file's: the instruction is repeated, and ends the process */
        signal(number, SIG_DFL);
        return;
    }
    const char *what = strncmp(file, SHARED, sizeof SHARED - 1) == 0
                           ? "is shared memory, and the machine has no more of it"
                           : "became shorter while it was read, or its disk fails; the next start "
                             "reads it again";
    int bytes =
        snprintf(text, sizeof text, "%s: %s %s\n", program_invocation_short_name, file, what);
    ssize_t written = write(STDERR_FILENO, text, bytes > 0 ? (size_t)bytes : 0);
    (void)written; /* perhaps nobody reads it */
    _exit(EX_TEMPFAIL);
}

void file_faults_explain(void)
{
    struct sigaction action = {.sa_sigaction = end_with_sentence, .sa_flags = SA_SIGINFO};
    check(sigaction(SIGBUS, &action, NULL) == 0);
}
