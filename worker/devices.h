/* Which of a machine's GPUs a worker takes, as the driver's variable CUDA_VISIBLE_DEVICES names
 * it. */
#ifndef ROOST_WORKER_DEVICES_H
#define ROOST_WORKER_DEVICES_H

#include "common/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `visible` is that variable, a list with commas, which ends before an entry that names no GPU ("-1"
 * or ""); NULL, it is not set: then the machine's GPUs are numbered from 0 to `count` - 1. More
 * workers than GPUs share them in turn: the name of number `wanted`, counted round the list, in
 * *ret_name. False: no GPU is known or shown, or the name has no room. */
bool devices_choose(const char *visible, uint32_t count, uint32_t wanted, char *ret_name,
                    size_t ret_bytes) MUST_USE;

/* The same of so many from the first one on, each once, as a list with commas. */
struct devices_range {
    uint32_t first, count;
};
bool devices_list(const char *visible, uint32_t there, struct devices_range wanted, char *ret_names,
                  size_t ret_bytes) MUST_USE;

/* This process sees those GPUs alone from now on, and takes them from number 0 on. Where no GPU is
 * known (under WSL there are no /dev/nvidia…) or shown it sees what it saw: the number of the first
 * one is returned, and loading the backend reports whether there is any. By main, before that. */
uint32_t devices_take(struct devices_range wanted) MUST_USE;

#endif
