"""token-cache doctor knows the sockets that systemd has passed to the running server, in the place of addresses."""
import socket

import pytest

from certificates import make_certificate
from ports import free_ports
from service_manager import Service
from doctor import examine, said


@pytest.fixture(name="tls", scope="module")
def settings_of_tls(tmp_path_factory):
    certificate, key = make_certificate(tmp_path_factory.mktemp("certificate"))[:2]
    return {"TOKEN_CACHE_TLS_CERTIFICATE": str(certificate), "TOKEN_CACHE_TLS_PRIVATE_KEY": str(key)}


def looked_at(folder, listen, sockets, names, environment=None, doctors_listen=None):
    """The report about a server with these entries of `listen`, to which these sockets are passed."""
    environment = environment or {}
    with Service(folder, *(word for entry in listen for word in ("--listen", entry)), sockets=sockets,
                 variables={"LISTEN_FDNAMES": ":".join(names), **environment}) as service:
        service.wait_until_serving()
        report = examine("--data-directory", str(folder / "data"), environment={
            **environment, "TOKEN_CACHE_LISTEN": ",".join(doctors_listen or listen)})
        assert service.stop() == 0
    return report


def test_a_socket_takes_the_place_of_the_address_that_speaks_the_same(tmp_path, tls):
    plain, secure = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as passed:
        report = looked_at(tmp_path / "service", [f"127.0.0.1:{plain}", f"https://127.0.0.1:{secure}"], [passed], ["https"], tls)
        name = f"https://127.0.0.1:{passed.getsockname()[1]}"
    assert said(report, "Listeners", "warning") == "" and said(report, "Listeners", "problem") == ""
    assert f"listen: the running server listens on 127.0.0.1:{plain}" in said(report, "Listeners")
    assert f"listen: a socket of systemd ({name}) takes the place of https://127.0.0.1:{secure}" in said(report, "Listeners")


def test_a_unix_socket_takes_the_place_of_addresses_and_other_unix_sockets(public_folder):
    port, = free_ports(1)
    for number, entry in enumerate((f"127.0.0.1:{port}", f"unix:{public_folder}/own.sock")):
        path = f"{public_folder}/passed{number}.sock"
        with socket.socket(socket.AF_UNIX) as passed:
            passed.bind(path)
            passed.listen(16)
            report = looked_at(public_folder / f"service{number}", [entry], [passed], ["http"])
        assert said(report, "Listeners", "warning") == "" and said(report, "Listeners", "problem") == ""
        assert f"listen: a socket of systemd (unix:{path}) takes the place of {entry}" in said(report, "Listeners")


def test_a_socket_for_another_protocol_does_not_hide_that_the_settings_have_changed(tmp_path, tls):
    own, changed = free_ports(2)
    with socket.create_server(("127.0.0.1", 0)) as passed:
        report = looked_at(tmp_path / "service", [f"127.0.0.1:{own}"], [passed], ["https"], tls,
                           doctors_listen=[f"127.0.0.1:{changed}"])
    assert f"the running server does not listen on 127.0.0.1:{changed}" in said(report, "Listeners", "warning")
