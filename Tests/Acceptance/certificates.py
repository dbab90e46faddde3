"""Certificates for tests."""
import subprocess
from pathlib import Path


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
