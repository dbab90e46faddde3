#!/bin/bash
# nginx's ssl_ecdh_curve decides which client certificates are accepted over TLS 1.2.
#
# Expected: the list of curves concerns the key exchange only. A client's certificate with a P-384 key is accepted.
# Instead: over TLS 1.2, OpenSSL looks for the curve of the client's key in that list and ends the handshake with illegal_parameter
# ("wrong curve"); over TLS 1.3 the same certificate is accepted.
# Affects: servers with client certificates whose operators shorten the list, for example for speed or by a hardening guide; devices
# with P-384 or P-521 keys and TLS 1.2 then fail, and others do not.
set -eu
folder=$(mktemp -d)
cd "$folder"
process=
trap '[ -z "$process" ] || kill "$process"; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download nginx=1.22.1-9+deb12u11 openssl=3.0.22-1~deb12u2 libssl3=3.0.22-1~deb12u2
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name libssl.so.3)")
run() { LD_LIBRARY_PATH=$libraries "$@"; }
openssl() { run usr/bin/openssl "$@"; }
export OPENSSL_CONF=/dev/null
run usr/sbin/nginx -v
openssl version

pair() { openssl req -x509 -newkey ec -pkeyopt "ec_paramgen_curve:$2" -nodes -days 2 -subj "/CN=$1" -out "$1.crt" -keyout "$1.key" "${@:3}" 2> /dev/null; }
cat > request.conf <<'END'
[req]
distinguished_name=name
[name]
END
export OPENSSL_CONF=$folder/request.conf
pair localhost P-256
pair p256 P-256
pair p384 P-384
cat p256.crt p384.crt > clients.pem
cat > nginx.conf <<END
daemon off; master_process off; pid $folder/pid; error_log $folder/error.log info;
events {}
http {
    access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
    server {
        listen unix:$folder/socket ssl;
        ssl_certificate localhost.crt; ssl_certificate_key localhost.key; ssl_protocols TLSv1.2 TLSv1.3;
        ssl_ecdh_curve X25519:prime256v1;
        ssl_verify_client on; ssl_client_certificate clients.pem;
        return 200 "served\n";
    }
}
END
LD_LIBRARY_PATH=$libraries usr/sbin/nginx -p "$folder" -c nginx.conf -e error.log &
process=$!
for _ in $(seq 100); do [ ! -S socket ] || break; sleep 0.1; done

outcomes=
for version in tls1_2 tls1_3; do
    for client in p256 p384; do
        outcome=refused
        printf 'GET / HTTP/1.0\r\n\r\n' \
            | openssl s_client -unix socket "-$version" -cert $client.crt -key $client.key -ign_eof 2>&1 | grep -q '^served' && outcome=served
        echo "$version, $client: $outcome"
        outcomes+=" $outcome"
    done
done
grep -o 'SSL_do_handshake.*wrong curve' error.log
[ "$outcomes" = " served refused served served" ]
