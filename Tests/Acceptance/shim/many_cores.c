/* Lets a process believe that it may use the number of cores in CORES, so that it runs as many loops; preloaded with LD_PRELOAD. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>

int sched_getaffinity(pid_t process, size_t size, cpu_set_t *mask)
{
    (void)process;
    memset(mask, 0, size);
    for (int core = atoi(getenv("CORES")); core > 0; core--) CPU_SET_S(core, size, mask);
    return 0;
}
