/* The functions of the C library that a preloaded library takes the place of; for sources that define _GNU_SOURCE. */
#include <dlfcn.h>

/* The C library's function of this name. */
#define REAL(name) \
    ({ \
        static __typeof__(&name) real; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        real; \
    })
