"""Certificates for tests."""
import datetime
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def make_certificate(folder, *options, days=2, host="localhost", files=("certificate.pem", "private-key.pem")):
    """Makes a certificate for a host; returns its path and that of its key. The options are for `openssl req`."""
    certificate, key = (str(folder / name) for name in files)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
         "-subj", f"/CN={host}", "-out", certificate, "-keyout", key, *options], check=True, capture_output=True)
    return certificate, key


def make_pair(folder, name, host="localhost", issuer=None, alternative=None):
    """The same in files of this name, with a subject alternative name, and signed by the pair `issuer` if there is one."""
    signer = [] if issuer is None else ["-CA", issuer[0], "-CAkey", issuer[1]]
    names = ["-addext", f"subjectAltName={alternative or f'DNS:{host}'}"]
    return tuple(map(Path, make_certificate(folder, *names, *signer, host=host, files=(f"{name}.crt", f"{name}.key"))))


def certificate_until(folder, start, end):
    """A self-signed certificate with these dates, as `YYYYMMDDHHMMSSZ`."""
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "request.pem"],
                   check=True, capture_output=True)
    (folder / "index").write_text("")
    (folder / "ca.conf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\npolicy=p\n"
        "default_md=sha256\n[p]\ncommonName=supplied\n")
    subprocess.run(["openssl", "ca", "-batch", "-config", folder / "ca.conf", "-selfsign", "-keyfile", folder / "key.pem", "-in", folder / "request.pem",
                    "-out", folder / "dated.pem", "-startdate", start, "-enddate", end],
                   check=True, capture_output=True)
    return folder / "dated.pem", folder / "key.pem"


class Issued:
    """A certificate that is valid for given days before and after now, signed by another one or by itself, and its key."""

    def __init__(self, name, issuer=None, days=(-400, 400), key=None):
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
        signer, now = issuer or self, datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        start, self.end = (now + datetime.timedelta(days=day) for day in days)
        builder = x509.CertificateBuilder().subject_name(self.name).issuer_name(signer.name).public_key(self.key.public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(start).not_valid_after(self.end)
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    def pem(self):
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, folder, *others):
        """Writes the certificate with others behind it, and the key; returns the paths."""
        name = self.name.rfc4514_string().removeprefix("CN=")
        certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
        certificate.write_bytes(b"".join(one.pem() for one in (self, *others)))
        key.write_bytes(self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
        key.chmod(0o600)
        return certificate, key
