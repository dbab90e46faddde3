#!/bin/bash
# In its grace period django-oauth-toolkit hands out an access token that has expired, and says that it lives its full time.
#
# Expected: REFRESH_TOKEN_GRACE_PERIOD_SECONDS is for clients to which the answer to a refresh got lost. Who sends the old refresh token
# once more within that time gets the same tokens, and in expires_in what is left of them (RFC 6749, 5.1), or a new access token.
# Instead: expires_in is ACCESS_TOKEN_EXPIRE_SECONDS in each of these answers. If access tokens live shorter than the grace period, the
# answer is 200 with a token that no resource takes any more. The refresh token beside it is good.
# Affects: clients that rely on expires_in, above all several that share a login: the token fails while it should still live, and a 401 or
# 403 right after a refresh looks like a login that was ended. A second refresh, with the new refresh token, helps.
set -eu
folder=$(mktemp -d)
cd "$folder"
trap 'rm -rf "$folder"' EXIT

python3 -m venv own
own/bin/pip -q --disable-pip-version-check install django-oauth-toolkit==3.4.1 Django==5.2.19 oauthlib==4.0.1
own/bin/pip --disable-pip-version-check list 2> /dev/null | grep -i '^django\|^oauthlib'

cat > provider.py <<'END'
import time

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="of this run", ALLOWED_HOSTS=["testserver"], ROOT_URLCONF=__name__, USE_TZ=True,
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"],
    OAUTH2_PROVIDER={"SCOPES": {"read": "all"}, "ACCESS_TOKEN_EXPIRE_SECONDS": 5, "REFRESH_TOKEN_GRACE_PERIOD_SECONDS": 60})
django.setup()

from django.contrib.auth.models import User
from django.core.management import call_command
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from oauth2_provider.models import Application
from oauth2_provider.views import ProtectedResourceView, TokenView


class Resource(ProtectedResourceView):
    def get(self, request):
        return HttpResponse("served")


urlpatterns = [path("token", TokenView.as_view()), path("resource", Resource.as_view())]
call_command("migrate", verbosity=0)
User.objects.create_user("anna", password="password")
Application.objects.create(client_id="client", client_secret="secret", client_type="confidential", authorization_grant_type="password")
client = Client()


def tokens(what, **form):
    answer = client.post("/token", {**form, "client_id": "client", "client_secret": "secret"})
    assert answer.status_code == 200, answer.content
    granted = answer.json()
    answer = client.get("/resource", headers={"Authorization": "Bearer " + granted["access_token"]})
    print(f"{what}: expires_in {granted['expires_in']}, the resource answers {answer.status_code}")
    return granted, answer.status_code


def refresh(what, granted):
    return tokens(what, grant_type="refresh_token", refresh_token=granted["refresh_token"])


login, _ = tokens("login", grant_type="password", username="anna", password="password")
first, status = refresh("refresh", login)
assert (first["expires_in"], status) == (5, 200)
time.sleep(2)
second, status = refresh("the same request, 2 seconds later", login)
assert second == first and status == 200  # expires_in is among what is the same
time.sleep(4)
third, status = refresh("the same request, 6 seconds later", login)
assert third == first and status in (401, 403)
fourth, status = refresh("with the new refresh token", third)
assert fourth["access_token"] != first["access_token"] and status == 200
END
own/bin/python -W ignore provider.py 2> errors || { cat errors; exit 1; }
