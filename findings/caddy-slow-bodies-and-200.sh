#!/bin/bash
# Caddy answers 200 without a body if a request's body does not arrive within the server option read_body.
#
# Expected: the client gets 408, or the connection ends without an answer, and nothing looks like a success.
# Instead: with reverse_proxy, the answer is 200 with Content-Length: 0, while Caddy's own log has status 0. The application never gets the
# whole request.
# Affects: clients that take any 200 for a success, such as those that upload over slow mobile networks. If the application gives up
# earlier than read_body, its own answer reaches the client.
set -eu
folder=$(mktemp -d)
cd "$folder"
processes=()
trap '[ "${#processes[@]}" = 0 ] || kill "${processes[@]}" 2> /dev/null; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download caddy=2.6.2-5
for package in ./*.deb; do dpkg -x "$package" .; done
usr/bin/caddy version

# An application that waits for the whole body, for as long as its argument says in seconds.
cat > application.py <<'END'
import http.server
import socketserver
import sys


class Reading(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.connection.settimeout(float(sys.argv[2]))
        try:
            whole = len(self.rfile.read(int(self.headers["Content-Length"]))) == int(self.headers["Content-Length"])
        except OSError:
            whole = False
        body = b"stored" if whole else b"too slow"
        self.send_response(200 if whole else 408)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


Server(sys.argv[1], Reading).serve_forever()
END
# Sends a part of the body, and prints the answer's status and body.
cat > client.py <<'END'
import http.client
import socket
import sys

connection = socket.socket(socket.AF_UNIX)
connection.settimeout(30)
connection.connect(sys.argv[1])
body = b"x" * 1000
sent = body if sys.argv[2] == "whole" else body[:25]
connection.sendall(b"POST / HTTP/1.1\r\nHost: application.example\r\nContent-Length: 1000\r\n\r\n" + sent)
answer = http.client.HTTPResponse(connection)
try:
    answer.begin()
    print(answer.status, answer.read().decode() or "(no body)")
except (http.client.HTTPException, OSError):
    print("no answer")
END
wait_for() { for _ in $(seq 100); do [ ! -S "$1" ] || break; sleep 0.1; done; }
for patience in 1 20; do
    python3 application.py "$folder/application-$patience.sock" $patience 2>> errors &
    processes+=("$!")
    wait_for application-$patience.sock
done
cat > Caddyfile <<END
{
	admin off
	servers {
		timeouts {
			read_body 3s
		}
	}
}
http:// {
	bind unix/$folder/patient.sock
	reverse_proxy unix/$folder/application-20.sock
}
http://:81 {
	bind unix/$folder/impatient.sock
	reverse_proxy unix/$folder/application-1.sock
}
END
HOME=$folder usr/bin/caddy run --config Caddyfile 2> log &
processes+=("$!")
wait_for patient.sock
wait_for impatient.sock

whole=$(python3 client.py patient.sock whole)
echo "a whole body: $whole"
slow=$(python3 client.py patient.sock slow)
echo "a body that does not end, with a patient application: $slow"
earlier=$(python3 client.py impatient.sock slow)
echo "the same, with an application that gives up first: $earlier"
[ "$whole" = "200 stored" ]
[ "$slow" = "200 (no body)" ]
[ "$earlier" = "408 too slow" ]
