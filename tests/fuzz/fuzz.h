/* A fuzz target is one tests/fuzz/fuzz_NAME.c that defines this function: any bytes are fine, none
 * may crash, hang, leak or break a check(). Its kept inputs lie in tests/fuzz/corpus/NAME/. */
#ifndef ROOST_TESTS_FUZZ_FUZZ_H
#define ROOST_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Called by libFuzzer; 0: fine, -1: do not keep this input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
