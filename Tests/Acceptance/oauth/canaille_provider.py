"""canaille as a provider: python3 canaille_provider.py FOLDER PORT [LIFETIME]

Prints a line when it serves. LIFETIME: how long refreshed tokens are valid, in seconds; canaille's own default is an hour.
"""
import sys
from datetime import datetime, timezone

from canaille import create_app
from canaille.app import models
from canaille.backends import Backend
from werkzeug.serving import make_server

folder, port, lifetime = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
app = create_app({
    "SECRET_KEY": "x" * 50, "SERVER_NAME": f"127.0.0.1:{port}", "CANAILLE": {"DATABASE": "sql"},
    "CANAILLE_SQL": {"DATABASE_URI": f"sqlite:///{folder}/db.sqlite"},
    "OAUTH2_TOKEN_EXPIRES_IN": {"refresh_token": int(seconds) for seconds in lifetime}})
with app.app_context(), Backend.instance.session():
    Backend.instance.save(models.User(
        user_name="anna", formatted_name="Anna", family_name="Anna", emails=["anna@example.com"], password="pw"))
    client = models.Client(
        client_id="app", client_secret="s3cret", client_name="app", client_id_issued_at=datetime.now(timezone.utc),
        grant_types=["password", "refresh_token"], scope=["read"], token_endpoint_auth_method="client_secret_basic")
    # Only clients for which a token is meant may introspect it.
    client.audience = [client]
    Backend.instance.save(client)

print("serves", flush=True)
make_server("127.0.0.1", port, app, threaded=True).serve_forever()
