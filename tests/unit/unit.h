/* cmocka with what it needs before it. Test functions are sentences: `void name(void **state)`. */
#ifndef ROOST_TESTS_UNIT_UNIT_H
#define ROOST_TESTS_UNIT_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
