/* What the emulator's two libraries share: when device memory may be touched. */
#ifndef ROOST_TESTS_GPU_EMULATOR_DEVICE_H
#define ROOST_TESTS_GPU_EMULATOR_DEVICE_H

#include <cuda_runtime.h>

/* Between these two all device memory is there; outside it is a fault to touch it. */
void device_open();
void device_close();

#endif
