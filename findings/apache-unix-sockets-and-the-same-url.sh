#!/bin/bash
# Apache sends requests for one Unix socket to another one if the URLs behind the "|" are alike.
#
# Expected: in "ProxyPass /two unix:two.sock|http://localhost/" the socket says where requests go, and the URL only how: nobody connects to
# localhost. Two lines with two sockets reach two programs.
# Instead: a backend is known by its URL alone. A line whose URL is that of an earlier line, or begins with it, takes the earlier line's
# socket. At the default LogLevel there is no word of it (at "info" there is "Sharing worker"). With http://one/ and http://two/, names
# that are never looked up, each line reaches its own socket.
# Affects: whoever adds a second program to Apache by copying the line of the first: who asks for /two is shown the pages of /one, and
# forms for /two are sent there.
set -eu
folder=$(mktemp -d)
cd "$folder"
processes=()
trap '[ "${#processes[@]}" = 0 ] || kill "${processes[@]}" 2> /dev/null; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download apache2-bin=2.4.71-1~deb12u1 libapr1=1.7.2-3+deb12u1 libaprutil1=1.6.3-1+deb12u1
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libapr-1.so.0)")
LD_LIBRARY_PATH=$libraries usr/sbin/apache2 -v | head -1

# Two programs that answer with their own names.
cat > program.py <<'END'
import http.server
import os
import socketserver
import sys


class Answering(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())

    def log_message(self, *_):
        pass


os.umask(0)
socketserver.UnixStreamServer(sys.argv[1] + ".sock", Answering).serve_forever()
END
for name in one two; do
    python3 program.py $name &
    processes+=("$!")
    for _ in $(seq 100); do [ ! -S $name.sock ] || break; sleep 0.1; done
done
chmod -R a+rX .

# What /one and /two answer if these URLs stand behind their sockets.
answers() {
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    cat > apache.conf <<END
ServerRoot $folder
ServerName localhost
PidFile $folder/pid
ErrorLog $folder/error.log
Listen 127.0.0.1:$port
$(for module in mpm_event authz_core proxy proxy_http; do echo "LoadModule ${module}_module usr/lib/apache2/modules/mod_$module.so"; done)
User nobody
Group nogroup
ProxyPass /one unix:$folder/one.sock|$1
ProxyPass /two unix:$folder/two.sock|$2
END
    rm -f error.log
    LD_LIBRARY_PATH=$libraries usr/sbin/apache2 -DFOREGROUND -f "$folder/apache.conf" &
    processes[2]=$!
    for _ in $(seq 100); do curl -s -o page "http://127.0.0.1:$port/" && break; sleep 0.1; done
    echo "/one: $(curl -s "http://127.0.0.1:$port/one"), /two: $(curl -s "http://127.0.0.1:$port/two")" > answers
    kill "${processes[2]}"
    wait "${processes[2]}" || true
    unset 'processes[2]'
}
answers http://localhost/ http://localhost/
same=$(cat answers)
echo "both URLs are http://localhost/: $same"
if grep -v notice error.log; then exit 1; fi
answers http://localhost/ http://localhost/two
beginning=$(cat answers)
echo "the second is http://localhost/two: $beginning"
answers http://one/ http://two/
different=$(cat answers)
echo "they are http://one/ and http://two/: $different"
[ "$same" = "/one: one, /two: one" ]
[ "$beginning" = "/one: one, /two: one" ]
[ "$different" = "/one: one, /two: two" ]
