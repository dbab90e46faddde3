"""django-oauth-toolkit as a provider: python3 django_provider.py FOLDER PORT [SETTING=VALUE ...]

Prints a line when it serves. Its settings are those of OAUTH2_PROVIDER.
"""
import json
import socketserver
import sys
import wsgiref.simple_server

import django
from django.conf import settings

folder, port = sys.argv[1], int(sys.argv[2])
given = {name: json.loads(value) for name, value in (argument.split("=", 1) for argument in sys.argv[3:])}
settings.configure(
    SECRET_KEY="x" * 50, DEBUG=False, ALLOWED_HOSTS=["*"], ROOT_URLCONF="__main__", USE_TZ=True,
    DEFAULT_AUTO_FIELD="django.db.models.BigAutoField", MIDDLEWARE=[],
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": f"{folder}/db.sqlite", "OPTIONS": {"timeout": 20}}},
    OAUTH2_PROVIDER={"SCOPES": {"read": "r", "write": "w"}, "PKCE_REQUIRED": False, **given})
django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402
from oauth2_provider.models import AccessToken, get_application_model  # noqa: E402
from oauth2_provider.views import TokenView  # noqa: E402


def check(request):
    """Whether an access token is valid."""
    token = AccessToken.objects.filter(token=request.GET["token"]).first()
    return HttpResponse("valid" if token and token.is_valid() else "invalid")


urlpatterns = [path("token", TokenView.as_view()), path("check", check)]
call_command("migrate", verbosity=0)
get_user_model().objects.create_user("anna", password="pw")
get_application_model().objects.create(
    name="app", client_id="app", client_secret="s3cret", client_type="confidential", authorization_grant_type="password")


class Server(socketserver.ThreadingMixIn, wsgiref.simple_server.WSGIServer):
    daemon_threads = True


class Handler(wsgiref.simple_server.WSGIRequestHandler):
    def log_message(self, *_):
        pass


with wsgiref.simple_server.make_server("127.0.0.1", port, get_wsgi_application(), Server, Handler) as server:
    print("serves", flush=True)
    server.serve_forever()
