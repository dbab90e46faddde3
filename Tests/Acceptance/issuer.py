"""An issuer of JWTs, as an OpenID provider is one: keys, a JWK set in a file, rotation, and signed tokens, good and bad."""
import base64
import hashlib
import json
import os
import time

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

CURVES = {"ES256": (ec.SECP256R1, "P-256", 32, hashes.SHA256), "ES384": (ec.SECP384R1, "P-384", 48, hashes.SHA384),
          "ES512": (ec.SECP521R1, "P-521", 66, hashes.SHA512)}
DIGESTS = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}


def base64url(data):
    """Base64url without padding; text is taken as UTF-8, and a number as big-endian bytes."""
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, int):
        data = data.to_bytes((data.bit_length() + 7) // 8, "big")
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """A private key for one algorithm of RFC 7518, section 3.1, or EdDSA (RFC 8037)."""

    def __init__(self, algorithm="ES256", kid="key-1", bits=2048):
        self.algorithm, self.kid = algorithm, kid
        if algorithm in CURVES:
            self.private = ec.generate_private_key(CURVES[algorithm][0]())
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(public_exponent=65537, key_size=bits)

    def jwk(self, **members):
        """The public key; a member that is None is left out."""
        public = self.private.public_key()
        if self.algorithm in CURVES:
            _, curve, length, _ = CURVES[self.algorithm]
            numbers = public.public_numbers()
            key = {"kty": "EC", "crv": curve, "x": base64url(numbers.x.to_bytes(length, "big")),
                   "y": base64url(numbers.y.to_bytes(length, "big"))}
        elif self.algorithm == "EdDSA":
            raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
            key = {"kty": "OKP", "crv": "Ed25519", "x": base64url(raw)}
        else:
            numbers = public.public_numbers()
            key = {"kty": "RSA", "n": base64url(numbers.n), "e": base64url(numbers.e)}
        key.update({"kid": self.kid, "alg": self.algorithm, "use": "sig"}, **members)
        return {name: value for name, value in key.items() if value is not None}

    def sign(self, data):
        """A signature in the form of RFC 7518."""
        if self.algorithm in CURVES:
            _, _, length, digest = CURVES[self.algorithm]
            r, s = utils.decode_dss_signature(self.private.sign(data, ec.ECDSA(digest())))
            return r.to_bytes(length, "big") + s.to_bytes(length, "big")
        if self.algorithm == "EdDSA":
            return self.private.sign(data)
        digest = DIGESTS[self.algorithm[2:]]()
        if self.algorithm.startswith("PS"):
            return self.private.sign(data, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
        return self.private.sign(data, padding.PKCS1v15(), digest)


class Issuer:
    """Signs tokens with the newest of its keys.

        issuer = Issuer("https://id.example.com", "token-cache")
        issuer.publish(tmp_path / "jwks.json")
        token = issuer.token("alice")
        issuer.rotate("RS256")        # publishes the new key beside the old ones
        issuer.withdraw("key-1")      # and takes one away
    """

    def __init__(self, url="https://id.example.com", audience="token-cache", algorithm="ES256"):
        self.url, self.audience, self.path = url, audience, None
        self.keys = [Key(algorithm, "key-1")]

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
        return self.keys[-1]

    def withdraw(self, kid):
        """Takes a key away, as an issuer does whose key has leaked."""
        self.keys = [key for key in self.keys if key.kid != kid]
        if self.path:
            self.publish()

    def claims(self, subject="alice", lifetime=300, **changes):
        """The claims of an access token; a claim that is None is left out."""
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.audience, "sub": subject, "iat": now, "exp": now + lifetime, **changes}
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, subject="alice", lifetime=300, header=None, key=None, **changes):
        """A signed token.

        `header` changes parameters of the header, `changes` changes claims; what is None is left out. `key` signs instead of
        the newest one.
        """
        key = key or self.keys[-1]
        head = {"alg": key.algorithm, "typ": "at+jwt", "kid": key.kid, **(header or {})}
        head = {name: value for name, value in head.items() if value is not None}
        return self.signed(json.dumps(head), json.dumps(self.claims(subject, lifetime, **changes)), key)

    def signed(self, header, claims, key=None):
        """A token of any header and claims, as texts, properly signed."""
        data = base64url(header) + "." + base64url(claims)
        return data + "." + base64url((key or self.keys[-1]).sign(data.encode()))

    def token_for_certificate(self, certificate, subject="alice", **options):
        """A token that is bound to a client certificate (RFC 8705, section 3.1), given in DER."""
        return self.token(subject, cnf={"x5t#S256": base64url(hashlib.sha256(certificate).digest())}, **options)
