"""The server's clock is wrong, or is set while it runs."""
import pytest

from contract import STORED
from failing_calls import FailingCalls
from http_client import exchange, post
from server_process import Server, until
from test_metrics import ADMINISTRATION, metrics

HOUR = 3600


@pytest.fixture
def clock(failing_calls_library, tmp_path):
    """The clock of the servers that run in its environment."""
    calls = FailingCalls(failing_calls_library, tmp_path / "clock")
    yield calls
    calls.close()


@pytest.fixture
def serve_by(clock, tmp_path):
    """Starts servers by that clock, one after the other, on the same data."""
    servers = []

    def start(settings):
        servers.append(Server(tmp_path / "server", settings, environment=clock.environment))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


def test_upkeep_goes_on_when_the_clock_is_set(clock, serve_by):
    """The process then sees another time than the kernel: as in a wait that has begun before somebody sets the clock back."""
    server = serve_by({**ADMINISTRATION, "retention": {"after_written": "10s"}})
    assert exchange(server.address, post("id", "token")).body == STORED
    clock.set_clock(HOUR)
    until(lambda: metrics(server)["token_cache_store_expired_tokens_total"] == 1)
