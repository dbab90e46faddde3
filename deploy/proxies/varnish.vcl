# token-cache behind Varnish and, for TLS, hitch: Varnish 7.1 (Debian 12). To be copied to /etc/varnish/default.vcl.
#
#   varnishd ... -a http=:80,HTTP -a tls=127.0.0.1:6086,PROXY
#   hitch as in hitch.conf, with the backend "[127.0.0.1]:6086"
#
# backend_idle_timeout (60 s) has to stay shorter than timeouts.idle of token-cache (75 s).
vcl 4.1;

backend default {
    .host = "127.0.0.1";
    .port = "8080";
}

sub vcl_recv {
    # Headers in which the client could make claims about itself are replaced or dropped.
    unset req.http.Forwarded;
    unset req.http.X-Real-IP;
    unset req.http.X-Request-Id;
    unset req.http.Remote-User;
    set req.http.X-Forwarded-For = client.ip;
    if (local.socket == "tls") {
        set req.http.X-Forwarded-Proto = "https";
    } else {
        set req.http.X-Forwarded-Proto = "http";
    }
    # Nothing is cached; otherwise HEAD would become GET, and If-None-Match would not arrive.
    return (pass);
}
