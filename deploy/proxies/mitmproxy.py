"""token-cache behind mitmproxy, to watch an app's requests: mitmproxy 11.0 (PyPI). It shows ids and tokens: for tests only.

    mitmdump --mode reverse:http://127.0.0.1:8080 --set keep_host_header=true --set http2=false -s mitmproxy.py

Without keep_host_header, redirects lead to 127.0.0.1:8080. Over HTTP/2, a POST without a length would lose its body.
"""

CLAIMS = ("x-forwarded-", "forwarded", "x-real-ip", "x-request-id", "remote-user")


def request(flow):
    """Replaces or drops headers in which the client could make claims about itself."""
    for name in [name for name in flow.request.headers if name.lower().startswith(CLAIMS)]:
        del flow.request.headers[name]
    flow.request.headers["X-Forwarded-Proto"] = "https" if flow.client_conn.tls_established else "http"
    flow.request.headers["X-Forwarded-For"] = flow.client_conn.peername[0]
