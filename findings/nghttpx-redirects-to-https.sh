#!/bin/bash
# nghttpx turns a backend's redirect from http to https into one to the very http URL that was asked for.
#
# Expected: a reverse proxy rewrites a Location with the backend's own address. One with https:// and the host that the client asked for
# needs no change: its scheme is all that the redirect is about.
# Instead: a Location is rewritten if its host is the one in the request to the backend, which is the client's by default, and then it
# gets the scheme of the client's connection. https becomes http, and browsers end in a loop. Other hosts are left alone. The manual has
# an option no-location-rewrite, but does not say what is rewritten.
# Affects: applications that redirect to https by themselves, and work so behind other proxies that send X-Forwarded-Proto. That option
# helps, or redirect-if-not-tls of nghttpx in place of the application's redirect.
set -eu
folder=$(mktemp -d)
cd "$folder"
processes=()
trap '[ "${#processes[@]}" = 0 ] || kill "${processes[@]}" 2> /dev/null; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download nghttp2-proxy=1.52.0-1+deb12u3 libnghttp2-14=1.52.0-1+deb12u3 libev4=1:4.33-1 \
    libjemalloc2=5.3.0-1 libc-ares2=1.18.1-3
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libev.so.4)")
nghttpx() { LD_LIBRARY_PATH=$libraries exec usr/sbin/nghttpx "$@"; }
(nghttpx --version)

# An application that redirects to https what has come over http; /elsewhere has moved to another host.
cat > application.py <<'END'
import http.server
import socketserver


class Redirecting(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        host = "other.example" if self.path == "/elsewhere" else self.headers["Host"]
        self.send_response(301 if self.headers["X-Forwarded-Proto"] == "http" else 200)
        self.send_header("Location", f"https://{host}{self.path}")
        self.end_headers()

    def log_message(self, *_):
        pass


socketserver.UnixStreamServer("application.sock", Redirecting).serve_forever()
END
wait_for() { for _ in $(seq 100); do [ ! -S "$1" ] || break; sleep 0.1; done; }
python3 application.py &
processes+=("$!")
wait_for application.sock
# One as it is, and one with the option.
for name in default option; do
    options=()
    if [ $name = option ]; then options=(--no-location-rewrite); fi
    nghttpx --conf=/dev/null --workers=1 --frontend="unix:$folder/$name.sock;no-tls" --backend="unix:$folder/application.sock" \
        --errorlog-file="$folder/error.log" "${options[@]}" 2>> notices &
    processes+=("$!")
    wait_for $name.sock
done

location() { curl -s -o answer -w '%header{location}\n' -H "X-Forwarded-Proto: http" --unix-socket "$1.sock" "http://tokens.example$2"; }
direct=$(location application /page)
echo "the application: $direct"
through=$(location default /page)
echo "through nghttpx: $through"
elsewhere=$(location default /elsewhere)
echo "to another host: $elsewhere"
kept=$(location option /page)
echo "with no-location-rewrite: $kept"
loop=0
curl -s -o answer --location --max-redirs 20 --unix-socket default.sock http://tokens.example/page || loop=$?
echo "curl that follows redirects through nghttpx: status $loop"
[ "$direct" = https://tokens.example/page ]
[ "$through" = http://tokens.example/page ]
[ "$elsewhere" = https://other.example/elsewhere ]
[ "$kept" = https://tokens.example/page ]
[ "$loop" = 47 ]
