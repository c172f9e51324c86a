/* A test program without a test, which must fail (tests/runner/suite). */
#include "tests/unit/unit.h"
