"""Certificates for tests."""
import subprocess


def make_certificate(folder, *options, days=2):
    """Makes a certificate of one's own for localhost, and returns its path and that of its key.

    The options are for `openssl req`.
    """
    certificate, key = str(folder / "certificate.pem"), str(folder / "private-key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
         "-subj", "/CN=localhost", "-out", certificate, "-keyout", key, *options], check=True, capture_output=True)
    return certificate, key
