#include "kernels/cpu/cpu.h"

#define OPERATION_MEMBER(operation) .operation = VARIANT(operation),

const struct kernels VARIANT(table) = {CPU_OPERATIONS(OPERATION_MEMBER)};
