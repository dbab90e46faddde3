"""Upgrades under load: systemd keeps the listening sockets, the old server drains, the new one takes over."""
import socket
import ssl
import threading

import pytest

from certificates import make_certificate
from contract import STORED, found
from http_client import Connection, get, post
from server_process import until
from service_manager import Service

UPGRADES = 3


@pytest.fixture(scope="module", name="certificate")
def certificate_files(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def listening():
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    return listener


class Clients:
    """Threads that store and fetch, on open connections and on a new one for each request; no request may fail."""

    def __init__(self, plain, secure):
        self.context = ssl.create_default_context()
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.ends = threading.Event()
        self.faults = []
        kinds = [(plain, False, True), (plain, False, False), (secure, True, True), (secure, True, False)]
        self.counts = [0] * len(kinds) * 2
        self.threads = [
            threading.Thread(target=self._ask, args=(number, *kinds[number % len(kinds)]))
            for number in range(len(self.counts))]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join(30)

    def go_on(self):
        """Waits until each thread has received more answers, or one has failed."""
        counts = list(self.counts)
        until(lambda: self.faults or all(now > before + 10 for now, before in zip(self.counts, counts)))
        assert not self.faults, self.faults

    def _connect(self, address, is_secure):
        connection = Connection(address)
        if is_secure:
            connection.socket = self.context.wrap_socket(connection.socket)
        return connection

    def _ask(self, number, address, is_secure, is_kept):
        connection = None
        try:
            while not self.ends.is_set():
                value = f"value{self.counts[number]}"
                for request, answer in ((post(f"id{number}", value), STORED), (get(f"id{number}"), found(value))):
                    connection = connection or self._connect(address, is_secure)
                    response = connection.exchange(request)
                    assert response.body == answer
                    if response.closes or not is_kept:
                        connection.close()
                        connection = None
                self.counts[number] += 1
        except (OSError, AssertionError) as error:
            self.faults.append(f"client {number}: {error!r}")
        finally:
            if connection:
                connection.close()


def test_upgrades_in_a_row_under_load_fail_no_request(tmp_path, certificate):
    variables = {
        "LISTEN_FDNAMES": "http:https",
        "TOKEN_CACHE_TLS_CERTIFICATE": certificate[0], "TOKEN_CACHE_TLS_PRIVATE_KEY": certificate[1],
    }
    with listening() as plain, listening() as secure:
        service = Service(tmp_path / "service", sockets=[plain, secure], variables=variables)
        try:
            with Clients(plain.getsockname(), secure.getsockname()) as clients:
                for _ in range(UPGRADES):
                    clients.go_on()
                    # Like systemd, which starts the new server after the old one has ended.
                    assert service.stop() == 0
                    service = Service(tmp_path / "service", sockets=[plain, secure], variables=variables)
                clients.go_on()
            assert not clients.faults, clients.faults
        finally:
            assert service.stop() == 0
    assert service.log().count("serves on") == UPGRADES + 1
