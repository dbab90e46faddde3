"""Certificates for tests."""
import subprocess


def make_certificate(folder, *options, days=2):
    """Makes a self-signed certificate for localhost, and returns the paths of the certificate and its key.

    The options are for `openssl req`.
    """
    certificate, key = str(folder / "certificate.pem"), str(folder / "private-key.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
         "-subj", "/CN=localhost", "-out", certificate, "-keyout", key, *options], check=True, capture_output=True)
    return certificate, key


def certificate_until(folder, start, end, issuer=None):
    """A certificate with these dates, as `YYYYMMDDHHMMSSZ`; self-signed or signed by another pair."""
    signer = ["-selfsign", "-keyfile", folder / "key.pem"] if issuer is None else ["-cert", issuer[0], "-keyfile", issuer[1]]
    subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                    "-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "request.pem"],
                   check=True, capture_output=True)
    (folder / "index").write_text("")
    (folder / "ca.conf").write_text(
        f"[ca]\ndefault_ca=a\n[a]\ndatabase={folder}/index\nnew_certs_dir={folder}\nrand_serial=yes\npolicy=p\n"
        "default_md=sha256\n[p]\ncommonName=supplied\n")
    subprocess.run(["openssl", "ca", "-batch", "-config", folder / "ca.conf", *signer, "-in", folder / "request.pem",
                    "-out", folder / "dated.pem", "-startdate", start, "-enddate", end],
                   check=True, capture_output=True)
    return folder / "dated.pem", folder / "key.pem"
