#!/bin/bash
# SQLite says "database disk image is malformed" when the disk cannot read a page at the moment.
#
# Expected: a read that fails with EIO is SQLITE_IOERR, "disk I/O error", as one that fails with ESTALE is: the disk has failed, and
# nobody knows what is in the page. SQLITE_CORRUPT says that the page was read and makes no sense.
# Instead: EIO and ENXIO become SQLITE_CORRUPT, and when the disk reads the page again, nothing is wrong.
# Affects: programs that repair, skip or replace what is damaged, and repeat what the disk has failed to do: a cable that is loose for a
# moment looks like lost data.
set -eu
folder=$(mktemp -d)
cd "$folder"
trap 'rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download sqlite3=3.40.1-2+deb12u2 libsqlite3-0=3.40.1-2+deb12u2
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libsqlite3.so.0)")
sqlite() { LD_LIBRARY_PATH=$libraries "$folder/usr/bin/sqlite3" "$@"; }
sqlite --version

# A disk that cannot read the third page of a database.
cat > disk.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

ssize_t pread64(int file, void *bytes, size_t count, off64_t offset) {
    ssize_t (*next)(int, void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pread64");
    if (offset == 2 * 4096 && count == 4096) {
        errno = atoi(getenv("DISK_ERROR"));
        return -1;
    }
    return next(file, bytes, count, offset);
}
END
cc -shared -fPIC -o disk.so disk.c -ldl

sqlite data.db "CREATE TABLE numbers (number INTEGER PRIMARY KEY, text TEXT);
    WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 1000) INSERT INTO numbers SELECT i, printf('%050d', i) FROM n"
count() { sqlite data.db 'SELECT sum(length(text)) FROM numbers' 2>&1 || true; }
ask() { DISK_ERROR=$1 LD_PRELOAD=$folder/disk.so count; }
io=$(ask 5)
echo "EIO: $io"
nodevice=$(ask 6)
echo "ENXIO: $nodevice"
other=$(ask 116)
echo "ESTALE: $other"
sound=$(count)
echo "the disk reads the page again: $sound, integrity $(sqlite data.db 'PRAGMA integrity_check')"
[[ $io == *"database disk image is malformed (11)" ]]
[[ $nodevice == *"database disk image is malformed (11)" ]]
[[ $other == *"disk I/O error (10)" ]]
[ "$sound" = 50000 ]
