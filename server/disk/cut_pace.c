#include "server/disk/cut_pace.h"

void cut_pace_step_ended(struct cut_pace *pace, uint64_t now_ns)
{
    uint64_t before_ns = atomic_load_explicit(&pace->ended_ns, memory_order_relaxed);
    if (before_ns > 0) {
        uint64_t newest_ns = now_ns - before_ns, other_ns = pace->newest_ns;
        uint64_t step_ns = other_ns > 0 && other_ns < newest_ns ? other_ns : newest_ns;
        atomic_store_explicit(&pace->step_ns, step_ns, memory_order_relaxed);
        pace->newest_ns = newest_ns;
    }
    atomic_store_explicit(&pace->ended_ns, now_ns, memory_order_relaxed);
}

void cut_pace_step_waits(struct cut_pace *pace, uint64_t now_ns)
{
    atomic_store_explicit(&pace->waits_ns, now_ns, memory_order_relaxed);
}

bool cut_pace_rests(const struct cut_pace *pace, const struct cut_progress *progress,
                    uint64_t now_ns)
{
    uint64_t step_ns = atomic_load_explicit(&pace->step_ns, memory_order_relaxed);
    uint64_t ended_ns = atomic_load_explicit(&pace->ended_ns, memory_order_relaxed);
    uint64_t waits_ns = atomic_load_explicit(&pace->waits_ns, memory_order_relaxed);
    if (progress->every_steps == 0 || progress->version % progress->every_steps != 0 ||
        progress->version == progress->steps)
        return false;
    if (step_ns == 0 || (now_ns > ended_ns && now_ns - ended_ns > 2 * step_ns))
        return false;
    if (waits_ns > 0 && now_ns < waits_ns + step_ns)
        return false;
    double time = 0.75 * (double)progress->every_steps * (double)step_ns;
    double passed = (double)(now_ns - progress->begun_ns);
    return (double)progress->bytes * time >= passed * (double)progress->bytes_all;
}
