// The Linux interfaces that Swift's Glibc module lacks: declarations, constants and thin wrappers.
//
// Includes as few headers as possible: a structure that the Glibc module defines as well, such as timespec in sys/epoll.h,
// belongs to whichever module the compiler reads first. Swift files that use such a structure import both modules.
#pragma once

#include <linux/stat.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/timerfd.h>

// Declared by glibc only with _GNU_SOURCE, which must not be defined here: Swift would then see two definitions of fd_set.
// The address is a struct sockaddr, which the Glibc module defines.
int accept4(int descriptor, void *restrict address, unsigned int *restrict length, int flags);

// Also only with _GNU_SOURCE. The mask is a cpu_set_t or any array of words. Returns 0 or -1.
int sched_getaffinity(int process, __SIZE_TYPE__ size, void *mask);

// Also only with _GNU_SOURCE. Returns 0 or -1.
int statx(int directory, const char *restrict path, int flags, unsigned int mask, struct statx *restrict status);

// Also only with _GNU_SOURCE. Returns 0 or -1.
int syncfs(int descriptor);

// Also only with _GNU_SOURCE. Returns 0 or -1.
int sync_file_range(int descriptor, long offset, long count, unsigned int flags);

// Also only with _GNU_SOURCE. Returns 0 or -1.
int unshare(int flags);

// Also only with _GNU_SOURCE. The semaphore is a sem_t, the time a struct timespec. Returns 0 or -1.
int sem_clockwait(void *restrict semaphore, int clock, const void *restrict time);

// Declared here because Swift's Glibc module lacks sys/mount.h (mount(2)). Returns 0 or -1.
int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data);

// The device and inode number that identify the file at a path, and its size. Returns 0, or -1 on an error.
//
// Requests nothing else. After a program has read a file's times, as stat(2) does, the kernel gives the next write a
// timestamp of its own (Documentation/filesystems/multigrain-ts.rst), and the following sync must write the inode as well.
static inline int clinux_file_identity(
    const char *path, unsigned long long *device, unsigned long long *number, unsigned long long *size
) {
    struct statx status;
    if (statx(-100 /* AT_FDCWD */, path, 0, STATX_INO | STATX_SIZE, &status) != 0) return -1;
    *device = makedev(status.stx_dev_major, status.stx_dev_minor);
    *number = status.stx_ino;
    *size = status.stx_size;
    return 0;
}

// prctl is variadic, so that Swift cannot call it.
static inline int clinux_set_dumpable(int value) {
    return prctl(PR_SET_DUMPABLE, value, 0, 0, 0);
}

// A descriptor that becomes readable when a time has passed (timerfd_create(2)); -1 on an error.
static inline int clinux_make_timer(void) {
    return timerfd_create(1 /* CLOCK_MONOTONIC */, TFD_CLOEXEC | TFD_NONBLOCK);
}

// Has such a descriptor become readable once after so many milliseconds; 0 stops it.
static inline void clinux_set_timer(int descriptor, long milliseconds) {
    struct itimerspec time = {{0, 0}, {milliseconds / 1000, milliseconds % 1000 * 1000000}};
    timerfd_settime(descriptor, 0, &time, (struct itimerspec *)0);
}

// The C library's heaps: mallopt(3), mallinfo(3), malloc_trim(3). Sizes are in bytes.
static inline void clinux_set_heap(int mapped_block, int kept_end) {
    // The C library adjusts both values until one is set; then the other keeps its current value. So set both.
    mallopt(M_MMAP_THRESHOLD, mapped_block);
    mallopt(M_TRIM_THRESHOLD, kept_end);
}

static inline __SIZE_TYPE__ clinux_free_heap_bytes(void) {
    return mallinfo2().fordblks;
}

static inline void clinux_trim_heap(void) {
    malloc_trim(0);
}

// Names the calling thread; the name is cut to 15 bytes.
static inline int clinux_name_thread(const char *name) {
    return prctl(PR_SET_NAME, name, 0, 0, 0);
}

// The magic number of a path's file system, as statfs(2) lists them; 0 on an error.
static inline unsigned int clinux_file_system(const char *path) {
    struct statfs status;
    return statfs(path, &status) == 0 ? (unsigned int)status.f_type : 0;
}

// Imported as they are, the constants have different types in Swift; as unsigned words they combine without casts.
static const unsigned int CLINUX_EPOLLIN = EPOLLIN;
static const unsigned int CLINUX_EPOLLOUT = EPOLLOUT;
static const unsigned int CLINUX_EPOLLRDHUP = EPOLLRDHUP;
static const unsigned int CLINUX_EPOLLERR = EPOLLERR;
static const unsigned int CLINUX_EPOLLHUP = EPOLLHUP;
static const unsigned int CLINUX_EPOLLET = EPOLLET;
static const unsigned int CLINUX_EPOLLEXCLUSIVE = EPOLLEXCLUSIVE;
