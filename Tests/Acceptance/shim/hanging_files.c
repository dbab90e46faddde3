/* Simulates a network file system whose server does not answer; preloaded into a server with LD_PRELOAD.
 *
 *   HANGING_FOLDER  the folder, as an absolute path without symbolic links
 *   HANGING_SWITCH  a path; while PATH.open exists, opening a file of the folder takes for ever, and while PATH.write exists,
 *                   writing to one; the first call that hangs makes the folder PATH.open.reached or PATH.write.reached
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "real_function.h"

static int is_below_folder(const char *path)
{
    const char *folder = getenv("HANGING_FOLDER");
    return folder && strncmp(path, folder, strlen(folder)) == 0;
}

static void wait_for(const char *call, const char *path)
{
    const char *prefix = getenv("HANGING_SWITCH");
    char name[PATH_MAX], reached[PATH_MAX];
    if (!prefix || !is_below_folder(path)) return;
    snprintf(name, sizeof name, "%s.%s", prefix, call);
    snprintf(reached, sizeof reached, "%s.%s.reached", prefix, call);
    while (access(name, F_OK) == 0) {
        mkdir(reached, 0700);
        usleep(10000);
    }
}

#define OPENING(path, flags, call) (wait_for("open", path), (call))

DEFINE_OPENING

ssize_t write(int descriptor, const void *data, size_t length)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t count = readlink(link, path, sizeof path - 1);
    if (count > 0) {
        path[count] = 0;
        wait_for("write", path);
    }
    return REAL(write)(descriptor, data, length);
}
