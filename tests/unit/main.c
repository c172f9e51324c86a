/* The main() of test programs that have none of their own. */
#include "tests/unit/unit.h"

int main(void)
{
    return unit_run(NULL, NULL);
}
