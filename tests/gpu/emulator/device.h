/* What the emulator's two libraries share: when device memory may be touched. */
#ifndef ROOST_TESTS_GPU_EMULATOR_DEVICE_H
#define ROOST_TESTS_GPU_EMULATOR_DEVICE_H

#include <cuda_runtime.h>

#include <functional>

/* Between these two all device memory is there; outside it is a fault to touch it. */
void device_open();
void device_close();

/* Work of a stream: `run` is called when something waits for it, after what the stream was given
 * before. */
void stream_give(cudaStream_t stream, std::function<void()> run);

/* How much all streams were given so far, for tests that look it up. */
extern "C" uint64_t emulator_given();

#endif
