/* Simulates a faulty or slow disk below one folder, or records it; preloaded into a server with LD_PRELOAD.
 *
 *   STORAGE_SHIM_FOLDER     the folder, as an absolute path without symbolic links
 *   STORAGE_SHIM_CONTROL    a file that contains `struct control`; it is mapped, so that tests can change the controls
 *                           and read the counts while the server runs
 *   STORAGE_SHIM_RECORDING  if set: the file to which events are appended in their order
 *
 * It intercepts the calls of SQLite and the server by name. It does not see writes through mmap (to a -shm file), which
 * need not survive a power cut.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "real_function.h"

/* In storage_shim.py: FIELDS. Chances are per 65,536 calls. */
struct control {
    _Atomic uint32_t seed;
    _Atomic uint32_t sync_delay_microseconds;
    _Atomic uint32_t write_delay_microseconds;
    _Atomic uint32_t write_failures;
    _Atomic uint32_t short_writes;
    _Atomic uint32_t sync_failures;
    _Atomic uint32_t truncate_failures;
    _Atomic uint32_t next_database_syncs; /* this many fail, of the database and not of the WAL */
    _Atomic uint32_t late_database_syncs; /* each of these waits until so many more bytes were written, for at most 5 s */
    _Atomic uint32_t error; /* an errno; 0 for EIO or ENOSPC, either at random */
    _Atomic uint32_t end_after_events; /* kills the process between two recorded events; 0 for never */
    /* Counts: */
    _Atomic uint32_t failed_writes;
    _Atomic uint32_t shortened_writes;
    _Atomic uint32_t failed_syncs;
    _Atomic uint32_t failed_truncates;
    _Atomic uint32_t delayed_writes;
};

/* The same names as in power_cut.py. */
enum kind { STARTED = 1, OPENED, WRITTEN, SYNCED, SYNC_FAILED, TRUNCATED, UNLINKED, RENAMED, SENT };

/* The header of an event in the recording, before its data. */
struct event {
    uint32_t kind;
    uint32_t subject; /* the number of an opened file, or the client's port */
    uint64_t position;
    uint64_t length;
};

/* The server opens its files early; higher descriptors are connections. */
enum { MOST_DESCRIPTORS = 1 << 16 };

static char folder[PATH_MAX];
static size_t folder_length;
static struct control no_control;
static struct control *control = &no_control;
static int recording = -1;

/* Held during a call and the recording of its event, so that the recording has the order of the calls. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static uint64_t event_count;
static uint32_t opened_count;
static _Atomic uint64_t written_bytes;
/* The length of this thread's last write, and that of a mark of the database (CheckpointMark.swift). */
static _Thread_local size_t last_length;
#define MARK_LENGTH 16

/* For each descriptor, the number of its open file; 0 for everything outside the folder. */
static _Atomic uint32_t numbers[MOST_DESCRIPTORS];

/* The descriptor whose last write was shortened: its next write fails, as on a disk that has just become full. */
static _Thread_local int full_descriptor = -1;

/* The recording */

static void record(enum kind kind, uint32_t subject, uint64_t position, const void *data, size_t length)
{
    if (recording < 0) return;
    struct event event = { kind, subject, position, length };
    struct iovec parts[] = { { &event, sizeof event }, { (void *)data, length } };
    if (writev(recording, parts, 2) != (ssize_t)(sizeof event + length)) {
        static const char message[] = "storage_shim: the recording cannot be written\n";
        (void)!REAL(write)(STDERR_FILENO, message, sizeof message - 1);
        abort();
    }
    event_count += 1;
    if (event_count == control->end_after_events) kill(getpid(), SIGKILL);
}

__attribute__((constructor)) static void start(void)
{
    const char *name = getenv("STORAGE_SHIM_FOLDER");
    const char *control_file = getenv("STORAGE_SHIM_CONTROL");
    const char *recording_file = getenv("STORAGE_SHIM_RECORDING");
    if (!name || !control_file) return;
    folder_length = strlen(name);
    if (folder_length >= sizeof folder) abort();
    memcpy(folder, name, folder_length + 1);

    int descriptor = REAL(open)(control_file, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) abort();
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) abort();
    REAL(close)(descriptor);
    control = mapped;

    if (!recording_file) return;
    recording = REAL(open)(recording_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (recording < 0) abort();
    record(STARTED, 0, 0, NULL, 0);
}

/* Files */

/* The part of a path below the folder, "" for the folder itself, NULL for other paths. */
static const char *below_folder(const char *path)
{
    if (folder_length == 0 || strncmp(path, folder, folder_length) != 0) return NULL;
    if (path[folder_length] == '\0') return path + folder_length;
    return path[folder_length] == '/' ? path + folder_length + 1 : NULL;
}

static uint32_t number_of(int descriptor)
{
    return descriptor >= 0 && descriptor < MOST_DESCRIPTORS ? numbers[descriptor] : 0;
}

/* The length of the path of a descriptor; negative if it has none. */
static ssize_t path_of(int descriptor, char path[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length >= 0) path[length] = '\0';
    return length;
}

/* Records what a new descriptor was opened on. */
static void note_opened(int descriptor, int flags)
{
    if (descriptor < 0 || descriptor >= MOST_DESCRIPTORS || folder_length == 0) return;
    char path[PATH_MAX];
    if (path_of(descriptor, path) < 0) return;
    const char *relative = below_folder(path);
    struct stat status;
    if (!relative || fstat(descriptor, &status) != 0) return;
    numbers[descriptor] = ++opened_count;
    record(OPENED, opened_count, S_ISDIR(status.st_mode), relative, strlen(relative));
    if (flags & O_TRUNC) record(TRUNCATED, opened_count, 0, NULL, 0);
}

#define OPENING(path, flags, call) \
    ({ \
        pthread_mutex_lock(&order); \
        int descriptor = (call); \
        int error = errno; \
        note_opened(descriptor, flags); \
        pthread_mutex_unlock(&order); \
        errno = error; \
        descriptor; \
    })

DEFINE_OPENING

int close(int descriptor)
{
    /* Before the call, because after it another thread may already have reused the descriptor. */
    if (number_of(descriptor)) numbers[descriptor] = 0;
    return REAL(close)(descriptor);
}

/* Faults */

/* Whether an event with this chance happens now. Each call advances the seed (splitmix64). */
static int strikes(uint32_t chance)
{
    if (chance == 0) return 0;
    uint64_t state = (uint64_t)atomic_fetch_add(&control->seed, 1) * 0x9e3779b97f4a7c15;
    state = (state ^ state >> 30) * 0xbf58476d1ce4e5b9;
    state = (state ^ state >> 27) * 0x94d049bb133111eb;
    return (state >> 40 & 0xffff) < chance;
}

static int fail(_Atomic uint32_t *count)
{
    atomic_fetch_add(count, 1);
    errno = control->error ? (int)control->error : strikes(32768) ? EIO : ENOSPC;
    return -1;
}

/* Sleeps in short pieces, so that a hanging disk continues as soon as a test resets the delay. */
static void delay(_Atomic uint32_t *microseconds)
{
    const uint32_t piece = 10000;
    for (uint32_t waited = 0; waited < *microseconds; waited += piece) {
        uint32_t rest = *microseconds;
        if (rest > waited) usleep(rest - waited < piece ? rest - waited : piece);
    }
}

static ssize_t write_at(int descriptor, uint32_t number, const void *data, size_t length, off_t position)
{
    if (full_descriptor == descriptor) {
        full_descriptor = -1;
        /* This thread's next write may come long after the disk is sound again. */
        if (control->short_writes) {
            errno = ENOSPC;
            return -1;
        }
    }
    if (control->write_delay_microseconds) {
        atomic_fetch_add(&control->delayed_writes, 1);
        delay(&control->write_delay_microseconds);
    }
    if (strikes(control->write_failures)) return fail(&control->failed_writes);
    if (length > 1 && strikes(control->short_writes)) {
        atomic_fetch_add(&control->shortened_writes, 1);
        full_descriptor = descriptor;
        length = 1 + atomic_fetch_add(&control->seed, 1) % (length - 1);
    }
    last_length = length;
    pthread_mutex_lock(&order);
    ssize_t written = REAL(pwrite64)(descriptor, data, length, position);
    int error = errno;
    if (written > 0) record(WRITTEN, number, position, data, written);
    if (written > 0) written_bytes += written;
    pthread_mutex_unlock(&order);
    errno = error;
    return written;
}

ssize_t pwrite(int descriptor, const void *data, size_t length, off_t position)
{
    uint32_t number = number_of(descriptor);
    if (number) return write_at(descriptor, number, data, length, position);
    return REAL(pwrite)(descriptor, data, length, position);
}

ssize_t pwrite64(int descriptor, const void *data, size_t length, off64_t position)
{
    uint32_t number = number_of(descriptor);
    if (number) return write_at(descriptor, number, data, length, position);
    return REAL(pwrite64)(descriptor, data, length, position);
}

ssize_t write(int descriptor, const void *data, size_t length)
{
    uint32_t number = number_of(descriptor);
    if (!number) return REAL(write)(descriptor, data, length);
    off_t position = lseek(descriptor, 0, SEEK_CUR);
    ssize_t written = write_at(descriptor, number, data, length, position);
    if (written > 0) lseek(descriptor, position + written, SEEK_SET);
    return written;
}

static int is_database(int descriptor)
{
    /* The sync of the mark before a checkpoint is not one of pages. */
    if (last_length == MARK_LENGTH) return 0;
    char path[PATH_MAX];
    ssize_t length = path_of(descriptor, path);
    return length >= 3 && strcmp(path + length - 3, ".db") == 0;
}

static int is_next_to_fail(int descriptor)
{
    if (control->next_database_syncs == 0 || !is_database(descriptor)) return 0;
    control->next_database_syncs -= 1;
    return 1;
}

static void wait_for_writes(int descriptor)
{
    if (control->late_database_syncs == 0 || control->next_database_syncs == 0 || !is_database(descriptor)) return;
    uint64_t enough = written_bytes + control->late_database_syncs;
    for (int milliseconds = 0; written_bytes < enough && milliseconds < 5000; milliseconds += 1) usleep(1000);
}

static int synchronize(int descriptor, uint32_t number, int (*real)(int))
{
    pthread_mutex_lock(&order);
    /* Data written during the call may not be synced by it. */
    uint64_t covered = event_count;
    pthread_mutex_unlock(&order);
    /* Not under the lock, so that an answer that does not wait for the sync can be recorded before its end. */
    delay(&control->sync_delay_microseconds);
    wait_for_writes(descriptor);
    int fails = is_next_to_fail(descriptor) || strikes(control->sync_failures);
    int result = fails ? fail(&control->failed_syncs) : real(descriptor);
    int error = errno;
    pthread_mutex_lock(&order);
    record(result == 0 ? SYNCED : SYNC_FAILED, number, covered, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int fdatasync(int descriptor)
{
    uint32_t number = number_of(descriptor);
    return number ? synchronize(descriptor, number, REAL(fdatasync)) : REAL(fdatasync)(descriptor);
}

int fsync(int descriptor)
{
    uint32_t number = number_of(descriptor);
    return number ? synchronize(descriptor, number, REAL(fsync)) : REAL(fsync)(descriptor);
}

int syncfs(int descriptor)
{
    uint32_t number = number_of(descriptor);
    return number ? synchronize(descriptor, number, REAL(syncfs)) : REAL(syncfs)(descriptor);
}

static int truncate_to(int descriptor, uint32_t number, off_t size)
{
    if (strikes(control->truncate_failures)) return fail(&control->failed_truncates);
    pthread_mutex_lock(&order);
    int result = REAL(ftruncate64)(descriptor, size);
    int error = errno;
    if (result == 0) record(TRUNCATED, number, size, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int ftruncate(int descriptor, off_t size)
{
    uint32_t number = number_of(descriptor);
    return number ? truncate_to(descriptor, number, size) : REAL(ftruncate)(descriptor, size);
}

int ftruncate64(int descriptor, off64_t size)
{
    uint32_t number = number_of(descriptor);
    return number ? truncate_to(descriptor, number, size) : REAL(ftruncate64)(descriptor, size);
}

/* Calls that are only recorded */

int unlink(const char *path)
{
    char whole[PATH_MAX];
    const char *relative = recording >= 0 && realpath(path, whole) ? below_folder(whole) : NULL;
    if (!relative) return REAL(unlink)(path);
    pthread_mutex_lock(&order);
    int result = REAL(unlink)(path);
    int error = errno;
    if (result == 0) record(UNLINKED, 0, 0, relative, strlen(relative));
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

int rename(const char *from, const char *to)
{
    char whole_from[PATH_MAX], whole_to[PATH_MAX], names[2 * PATH_MAX];
    const char *relative = recording >= 0 && realpath(from, whole_from) ? below_folder(whole_from) : NULL;
    if (!relative) return REAL(rename)(from, to);
    pthread_mutex_lock(&order);
    int result = REAL(rename)(from, to);
    int error = errno;
    const char *target = result == 0 && realpath(to, whole_to) ? below_folder(whole_to) : NULL;
    if (target) {
        /* Includes the zero byte between the two paths. */
        int length = snprintf(names, sizeof names, "%s%c%s", relative, '\0', target);
        record(RENAMED, 0, 0, names, length);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return result;
}

/* The port of a TCP socket's other end, 0 for anything else. */
static uint32_t port_of(int descriptor)
{
    struct sockaddr_in6 address;
    socklen_t length = sizeof address;
    if (getpeername(descriptor, (struct sockaddr *)&address, &length) != 0) return 0;
    /* IPv4 has its port in the same place. */
    return address.sin6_family == AF_INET || address.sin6_family == AF_INET6 ? ntohs(address.sin6_port) : 0;
}

/* Answers: the server sends them only with this call, on non-blocking sockets; a test checks that none is missing. Requests
 * are not recorded, because the client knows what it sent in which order. */
ssize_t send(int descriptor, const void *data, size_t length, int flags)
{
    uint32_t port = recording >= 0 ? port_of(descriptor) : 0;
    if (!port) return REAL(send)(descriptor, data, length, flags);
    pthread_mutex_lock(&order);
    ssize_t sent = REAL(send)(descriptor, data, length, flags);
    int error = errno;
    if (sent > 0) record(SENT, port, 0, data, sent);
    pthread_mutex_unlock(&order);
    errno = error;
    return sent;
}
