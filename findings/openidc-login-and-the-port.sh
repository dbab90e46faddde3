#!/bin/bash
# After a login, mod_auth_openidc sends browsers to the port that Apache listens on, not to the one in their URL.
#
# Expected: a request with "Host: tokens.example.com" has come to the default port (RFC 9110, section 7.2: the port is left out if it
# is the default), as Apache's own redirects, with UseCanonicalName Off, take it. A redirect URI that is given as a path becomes
# https://tokens.example.com/login, and a page that asked for a login comes back under its own URL.
# Instead: where Host has no port, the module takes that of the listening socket.
# Affects: Apache in a container or behind a forwarded port (443 outside, 8443 inside): the provider refuses a redirect URI that is not
# registered, or the browser comes back to a port that nobody reaches. With OIDCXForwardedHeaders, a header X-Forwarded-Port from a
# proxy before Apache helps.
set -eu
folder=$(mktemp -d)
cd "$folder"
process=
trap '[ -z "$process" ] || kill "$process"; rm -rf "$folder"' EXIT

apt-get -qq -o APT::Sandbox::User=root download apache2-bin=2.4.71-1~deb12u1 libapache2-mod-auth-openidc=2.4.12.3-2+deb12u5 \
    libcjose0=0.6.2.1-1+deb12u2 libjansson4=2.14-2 libhiredis0.14=0.14.1-3 libapr1=1.7.2-3+deb12u1 libaprutil1=1.6.3-1+deb12u1
for package in ./*.deb; do dpkg -x "$package" .; done
libraries=$(dirname "$(find "$folder" -name 'libcjose.so.0')")
apache() { LD_LIBRARY_PATH=$libraries exec "$folder/usr/sbin/apache2" "$@"; }
apache -v | head -1
dpkg -f libapache2-mod-auth-openidc_*.deb Version

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
modules=$folder/usr/lib/apache2/modules
cat > apache.conf <<END
ServerRoot $folder
ServerName tokens.example.com
PidFile $folder/pid
ErrorLog $folder/error.log
Listen 127.0.0.1:$port
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authn_core_module $modules/mod_authn_core.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule authz_user_module $modules/mod_authz_user.so
LoadModule dir_module $modules/mod_dir.so
LoadModule auth_openidc_module $modules/mod_auth_openidc.so
User nobody
Group nogroup
DocumentRoot $folder/pages
OIDCProviderIssuer https://login.example.com
OIDCProviderAuthorizationEndpoint https://login.example.com/authorize
OIDCProviderTokenEndpoint https://login.example.com/token
OIDCProviderJwksUri https://login.example.com/jwks
OIDCClientID client
OIDCClientSecret secret
OIDCCryptoPassphrase passphrase
OIDCRedirectURI /login
OIDCXForwardedHeaders X-Forwarded-Port
<Location /private>
    AuthType openid-connect
    Require valid-user
</Location>
END
mkdir -p pages/folder
chmod -R a+rX .
apache -DFOREGROUND -f "$folder/apache.conf" &
process=$!
for _ in $(seq 100); do curl -s -o answer "http://127.0.0.1:$port/" && break; sleep 0.1; done

# Where a request for a path is sent, by the Host that it has.
sent() { curl -s -o answer -H "${3:-A: b}" -w '%{redirect_url}\n' -H "Host: $2" -H 'Accept: text/html' "http://127.0.0.1:$port$1"; }
own=$(sent /folder tokens.example.com)
echo "Host without a port, Apache's own redirect: $own"
without=$(sent /private tokens.example.com | grep -o 'redirect_uri=[^&]*')
echo "Host without a port: $without"
with=$(sent /private tokens.example.com:8000 | grep -o 'redirect_uri=[^&]*')
echo "Host with another port: $with"
told=$(sent /private tokens.example.com 'X-Forwarded-Port: 443' | grep -o 'redirect_uri=[^&]*')
echo "Host without a port, and X-Forwarded-Port: $told"
[ "$without" = "redirect_uri=http%3A%2F%2Ftokens.example.com%3A$port%2Flogin" ]
[ "$with" = "redirect_uri=http%3A%2F%2Ftokens.example.com%3A8000%2Flogin" ]
[ "$told" = redirect_uri=http%3A%2F%2Ftokens.example.com%3A443%2Flogin ]
