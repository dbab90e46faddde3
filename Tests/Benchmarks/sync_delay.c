/* Simulates a slower disk: preloaded into a program, it sleeps before each fdatasync and fsync.
 *
 * The file named by SYNC_DELAY_STATE contains the delay, which may be changed at any time, and the counts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The same fields as in sync_delay.py. */
struct state {
    uint64_t delay;      /* nanoseconds */
    uint64_t log_syncs;  /* of the log that makes commits durable */
    uint64_t file_syncs; /* of anything else */
    uint64_t time;       /* nanoseconds that the syncs of the log took, with the delay */
};

static struct state *state;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("SYNC_DELAY_STATE");
    int descriptor = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *memory = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED) {
        perror("SYNC_DELAY_STATE");
        exit(1);
    }
    close(descriptor);
    state = memory;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * UINT64_C(1000000000) + time.tv_nsec;
}

static bool ends_with(const char *path, const char *end) {
    size_t length = strlen(path), end_length = strlen(end);
    return length > end_length && strcmp(path + length - end_length, end) == 0;
}

/* The WAL of SQLite, a segment of PostgreSQL's, which has 24 digits, or the append-only file of Redis. */
static bool is_log(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return false;
    path[length] = 0;
    const char *slash = strrchr(path, '/');
    return ends_with(path, "-wal") || ends_with(path, ".aof") ||
           (slash != NULL && strlen(slash + 1) == 24 && strspn(slash + 1, "0123456789ABCDEF") == 24);
}

static int slowly(long call, int descriptor) {
    uint64_t begin = now(), delay = __atomic_load_n(&state->delay, __ATOMIC_RELAXED);
    struct timespec sleep = {delay / 1000000000, delay % 1000000000};
    if (delay > 0) nanosleep(&sleep, NULL);
    int result = syscall(call, descriptor);
    if (is_log(descriptor)) {
        __atomic_fetch_add(&state->time, now() - begin, __ATOMIC_RELAXED);
        __atomic_fetch_add(&state->log_syncs, 1, __ATOMIC_RELAXED);
    } else {
        __atomic_fetch_add(&state->file_syncs, 1, __ATOMIC_RELAXED);
    }
    return result;
}

int fdatasync(int descriptor) {
    return slowly(SYS_fdatasync, descriptor);
}

int fsync(int descriptor) {
    return slowly(SYS_fsync, descriptor);
}
