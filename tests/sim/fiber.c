/* Stacks are kept for the next fiber: the system gives each page of one once.
 *
 * On x86-64 a switch saves the registers that a call keeps and exchanges the stack pointers: 3 ns.
 * swapcontext() makes two system calls for the signal mask besides. It is for other processors, and
 * for the sanitizers, which must hear of each switch. */
#include "tests/sim/fiber.h"

#include "common/check.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ADDRESS 1
#endif
#if __has_feature(thread_sanitizer)
#define FIBER_THREAD 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ADDRESS 1
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_THREAD 1
#endif
#if defined(__x86_64__) && !defined(FIBER_ADDRESS) && !defined(FIBER_THREAD)
#define FIBER_QUICK 1
#endif

#ifdef FIBER_ADDRESS
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_THREAD
#include <sanitizer/tsan_interface.h>
#endif

enum { STACK_BYTES = 1 << 20, SPARE_MAX = 64 };

struct fiber {
    void (*run)(void *);
    void *argument;
    uint8_t *stack;
    bool ended;
#ifdef FIBER_QUICK
    void *at; /* the stack pointer while it waits */
#else
    ucontext_t at;
#endif
    void *shadow; /* the sanitizer's */
};

/* One process simulates one cluster at a time, and the linker gives the product's calls no context
 * of ours. */
static struct {
    struct fiber *current;
#ifdef FIBER_QUICK
    void *main;
#else
    ucontext_t main;
#endif
    const void *main_stack; /* the sanitizer's words for main's */
    size_t main_bytes;
    void *main_shadow;
    unsigned spare_count;
    uint8_t *spare[SPARE_MAX];
} fibers;

#ifdef FIBER_QUICK
void fiber_switch(void **ret_from, void *to);
__asm__(".text\n"
        ".type fiber_switch, @function\n"
        "fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size fiber_switch, .-fiber_switch\n");
enum { SAVED_REGISTERS = 6 };
#endif

static void to_main(struct fiber *fiber, bool last)
{
#ifdef FIBER_ADDRESS
    __sanitizer_start_switch_fiber(last ? NULL : &fiber->shadow, fibers.main_stack,
                                   fibers.main_bytes);
#endif
#ifdef FIBER_THREAD
    __tsan_switch_to_fiber(fibers.main_shadow, 0);
#endif
    (void)last;
#ifdef FIBER_QUICK
    fiber_switch(&fiber->at, fibers.main);
#else
    check(swapcontext(&fiber->at, &fibers.main) == 0);
#endif
#ifdef FIBER_ADDRESS
    __sanitizer_finish_switch_fiber(fiber->shadow, &fibers.main_stack, &fibers.main_bytes);
#endif
}

static void begin(void)
{
    struct fiber *fiber = fibers.current;
#ifdef FIBER_ADDRESS
    __sanitizer_finish_switch_fiber(NULL, &fibers.main_stack, &fibers.main_bytes);
#endif
    fiber->run(fiber->argument);
    fiber->ended = true;
    to_main(fiber, true);
    check_unreachable("a fiber that has ended");
}

static uint8_t *take_stack(void)
{
    if (fibers.spare_count > 0)
        return fibers.spare[--fibers.spare_count];
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    check(stack != MAP_FAILED);
    return stack;
}

struct fiber *fiber_new(void (*run)(void *), void *argument)
{
    struct fiber *fiber = calloc(1, sizeof *fiber);
    check(fiber != NULL);
    fiber->run = run;
    fiber->argument = argument;
    fiber->stack = take_stack();
#ifdef FIBER_QUICK
    void **top = (void **)(void *)(fiber->stack + STACK_BYTES) - 2;
    *top = (void *)(uintptr_t)begin; /* where the first switch returns to */
    memset(top - SAVED_REGISTERS, 0, SAVED_REGISTERS * sizeof *top);
    fiber->at = top - SAVED_REGISTERS;
#else
    check(getcontext(&fiber->at) == 0);
    fiber->at.uc_stack.ss_sp = fiber->stack;
    fiber->at.uc_stack.ss_size = STACK_BYTES;
    makecontext(&fiber->at, begin, 0);
#endif
#ifdef FIBER_THREAD
    fiber->shadow = __tsan_create_fiber(0);
#endif
    return fiber;
}

void fiber_free(struct fiber *fiber)
{
    check(fiber != fibers.current);
#ifdef FIBER_THREAD
    __tsan_destroy_fiber(fiber->shadow);
#endif
    if (fibers.spare_count < SPARE_MAX)
        fibers.spare[fibers.spare_count++] = fiber->stack;
    else
        check(munmap(fiber->stack, STACK_BYTES) == 0);
    free(fiber);
}

void fiber_resume(struct fiber *fiber)
{
    check(fibers.current == NULL && !fiber->ended);
    fibers.current = fiber;
#ifdef FIBER_ADDRESS
    __sanitizer_start_switch_fiber(&fibers.main_shadow, fiber->stack, STACK_BYTES);
#endif
#ifdef FIBER_THREAD
    fibers.main_shadow = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->shadow, 0);
#endif
#ifdef FIBER_QUICK
    fiber_switch(&fibers.main, fiber->at);
#else
    check(swapcontext(&fibers.main, &fiber->at) == 0);
#endif
#ifdef FIBER_ADDRESS
    __sanitizer_finish_switch_fiber(fibers.main_shadow, NULL, NULL);
#endif
    fibers.current = NULL;
}

void fiber_wait(void)
{
    check(fibers.current != NULL);
    to_main(fibers.current, false);
}

bool fiber_ended(const struct fiber *fiber)
{
    return fiber->ended;
}
