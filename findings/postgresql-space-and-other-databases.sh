#!/bin/bash
# PostgreSQL, while it updates rows, uses no space of old rows again as long as a transaction is open in another database.
#
# Expected: a transaction in another database cannot see the rows of this one. VACUUM takes that into account, and without VACUUM an
# update first makes room in its page: a table whose rows are updated one after the other hardly grows.
# Instead: a transaction with an id, which has written something, keeps updates from using the space in all databases of the server,
# whereas VACUUM gives it back all the same, and a transaction that has only read there, even with REPEATABLE READ, keeps nothing.
# Affects: batches of updates that rely on this, such as one that encrypts all rows anew: beside a long write in any other database the
# table doubles, unless VACUUM runs between the parts of the batch. Databases on one server are less apart than they seem.
set -eu
folder=$(mktemp -d)
cd "$folder"
server=
trap '[ -z "$server" ] || { kill -INT "$server"; wait "$server"; }; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download postgresql-15=15.20-0+deb12u1 postgresql-client-15=15.20-0+deb12u1 \
    libpq5=15.20-0+deb12u1
for package in ./*.deb; do dpkg -x "$package" .; done
programs=$folder/usr/lib/postgresql/15/bin
# PostgreSQL does not run as root.
user=()
if [ "$(id -u)" = 0 ]; then
    user=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chmod 755 "$folder" && mkdir data && chown 65534:65534 data
fi
run() { env HOME="$folder" LD_LIBRARY_PATH="$(dirname "$(find "$folder" -name libpq.so.5)")" "${user[@]}" "$programs/$@"; }
run postgres --version
run initdb -D "$folder/data" -U postgres --auth trust --no-sync -L "$folder/usr/share/postgresql/15" > initdb.log
mkdir data/sockets && chown --reference=data data/sockets
env LD_LIBRARY_PATH="$(dirname "$(find "$folder" -name libpq.so.5)")" "${user[@]}" "$programs/postgres" -D "$folder/data" \
    -c listen_addresses= -c unix_socket_directories="$folder/data/sockets" -c autovacuum=off -c fsync=off -c jit=off 2> server.log &
server=$!
ask() { run psql -h "$folder/data/sockets" -U postgres -qAtX "$@"; }
for _ in $(seq 100); do ask -c 'SELECT 1' > answer 2>&1 && break; sleep 0.1; done
ask -c 'CREATE DATABASE other'

# How much a table grows, in per cent, if all rows are updated in eight parts; the argument is a statement after each of them.
growth() {
    ask -c 'DROP TABLE IF EXISTS numbers' -c 'CREATE TABLE numbers (number int PRIMARY KEY, value text)' \
        -c "INSERT INTO numbers SELECT number, repeat('x', 400) FROM generate_series(1, 2000) number" 2> answer
    local before after part
    before=$(ask -c "SELECT pg_relation_size('numbers')")
    for part in 0 1 2 3 4 5 6 7; do
        ask -c "UPDATE numbers SET value = repeat('y', 400) WHERE number % 8 = $part" -c "${1:-SELECT}" > answer
    done
    after=$(ask -c "SELECT pg_relation_size('numbers')")
    echo $((100 * after / before - 100))
}
# The same beside a transaction in the other database, which begins with these statements.
beside() {
    mkfifo pipe
    ask -d other < pipe > answer.other &
    exec 3> pipe
    echo "$1; SELECT 'begun';" >&3
    until grep -q begun answer.other; do sleep 0.1; done
    growth "${2:-}"
    exec 3>&-
    wait "$!"
    rm pipe
}
alone=$(growth)
echo "alone: $alone %"
reading=$(beside 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class')
echo "beside a transaction that reads in another database: $reading %"
writing=$(beside 'BEGIN; CREATE TABLE written (number int)')
echo "beside one that has written something there: $writing %"
vacuumed=$(beside 'BEGIN; CREATE TABLE written (number int)' 'VACUUM numbers')
echo "beside one that has written something there, with VACUUM after each part: $vacuumed %"
[ "$alone" -lt 30 ]
[ "$reading" -lt 30 ]
[ "$writing" -gt 70 ]
[ "$vacuumed" -lt 30 ]
