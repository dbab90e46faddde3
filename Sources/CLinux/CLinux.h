// What Swift's Glibc module leaves out of Linux. Declarations and constants only.
//
// As few headers as can be: a structure that Glibc's headers define as well, such as timespec in sys/epoll.h, belongs to
// whichever module the compiler happens to read first. Files that use one of those import both modules.
#pragma once

#include <linux/stat.h>
#include <malloc.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

// Behind _GNU_SOURCE, which must not be defined here: Swift would then see fd_set defined twice. The address is a
// struct sockaddr, which is left to Glibc.
int accept4(int descriptor, void *restrict address, unsigned int *restrict length, int flags);

// Behind _GNU_SOURCE as well. The mask is a cpu_set_t or any block of words. Returns 0 or -1.
int sched_getaffinity(int process, __SIZE_TYPE__ size, void *mask);

// Behind _GNU_SOURCE as well. Returns 0 or -1.
int statx(int directory, const char *restrict path, int flags, unsigned int mask, struct statx *restrict status);

// What tells the file that a path leads to from others, and its size: 0, or -1 when there is none or it cannot be told.
//
// Asks for nothing else. Once somebody has asked for a file's times, as stat(2) does, the kernel gives the next write a
// time of its own (Documentation/filesystems/multigrain-ts.rst), and the sync behind that has to write the inode as well.
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

// prctl is variadic.
static inline int clinux_set_dumpable(int value) {
    return prctl(PR_SET_DUMPABLE, value, 0, 0, 0);
}

// The heaps of the C library: mallopt(3), mallinfo(3), malloc_trim(3).
static inline void clinux_set_heap(int mapped_block, int kept_end) {
    // The C library adjusts both by itself until one of them is set; from then on the other one stays as it was.
    mallopt(M_MMAP_THRESHOLD, mapped_block);
    mallopt(M_TRIM_THRESHOLD, kept_end);
}

static inline __SIZE_TYPE__ clinux_free_heap_bytes(void) {
    return mallinfo2().fordblks;
}

static inline void clinux_trim_heap(void) {
    malloc_trim(0);
}

// Names the calling thread, in at most 15 bytes.
static inline int clinux_name_thread(const char *name) {
    return prctl(PR_SET_NAME, name, 0, 0, 0);
}

// The number of a path's file system as statfs(2) lists them, 0 when it cannot be told.
static inline unsigned int clinux_file_system(const char *path) {
    struct statfs status;
    return statfs(path, &status) == 0 ? (unsigned int)status.f_type : 0;
}

// EPOLLET is bit 31 of an unsigned word, EPOLLEXCLUSIVE bit 28; as plain words they combine without casts.
static const unsigned int CLINUX_EPOLLIN = EPOLLIN;
static const unsigned int CLINUX_EPOLLOUT = EPOLLOUT;
static const unsigned int CLINUX_EPOLLRDHUP = EPOLLRDHUP;
static const unsigned int CLINUX_EPOLLERR = EPOLLERR;
static const unsigned int CLINUX_EPOLLHUP = EPOLLHUP;
static const unsigned int CLINUX_EPOLLET = EPOLLET;
static const unsigned int CLINUX_EPOLLEXCLUSIVE = EPOLLEXCLUSIVE;
