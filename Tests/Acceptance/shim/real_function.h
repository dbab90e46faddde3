/* How a preloaded library takes the place of functions of the C library; for sources that define _GNU_SOURCE. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>

/* The C library's function of this name. */
#define REAL(name) \
    ({ \
        static __typeof__(&name) real; \
        if (!real) real = dlsym(RTLD_NEXT, #name); \
        real; \
    })

/* DEFINE_OPENING defines the functions that open a file; each returns the source's macro OPENING(path, flags, call). */
#define TAKE_MODE(flags) \
    mode_t mode = 0; \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list arguments; \
        va_start(arguments, flags); \
        mode = va_arg(arguments, mode_t); \
        va_end(arguments); \
    }

#define DEFINE_OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        TAKE_MODE(flags) \
        return OPENING(path, flags, REAL(name)(path, flags, mode)); \
    }

#define DEFINE_OPENAT(name) \
    int name(int directory, const char *path, int flags, ...) \
    { \
        TAKE_MODE(flags) \
        return OPENING(path, flags, REAL(name)(directory, path, flags, mode)); \
    }

#define DEFINE_OPENING DEFINE_OPEN(open) DEFINE_OPEN(open64) DEFINE_OPENAT(openat) DEFINE_OPENAT(openat64)
