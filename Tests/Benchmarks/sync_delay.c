/* Simulates a slower disk: preloaded into a program, it sleeps before each fdatasync and fsync.
 *
 * The file named by SYNC_DELAY_FILE contains the delay in nanoseconds, which may be changed at any time.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static uint64_t *delay;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("SYNC_DELAY_FILE");
    int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    delay = mmap(NULL, sizeof *delay, PROT_READ, MAP_SHARED, descriptor, 0);
    if (delay == MAP_FAILED) {
        perror("SYNC_DELAY_FILE");
        exit(1);
    }
    close(descriptor);
}

static int slowly(long call, int descriptor) {
    uint64_t nanoseconds = __atomic_load_n(delay, __ATOMIC_RELAXED);
    struct timespec sleep = {nanoseconds / 1000000000, nanoseconds % 1000000000};
    if (nanoseconds > 0) nanosleep(&sleep, NULL);
    return syscall(call, descriptor);
}

int fdatasync(int descriptor) {
    return slowly(SYS_fdatasync, descriptor);
}

int fsync(int descriptor) {
    return slowly(SYS_fsync, descriptor);
}
