#!/bin/bash
# libcurl 7.88.1 counts what it has said to a proxy as the size of the requests, although the server was sent nothing.
#
# Expected: "the total size of the issued requests" (curl.se/libcurl/c/CURLINFO_REQUEST_SIZE.html) is 0 while no request could be sent,
# as it is without a proxy if the TLS handshake fails.
# Instead: with an HTTP proxy the CONNECT counts, also if the proxy refuses it. CURLINFO_APPCONNECT_TIME stays 0 then.
# Affects: programs that repeat a request only if nothing of it was sent, such as one that uses up a refresh token: behind a proxy that is
# down, they take every request for sent. libcurl 8.23.0 does as expected.
set -eu
folder=$(mktemp -d)
cd "$folder"

apt-get -qq -o APT::Sandbox::User=root download curl=7.88.1-10+deb12u15 libcurl4=7.88.1-10+deb12u15
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libcurl.so.4)")
ask() {
    LD_LIBRARY_PATH=$libraries "$folder/usr/bin/curl" --silent --data refresh_token=once \
        --write-out '%{exitcode} %{size_request} %{time_appconnect}' "$@" || true
}
LD_LIBRARY_PATH=$libraries "$folder/usr/bin/curl" --version | head -1

# A server that answers 503 to everything, also to CONNECT, and speaks no TLS.
cat > server.py <<'END'
import http.server


class Refusing(http.server.BaseHTTPRequestHandler):
    def do_CONNECT(self):
        self.send_error(503)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
print(server.server_address[1], flush=True)
server.serve_forever()
END
python3 server.py > port &
server=$!
trap 'kill "$server"; rm -rf "$folder"' EXIT
until [ -s port ]; do sleep 0.1; done
here=127.0.0.1:$(cat port)

proxied=$(ask --proxy "http://$here" https://login.example/token)
direct=$(ask "https://$here/token")
echo "exit status, bytes of requests, seconds to the end of the TLS handshake"
echo "through a proxy that answers 503: $proxied"
echo "without a proxy, and TLS fails: $direct"
[[ $proxied =~ ^56\ [1-9][0-9]*\ 0\.000000$ ]]
[[ $direct =~ ^35\ 0\ 0\.000000$ ]]
