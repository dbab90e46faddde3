#!/bin/bash
# PostgreSQL's checksums do not notice that a page of a table has become zeros: its rows are gone without an error.
#
# Expected: with data checksums a page that the disk gives back other than it was written is an error, as it is if one byte is changed.
# Instead: a page of nothing but zeros counts as one that is new and empty. Queries leave out its rows, a search by the primary key finds
# nothing although the index still points there, and such a key can be inserted a second time. pg_checksums, pg_amcheck (with
# --heapallindexed and --parent-check too), pg_basebackup and pg_verifybackup are content.
# Affects: all who count on checksums where disks and file systems lose pages in just this way: after a power cut, in a sparse or thinly
# provisioned volume, in a copy with holes. Only a comparison of row counts, or of an index with its table, shows it.
set -eu
folder=$(mktemp -d)
cd "$folder"
server=
trap '[ -z "$server" ] || { kill -INT "$server"; wait "$server"; }; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download postgresql-15=15.20-0+deb12u1 postgresql-client-15=15.20-0+deb12u1 \
    libpq5=15.20-0+deb12u1
for package in ./*.deb; do dpkg -x "$package" .; done
programs=$folder/usr/lib/postgresql/15/bin
libraries=$(dirname "$(find "$folder" -name libpq.so.5)")
# PostgreSQL does not run as root.
user=()
if [ "$(id -u)" = 0 ]; then user=(setpriv --reuid=65534 --regid=65534 --clear-groups); fi
chmod 755 . && mkdir own && chmod 777 own
run() { env HOME="$folder" LD_LIBRARY_PATH="$libraries" "${user[@]}" "$programs/$@"; }
run postgres --version
run initdb -D "$folder/own/data" -U postgres --auth trust --data-checksums --no-sync -L "$folder/usr/share/postgresql/15" > initdb.log

start() {
    env LD_LIBRARY_PATH="$libraries" "${user[@]}" "$programs/postgres" -D "$folder/own/data" \
        -c listen_addresses= -c unix_socket_directories="$folder/own" -c autovacuum=off -c jit=off 2>> server.log &
    server=$!
    for _ in $(seq 100); do ask -c 'SELECT 1' > answer 2>&1 && break; sleep 0.1; done
}
stop() {
    kill -INT "$server"
    wait "$server"
    server=
}
ask() { run psql -h "$folder/own" -U postgres -qAtX "$@"; }
bad() { run pg_checksums --check -D "$folder/own/data" 2> errors | sed -n 's/^Bad checksums: *//p'; }

start
ask -c "CREATE EXTENSION amcheck" -c "CREATE TABLE numbers (number int PRIMARY KEY, value text)" \
    -c "INSERT INTO numbers SELECT number, repeat('x', 100) FROM generate_series(1, 1000) number" -c 'VACUUM numbers'
# A row of the second page.
row=$(ask -c "SELECT number FROM numbers WHERE ctid = '(1,1)'")
file=own/data/$(ask -c "SELECT pg_relation_filepath('numbers')")
stop

# One byte of the page is changed, and then all of them.
cp "$file" sound
printf y | dd of="$file" bs=1 seek=$((2 * 8192 - 50)) conv=notrunc status=none
byte=$(bad)
echo "one byte changed: bad checksums: $byte"
dd if=sound of="$file" conv=notrunc status=none
dd if=/dev/zero of="$file" bs=8192 seek=1 count=1 conv=notrunc status=none
zeros=$(bad)
echo "page of zeros: bad checksums: $zeros"

start
count=$(ask -c 'SELECT count(*) FROM numbers')
echo "rows of 1000 that are left: $count"
found=$(ask -c 'SET enable_seqscan = off' -c "SELECT count(value) FROM numbers WHERE number = $row")
echo "rows with the key $row, by the index: $found"
run pg_amcheck -h "$folder/own" -U postgres --heapallindexed --parent-check postgres
echo "pg_amcheck: status 0"
run pg_basebackup -h "$folder/own" -U postgres -D "$folder/own/backup" --checkpoint=fast --no-sync
run pg_verifybackup "$folder/own/backup"
failures=$(ask -c "SELECT sum(checksum_failures) FROM pg_stat_database")
echo "pg_basebackup: status 0, checksum failures that the server has counted: $failures"
ask -c "INSERT INTO numbers VALUES ($row, 'the second')"
echo "the key $row is inserted once more: no error"
[ "$byte" = 1 ]
[ "$zeros" = 0 ]
[ "$count" -lt 1000 ]
[ "$found" = 0 ]
[ "$failures" = 0 ]
if grep -i 'corrupt\|invalid page\|checksum' server.log; then exit 1; fi
