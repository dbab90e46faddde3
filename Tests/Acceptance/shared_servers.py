"""Servers that several tests share, and the end of servers."""
import pytest

from server_process import Server


def finish(server):
    """Ends a server; fails if it had ended by itself."""
    crashed = not server.was_ended and not server.is_running()
    status = server.process.returncode
    server.kill()
    assert not crashed, f"the server ended by itself with {status}: {server.log()[-2000:]}"


def shared_server(name, settings, scope="session"):
    """A fixture with one server for all tests that leave nothing but rows behind."""

    @pytest.fixture(scope=scope, name=name)
    def fixture(tmp_path_factory):
        server = Server(tmp_path_factory.mktemp(name), settings)
        yield server
        finish(server)

    return fixture
