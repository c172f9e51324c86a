#include "tests/sim/timers.h"

#include "server/control/control_core.h"

uint64_t __real_control_next_ns(const struct control *control);
uint64_t __wrap_control_next_ns(const struct control *control);

uint64_t __wrap_control_next_ns(const struct control *control)
{
    uint64_t next_ns = __real_control_next_ns(control);
    if (next_ns > control->continue_ns)
        timers_violated("nobody wakes to try the stored run again");
    if (next_ns > control->flush_ns)
        timers_violated("nobody wakes to write rows to the disk");
    if (next_ns > control->heartbeat_ns)
        timers_violated("nobody wakes for a heartbeat");
    if (control->waiting.by_number.count != control->waiting.count)
        timers_violated("a call waits that its number does not find, or the other way round");
    return next_ns;
}

void timers_check_rows(const struct control *control)
{
    if (control->over_ns != 0 && control->record.lines.bytes > 0 && control->record.err == ERR_OK)
        timers_violated("the run is over, and its last rows are not written");
}
