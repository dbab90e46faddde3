/* Lets one chosen call of a process fail, return less than was asked for, take long, or end the process, and sets its clocks;
 * preloaded with LD_PRELOAD.
 *
 *   FAILING_CALLS_CONTROL  a file that contains `struct control`; it is mapped, so that tests can choose a call and read the
 *                          counts while the process runs
 *
 * It intercepts calls by name, so it sees those of the server, SQLite, OpenSSL and the Swift runtime, but not those that the
 * C library makes itself.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "real_function.h"

/* In failing_calls.py: KINDS. */
enum kind {
    OPEN, READ, PREAD, WRITE, PWRITE, FDATASYNC, FTRUNCATE, RENAME, MMAP, ACCEPT, RECV, SEND, EPOLL_CTL, EPOLL_CREATE,
    EVENTFD, TIMERFD, GETRANDOM, PTHREAD_CREATE, SOCKET, CONNECT, POLL, SENDTO, GETSOCKNAME, ALLOCATION, KINDS
};

/* What happens to the chosen call, besides the numbers of errors. */
enum { SHORT = 1000, DELAYED = 1001, KILLED = 1002 };
enum { DELAY_MICROSECONDS = 20000 };

/* What became of the chosen call. */
enum { NOT_REACHED, STRUCK, IMPOSSIBLE };

/* In failing_calls.py: CONTROL. */
struct control {
    _Atomic int64_t seconds_ahead; /* how far the clock of the process is ahead of the machine's */
    _Atomic int64_t suspended; /* for how many nanoseconds the machine was suspended, as the process sees it */
    _Atomic uint32_t is_armed;
    _Atomic uint32_t kind;
    _Atomic uint32_t number; /* of the chosen call among those of its kind, from 1 */
    _Atomic uint32_t action; /* an errno, SHORT, DELAYED or KILLED */
    _Atomic uint32_t calls[KINDS];
    _Atomic uint32_t outcome;
    char thread[16]; /* the name of the thread that made the chosen call */
    char target[128]; /* the path or descriptor that it was made on */
    uint64_t caller; /* where it was called from, counted from the beginning of the library or program */
    char library[128]; /* that library or program */
};

/* Inlined in the intercepted function, whose return address is then known. */
#define INLINED static inline __attribute__((always_inline))

enum { MOST_DESCRIPTORS = 4096 };

static struct control no_control;
static struct control *control = &no_control;

/* How each descriptor is registered with epoll; the set is -1 if it is not. */
static struct { int set; struct epoll_event event; } registrations[MOST_DESCRIPTORS];

__attribute__((constructor)) static void start(void)
{
    for (int index = 0; index < MOST_DESCRIPTORS; index += 1) registrations[index].set = -1;
    const char *file = getenv("FAILING_CALLS_CONTROL");
    if (!file) return;
    int descriptor = REAL(open)(file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) abort();
    void *mapped = REAL(mmap)(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) abort();
    close(descriptor);
    control = mapped;
}

/* What a call is made on */

static void describe_descriptor(int descriptor, char text[sizeof control->target])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, text, sizeof control->target - 1);
    text[length < 0 ? 0 : length] = '\0';
}

/* Whether this error, or a short transfer, can occur on the descriptor. The reasons are in failing_calls.py. */
static int is_possible_on(int descriptor, uint32_t action, size_t length)
{
    struct stat status;
    if (action == SHORT && length < 2) return 0;
    if (fstat(descriptor, &status) != 0) return 0;
    if (S_ISREG(status.st_mode)) return action != EAGAIN && action != ECONNRESET && action != EPIPE;
    if (S_ISSOCK(status.st_mode)) {
        if (action == EIO || action == ENOSPC) return 0;
        return action != EAGAIN || fcntl(descriptor, F_GETFL) & O_NONBLOCK;
    }
    if (S_ISFIFO(status.st_mode)) return action == EINTR || action == DELAYED;
    /* Eventfds and the like, which are written without waiting. */
    return action == DELAYED;
}

/* Faults */

/* Counts a call. Returns what happens to it: 0 for nothing, or the chosen action. */
static uint32_t count(enum kind kind)
{
    uint32_t number = 1 + atomic_fetch_add(&control->calls[kind], 1);
    if (!control->is_armed || control->kind != kind || control->number != number) return 0;
    if (control->action == KILLED) {
        control->outcome = STRUCK;
        kill(getpid(), SIGKILL);
    }
    return control->action;
}

INLINED void note(uint32_t outcome, const char *target)
{
    char *address = __builtin_extract_return_addr(__builtin_return_address(0));
    Dl_info found;
    if (dladdr(address, &found)) {
        control->caller = address - (char *)found.dli_fbase;
        snprintf(control->library, sizeof control->library, "%s", found.dli_fname);
    }
    prctl(PR_GET_NAME, control->thread);
    snprintf(control->target, sizeof control->target, "%s", target);
    control->outcome = outcome;
}

/* Carries out an action that is an error or a delay; returns whether the call fails. */
INLINED int strikes(uint32_t action, const char *target)
{
    if (action == 0) return 0;
    note(STRUCK, target);
    if (action == DELAYED) {
        usleep(DELAY_MICROSECONDS);
        return 0;
    }
    errno = (int)action;
    return 1;
}

#define FAILS(kind, target) strikes(count(kind), target)

/* The same for a call on a descriptor, which may also be shortened. */
INLINED int strikes_descriptor(enum kind kind, int descriptor, size_t *length)
{
    uint32_t action = count(kind);
    if (action == 0) return 0;
    char target[sizeof control->target];
    describe_descriptor(descriptor, target);
    if (!is_possible_on(descriptor, action, *length)) {
        note(IMPOSSIBLE, target);
        return 0;
    }
    if (action != SHORT) return strikes(action, target);
    *length /= 2;
    note(STRUCK, target);
    return 0;
}

/* Has epoll report again what a socket is ready for, edge-triggered as well: data that a call did not get has "arrived" after
 * it, and room that it did not find has become free. */
static void report_again(int descriptor)
{
    if (descriptor < 0 || descriptor >= MOST_DESCRIPTORS || registrations[descriptor].set < 0) return;
    int set = registrations[descriptor].set;
    struct epoll_event event = registrations[descriptor].event;
    if (event.events & EPOLLEXCLUSIVE) {
        /* Such a registration cannot be changed (epoll_ctl(2)). */
        REAL(epoll_ctl)(set, EPOLL_CTL_DEL, descriptor, NULL);
        REAL(epoll_ctl)(set, EPOLL_CTL_ADD, descriptor, &event);
    } else {
        REAL(epoll_ctl)(set, EPOLL_CTL_MOD, descriptor, &event);
    }
}

/* A transfer of bytes on a descriptor, whose length is the variable `length`. */
#define TRANSFER(kind, call) \
    ({ \
        uint32_t asked = length; \
        ssize_t result = -1; \
        int is_failing = strikes_descriptor(kind, descriptor, &length); \
        if (!is_failing) result = (call); \
        int error = errno; \
        if (length < asked || (is_failing && error == EAGAIN)) report_again(descriptor); \
        errno = error; \
        result; \
    })

/* Files */

INLINED int fails_to_open(const char *path, int flags, int is_stream)
{
    uint32_t action = count(OPEN);
    /* Only a new file needs room. */
    if (action == ENOSPC && !(flags & O_CREAT)) {
        note(IMPOSSIBLE, path);
        return 0;
    }
    /* OpenSSL does not repeat fopen. It reads certificates and keys with it, and a reload that cannot do so says why and
     * changes nothing, so this is no error that has to pass unnoticed. */
    if (action == EINTR && is_stream) {
        note(IMPOSSIBLE, path);
        return 0;
    }
    /* libdispatch reads the state of its threads there and ends the process if it cannot. */
    if (action != 0 && strncmp(path, "/proc/", 6) == 0) {
        note(IMPOSSIBLE, path);
        return 0;
    }
    return strikes(action, path);
}

#define OPENING(path, flags, call) (fails_to_open(path, flags, 0) ? -1 : (call))

DEFINE_OPENING

FILE *fopen(const char *path, const char *mode)
{
    return fails_to_open(path, *mode == 'r' ? 0 : O_CREAT, 1) ? NULL : REAL(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fails_to_open(path, *mode == 'r' ? 0 : O_CREAT, 1) ? NULL : REAL(fopen64)(path, mode);
}

DIR *opendir(const char *path)
{
    return fails_to_open(path, 0, 0) ? NULL : REAL(opendir)(path);
}

ssize_t read(int descriptor, void *data, size_t length)
{
    return TRANSFER(READ, REAL(read)(descriptor, data, length));
}

ssize_t pread(int descriptor, void *data, size_t length, off_t position)
{
    return TRANSFER(PREAD, REAL(pread)(descriptor, data, length, position));
}

ssize_t pread64(int descriptor, void *data, size_t length, off64_t position)
{
    return TRANSFER(PREAD, REAL(pread64)(descriptor, data, length, position));
}

ssize_t write(int descriptor, const void *data, size_t length)
{
    return TRANSFER(WRITE, REAL(write)(descriptor, data, length));
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t position)
{
    return TRANSFER(PWRITE, REAL(pwrite)(descriptor, data, length, position));
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t position)
{
    return TRANSFER(PWRITE, REAL(pwrite64)(descriptor, data, length, position));
}

INLINED int fails_on(enum kind kind, int descriptor)
{
    char target[sizeof control->target];
    uint32_t action = count(kind);
    if (action == 0) return 0;
    describe_descriptor(descriptor, target);
    return strikes(action, target);
}

int fdatasync(int descriptor)
{
    return fails_on(FDATASYNC, descriptor) ? -1 : REAL(fdatasync)(descriptor);
}

int fsync(int descriptor)
{
    return fails_on(FDATASYNC, descriptor) ? -1 : REAL(fsync)(descriptor);
}

int ftruncate(int descriptor, off_t size)
{
    return fails_on(FTRUNCATE, descriptor) ? -1 : REAL(ftruncate)(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size)
{
    return fails_on(FTRUNCATE, descriptor) ? -1 : REAL(ftruncate64)(descriptor, size);
}

int rename(const char *from, const char *to)
{
    return FAILS(RENAME, to) ? -1 : REAL(rename)(from, to);
}

void *mmap(void *address, size_t length, int protection, int flags, int descriptor, off_t position)
{
    if (fails_on(MMAP, descriptor)) return MAP_FAILED;
    return REAL(mmap)(address, length, protection, flags, descriptor, position);
}

void *mmap64(void *address, size_t length, int protection, int flags, int descriptor, off64_t position)
{
    if (fails_on(MMAP, descriptor)) return MAP_FAILED;
    return REAL(mmap64)(address, length, protection, flags, descriptor, position);
}

/* Sockets and epoll */

int socket(int family, int type, int protocol)
{
    return FAILS(SOCKET, "") ? -1 : REAL(socket)(family, type, protocol);
}

int accept4(int descriptor, struct sockaddr *address, socklen_t *length, int flags)
{
    if (fails_on(ACCEPT, descriptor)) {
        if (errno == EAGAIN) {
            report_again(descriptor);
            errno = EAGAIN;
        } else if (errno == ECONNABORTED) {
            /* The connection is gone. */
            int aborted = REAL(accept4)(descriptor, NULL, NULL, flags);
            if (aborted >= 0) close(aborted);
            errno = aborted >= 0 ? ECONNABORTED : EAGAIN;
        }
        return -1;
    }
    return REAL(accept4)(descriptor, address, length, flags);
}

ssize_t recv(int descriptor, void *data, size_t length, int flags)
{
    return TRANSFER(RECV, REAL(recv)(descriptor, data, length, flags));
}

ssize_t send(int descriptor, const void *data, size_t length, int flags)
{
    return TRANSFER(SEND, REAL(send)(descriptor, data, length, flags));
}

int connect(int descriptor, const struct sockaddr *address, socklen_t length)
{
    uint32_t action = count(CONNECT);
    /* There is no way that is missing or too long to a Unix socket. */
    if (address->sa_family == AF_UNIX && (action == ETIMEDOUT || action == ENETUNREACH)) {
        note(IMPOSSIBLE, "");
        action = 0;
    }
    return strikes(action, "") ? -1 : REAL(connect)(descriptor, address, length);
}

int poll(struct pollfd *descriptors, nfds_t number, int timeout)
{
    uint32_t action = count(POLL);
    /* Without waiting it is not interrupted. */
    if (action == EINTR && timeout == 0) {
        note(IMPOSSIBLE, "");
        action = 0;
    }
    return strikes(action, "") ? -1 : REAL(poll)(descriptors, number, timeout);
}

/* Only of datagrams, which are sent whole. */
ssize_t sendto(
    int descriptor, const void *data, size_t length, int flags, const struct sockaddr *address, socklen_t address_length)
{
    if (FAILS(SENDTO, "")) return -1;
    return REAL(sendto)(descriptor, data, length, flags, address, address_length);
}

int getsockname(int descriptor, struct sockaddr *address, socklen_t *length)
{
    return fails_on(GETSOCKNAME, descriptor) ? -1 : REAL(getsockname)(descriptor, address, length);
}

int epoll_ctl(int set, int operation, int descriptor, struct epoll_event *event)
{
    /* Only an addition needs memory. */
    if (operation == EPOLL_CTL_ADD && fails_on(EPOLL_CTL, descriptor)) return -1;
    if (descriptor >= 0 && descriptor < MOST_DESCRIPTORS) {
        registrations[descriptor].set = operation == EPOLL_CTL_DEL ? -1 : set;
        if (event) registrations[descriptor].event = *event;
    }
    return REAL(epoll_ctl)(set, operation, descriptor, event);
}

int epoll_create1(int flags)
{
    return FAILS(EPOLL_CREATE, "") ? -1 : REAL(epoll_create1)(flags);
}

int eventfd(unsigned int value, int flags)
{
    return FAILS(EVENTFD, "") ? -1 : REAL(eventfd)(value, flags);
}

int timerfd_create(int clock, int flags)
{
    return FAILS(TIMERFD, "") ? -1 : REAL(timerfd_create)(clock, flags);
}

/* Clocks */

int clock_gettime(clockid_t clock, struct timespec *time)
{
    int result = REAL(clock_gettime)(clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += control->seconds_ahead;
    if (result == 0 && clock == CLOCK_MONOTONIC) {
        int64_t now = time->tv_sec * INT64_C(1000000000) + time->tv_nsec - control->suspended;
        time->tv_sec = now / 1000000000;
        time->tv_nsec = now % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    int result = REAL(gettimeofday)(time, zone);
    if (result == 0) time->tv_sec += control->seconds_ahead;
    return result;
}

time_t time(time_t *place)
{
    time_t seconds = REAL(time)(NULL) + control->seconds_ahead;
    if (place) *place = seconds;
    return seconds;
}

/* Others */

ssize_t getrandom(void *data, size_t length, unsigned int flags)
{
    return FAILS(GETRANDOM, "") ? -1 : REAL(getrandom)(data, length, flags);
}

int getentropy(void *data, size_t length)
{
    return FAILS(GETRANDOM, "") ? -1 : REAL(getentropy)(data, length);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    if (FAILS(PTHREAD_CREATE, "")) return errno;
    return REAL(pthread_create)(thread, attributes, body, argument);
}

/* The C library's allocator under names that need no dlsym, which allocates itself. */
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t size)
{
    return FAILS(ALLOCATION, "malloc") ? NULL : __libc_malloc(size);
}

void *calloc(size_t number, size_t size)
{
    return FAILS(ALLOCATION, "calloc") ? NULL : __libc_calloc(number, size);
}

void *realloc(void *old, size_t size)
{
    return FAILS(ALLOCATION, "realloc") ? NULL : __libc_realloc(old, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    if (FAILS(ALLOCATION, "posix_memalign")) return ENOMEM;
    *block = __libc_memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}
