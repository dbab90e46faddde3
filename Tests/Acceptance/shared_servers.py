"""Servers that several tests use, and how servers end."""
import pytest

from server_process import Server


def finish(server):
    """Ends a server; one that has ended by itself has crashed."""
    crashed = not server.was_ended and not server.is_running()
    status = server.process.returncode
    server.kill()
    assert not crashed, f"the server ended by itself with {status}: {server.log()[-2000:]}"


def shared_server(name, settings, scope="session"):
    """A fixture with one server for all tests that leave nothing behind but rows."""

    @pytest.fixture(scope=scope, name=name)
    def fixture(tmp_path_factory):
        server = Server(tmp_path_factory.mktemp(name), settings)
        yield server
        finish(server)

    return fixture
