"""An issuer of JWTs, such as an OpenID provider: its keys, their rotation, a JWK set in a file, and signed tokens, good and bad."""
import base64
import json
import os
import time

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, utils


def base64url(data):
    """Base64url without padding; text is taken as UTF-8."""
    return base64.urlsafe_b64encode(data.encode() if isinstance(data, str) else data).rstrip(b"=").decode()


class Key:
    """A private key for ES256 (RFC 7518, section 3.4) or EdDSA (RFC 8037); JWTTests have the other algorithms."""

    def __init__(self, algorithm, kid):
        self.algorithm, self.kid = algorithm, kid
        self.private = ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()

    def jwk(self):
        """The public key."""
        public = self.private.public_key()
        if self.algorithm == "ES256":
            numbers = public.public_numbers()
            key = {"kty": "EC", "crv": "P-256", "x": base64url(numbers.x.to_bytes(32, "big")), "y": base64url(numbers.y.to_bytes(32, "big"))}
        else:
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            key = {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}
        return {**key, "kid": self.kid, "alg": self.algorithm, "use": "sig"}

    def sign(self, data):
        """A signature in the form of RFC 7518."""
        if self.algorithm == "EdDSA":
            return self.private.sign(data)
        r, s = utils.decode_dss_signature(self.private.sign(data, ec.ECDSA(hashes.SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class Issuer:
    """Signs tokens with the newest of its keys.

        issuer = Issuer()
        issuer.publish(tmp_path / "jwks.json")
        token = issuer.token("alice")
        issuer.rotate("EdDSA")        # publishes the new key beside the old ones
        issuer.withdraw("key-1")      # and takes one away
    """

    def __init__(self):
        self.url, self.audience, self.path = "https://id.example.com", "token-cache", None
        self.keys = [Key("ES256", "key-1")]

    def jwks(self):
        return {"keys": [key.jwk() for key in self.keys]}

    def publish(self, path=None):
        """Writes the JWK set, in one step for readers; returns its path."""
        self.path = str(path or self.path)
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            json.dump(self.jwks(), file)
        os.replace(self.path + ".new", self.path)
        return self.path

    def rotate(self, algorithm=None):
        """A new key, with which tokens are signed from now on."""
        number = 1 + max(int(key.kid.rpartition("-")[2]) for key in self.keys)
        self.keys.append(Key(algorithm or self.keys[-1].algorithm, f"key-{number}"))
        if self.path:
            self.publish()

    def withdraw(self, kid):
        """Takes a key away, as an issuer does whose key has leaked."""
        self.keys = [key for key in self.keys if key.kid != kid]
        if self.path:
            self.publish()

    def claims(self, subject, **changes):
        """The claims of an access token; a claim that is None is left out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.audience, "sub": subject, "iat": now, "exp": now + 300, **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, subject, header=None, **changes):
        """A signed token; `header` changes parameters of the header, `changes` changes claims, and a claim that is None is left out."""
        key = self.keys[-1]
        head = {"alg": key.algorithm, "typ": "at+jwt", "kid": key.kid, **(header or {})}
        data = base64url(json.dumps(head)) + "." + base64url(json.dumps(self.claims(subject, **changes)))
        return data + "." + base64url(key.sign(data.encode()))
