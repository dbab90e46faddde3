// The system calls of the loop and the connections, as functions of the executable, which the linker prefers to the C library's.
//
// A call about a simulated descriptor, and the clock, go to the simulator's Swift code (Simulator/Kernel/KernelCalls.swift); all
// others go on to the C library. There is no other logic here.
#define _GNU_SOURCE
#include "CSimulatedKernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// Defined in Swift. They return the result of the call, or an error as a negative number.
int simulated_epoll_create(void);
int simulated_epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event);
int simulated_epoll_wait(int epoll, struct epoll_event *events, int capacity, int timeout);
int simulated_eventfd(void);
int simulated_socket(void);
int simulated_accept(int listener);
long simulated_recv(int descriptor, void *bytes, long count, int peeks);
long simulated_send(int descriptor, const void *bytes, long count);
long simulated_write(int descriptor);
int simulated_shutdown(int descriptor, int direction);
int simulated_setsockopt(int descriptor);
int simulated_close(int descriptor);
// Nanoseconds.
long simulated_clock(int is_wall_clock);

static int is_running;
static int is_another_thread;

int simulation_fork(unsigned int seconds) {
    int process = fork();
    if (process == 0) alarm(seconds);
    return process;
}

void simulation_begin(void) { is_running = 1; }
void simulation_pretend_another_thread(int pretends) { is_another_thread = pretends; }

static int is_simulated(int descriptor) {
    return descriptor >= SIMULATED_DESCRIPTORS_BEGIN && descriptor < SIMULATED_DESCRIPTORS_END;
}

static long returned(long result) {
    if (result >= 0) return result;
    errno = (int)-result;
    return -1;
}

// The C library's function of this name; each line that uses it has a variable of its own.
#define REAL(name) \
    ({ \
        static __typeof__(&name) real; \
        if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
        real; \
    })

int epoll_create1(int flags) {
    return is_running ? (int)returned(simulated_epoll_create()) : REAL(epoll_create1)(flags);
}

int epoll_ctl(int epoll, int operation, int descriptor, struct epoll_event *event) {
    if (!is_simulated(epoll)) return REAL(epoll_ctl)(epoll, operation, descriptor, event);
    return (int)returned(simulated_epoll_ctl(epoll, operation, descriptor, event));
}

int epoll_wait(int epoll, struct epoll_event *events, int capacity, int timeout) {
    if (!is_simulated(epoll)) return REAL(epoll_wait)(epoll, events, capacity, timeout);
    return (int)returned(simulated_epoll_wait(epoll, events, capacity, timeout));
}

int eventfd(unsigned int count, int flags) {
    return is_running ? (int)returned(simulated_eventfd()) : REAL(eventfd)(count, flags);
}

int socket(int domain, int type, int protocol) {
    return is_running ? (int)returned(simulated_socket()) : REAL(socket)(domain, type, protocol);
}

int bind(int descriptor, const struct sockaddr *address, socklen_t length) {
    return is_simulated(descriptor) ? 0 : REAL(bind)(descriptor, address, length);
}

int listen(int descriptor, int backlog) { return is_simulated(descriptor) ? 0 : REAL(listen)(descriptor, backlog); }

// All simulated sockets are on 127.0.0.1.
static int give_address(struct sockaddr *address, socklen_t *length) {
    static const unsigned char loopback[16] = {AF_INET, 0, 0x1f, 0x90, 127, 0, 0, 1};
    if (address) __builtin_memcpy(address, loopback, *length < 16 ? *length : 16);
    if (length) *length = 16;
    return 0;
}

int getsockname(int descriptor, struct sockaddr *address, socklen_t *length) {
    return is_simulated(descriptor) ? give_address(address, length) : REAL(getsockname)(descriptor, address, length);
}

int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
    if (!is_simulated(listener)) return REAL(accept4)(listener, address, length, flags);
    int descriptor = (int)returned(simulated_accept(listener));
    if (descriptor >= 0) give_address(address, length);
    return descriptor;
}

ssize_t recv(int descriptor, void *bytes, size_t count, int flags) {
    if (!is_simulated(descriptor)) return REAL(recv)(descriptor, bytes, count, flags);
    return returned(simulated_recv(descriptor, bytes, (long)count, flags & MSG_PEEK));
}

ssize_t send(int descriptor, const void *bytes, size_t count, int flags) {
    if (!is_simulated(descriptor)) return REAL(send)(descriptor, bytes, count, flags);
    return returned(simulated_send(descriptor, bytes, (long)count));
}

ssize_t write(int descriptor, const void *bytes, size_t count) {
    return is_simulated(descriptor) ? returned(simulated_write(descriptor)) : REAL(write)(descriptor, bytes, count);
}

int shutdown(int descriptor, int direction) {
    if (!is_simulated(descriptor)) return REAL(shutdown)(descriptor, direction);
    return (int)returned(simulated_shutdown(descriptor, direction));
}

int setsockopt(int descriptor, int level, int option, const void *value, socklen_t length) {
    if (!is_simulated(descriptor)) return REAL(setsockopt)(descriptor, level, option, value, length);
    return (int)returned(simulated_setsockopt(descriptor));
}

int close(int descriptor) {
    return is_simulated(descriptor) ? (int)returned(simulated_close(descriptor)) : REAL(close)(descriptor);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (!is_running || (clock != CLOCK_MONOTONIC && clock != CLOCK_REALTIME && clock != CLOCK_BOOTTIME))
        return REAL(clock_gettime)(clock, time);
    long nanoseconds = simulated_clock(clock == CLOCK_REALTIME);
    time->tv_sec = nanoseconds / 1000000000;
    time->tv_nsec = nanoseconds % 1000000000;
    return 0;
}

time_t time(time_t *result) {
    if (!is_running) return REAL(time)(result);
    time_t seconds = simulated_clock(1) / 1000000000;
    if (result) *result = seconds;
    return seconds;
}

pthread_t pthread_self(void) { return is_another_thread ? 1 : REAL(pthread_self)(); }
