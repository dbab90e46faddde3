"""Authlib's Flask server as a provider: python3 authlib_provider.py FOLDER PORT [rotating] [post]

Prints a line when it serves. rotating: refresh tokens are replaced; post: the client's secret comes in the body.
"""
import sys
import time

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.integrations.sqla_oauth2 import (
    OAuth2ClientMixin, OAuth2TokenMixin, create_query_client_func, create_save_token_func)
from authlib.oauth2.rfc6749 import grants
from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

folder, port, options = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
app = Flask(__name__)
app.config.update(SQLALCHEMY_DATABASE_URI=f"sqlite:///{folder}/db.sqlite", OAUTH2_REFRESH_TOKEN_GENERATOR=True)
db = SQLAlchemy(app)


class User(db.Model):
    id = db.Column(db.Integer, primary_key=True)

    def get_user_id(self):
        return self.id


class Client(db.Model, OAuth2ClientMixin):
    id = db.Column(db.Integer, primary_key=True)
    user_id = db.Column(db.Integer)


class Token(db.Model, OAuth2TokenMixin):
    id = db.Column(db.Integer, primary_key=True)
    user_id = db.Column(db.Integer)


class Password(grants.ResourceOwnerPasswordCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]

    def authenticate_user(self, username, password):
        return db.session.get(User, 1)


class Refresh(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ["client_secret_basic", "client_secret_post"]
    INCLUDE_NEW_REFRESH_TOKEN = "rotating" in options

    def authenticate_refresh_token(self, refresh_token):
        token = Token.query.filter_by(refresh_token=refresh_token).first()
        return token if token and not token.refresh_token_revoked_at else None

    def authenticate_user(self, refresh_token):
        return db.session.get(User, refresh_token.user_id)

    def revoke_old_credential(self, refresh_token):
        if "rotating" in options:
            refresh_token.refresh_token_revoked_at = refresh_token.access_token_revoked_at = int(time.time())
            db.session.add(refresh_token)
            db.session.commit()


server = AuthorizationServer(
    app, query_client=create_query_client_func(db.session, Client), save_token=create_save_token_func(db.session, Token))
server.register_grant(Password)
server.register_grant(Refresh)


@app.post("/token")
def token():
    return server.create_token_response()


@app.get("/check")
def check():
    """Whether an access token is valid."""
    found = Token.query.filter_by(access_token=request.args["token"]).first()
    return "valid" if found and not found.is_expired() and not found.is_revoked() else "invalid"


with app.app_context():
    db.create_all()
    db.session.add(User(id=1))
    client = Client(client_id="app", client_secret="s3cret", user_id=1)
    client.set_client_metadata({
        "grant_types": ["password", "refresh_token"], "scope": "read write",
        "token_endpoint_auth_method": "client_secret_post" if "post" in options else "client_secret_basic"})
    db.session.add(client)
    db.session.commit()

from werkzeug.serving import make_server  # noqa: E402

print("serves", flush=True)
make_server("127.0.0.1", port, app, threaded=True).serve_forever()
