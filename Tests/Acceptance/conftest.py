"""Fixtures that start servers, each in its own folder and on a port that the system chooses, and always end them."""
import contextlib
import functools
import itertools
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import failing_calls
from certificates import make_certificate
from chaos_proxy import ChaosProxy
from contract import STORED
from http_client import Connection
from postgres_cluster import Database, NamedDatabase, Postgres
from postgres_failover import ReplicatedPostgres
from postgres_store import PostgresStore, TablesForFolders
from proxies import PROXIES, Certificate, install_packages
from proxy_site import Site
from server_process import Server, binary, finish, shared_server
from small_disk import SmallDisk
from storage_shim import StorageShim, compile_library


def pytest_addoption(parser):
    """The option that deploy/test --long passes on."""
    parser.addoption("--long", action="store_true", help="many more rounds of the tests that look for rare events")
    parser.addoption("--fault", help="only this fault, by the name that a test of failing calls has printed")
    parser.addoption("--seed", type=int, help="the order of events in the soak, by the seed that it has printed")
    parser.addoption("--soak-minutes", type=float, help="how long the soak takes, beyond its first minutes; with --long an hour if not given")


def pytest_configure():
    """Checks and prepares what all tests need."""
    try:
        binary()
    except RuntimeError as error:
        # Otherwise every test would fail with it.
        raise pytest.UsageError(str(error)) from None
    # Some tests open more connections than the usual limit of 1,024 allows.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def pytest_collection_modifyitems(items):
    """Begins with the soak, whose hour other tests can fill."""
    items.sort(key=lambda item: item.path.name != "test_soak.py")


@pytest.fixture(scope="session", autouse=True)
def working_folder(tmp_path_factory):
    """An empty working folder for all tests: commands use ./data by default, and deploy/run has left one in the checkout."""
    os.chdir(tmp_path_factory.mktemp("working"))


@pytest.fixture(scope="session")
def is_long(request):
    """Whether the tests may take long (--long)."""
    return request.config.getoption("--long")


@pytest.fixture(scope="session")
def fault(request):
    """The only fault that tests of failing calls try; None for all."""
    return request.config.getoption("--fault")


@pytest.fixture(scope="session")
def postgres_binary():
    """The path of the program that can store tokens in PostgreSQL; the others are tested without it."""
    path = os.environ.get("TOKEN_CACHE_POSTGRES_BINARY", "")
    if not path:
        pytest.skip("TOKEN_CACHE_POSTGRES_BINARY is not set: deploy/build --traits PostgreSQL prints its value")
    return path


@pytest.fixture(scope="session")
def refresh_binary():
    """The path of the program that can refresh tokens, and store them in PostgreSQL too."""
    path = os.environ.get("TOKEN_CACHE_REFRESH_BINARY", "")
    if not path:
        pytest.skip("TOKEN_CACHE_REFRESH_BINARY is not set: deploy/build --traits PostgreSQL,TokenRefresh prints its value")
    return path


@pytest.fixture(scope="session")
def shim_library(tmp_path_factory):
    """The library that `StorageShim` preloads into servers."""
    return compile_library(tmp_path_factory.mktemp("shim"))


@pytest.fixture(scope="session")
def failing_calls_library(tmp_path_factory):
    """The library that lets single calls of a server fail; see `FailingCalls`."""
    return compile_library(tmp_path_factory.mktemp("failing"), failing_calls.SOURCE)


@pytest.fixture(scope="session")
def five_loops(tmp_path_factory):
    """The environment of a server with five loops, of which only two have connections to a database."""
    library = compile_library(tmp_path_factory.mktemp("cores"), Path(__file__).parent / "shim" / "many_cores.c")
    return {"LD_PRELOAD": str(library), "CORES": "5"}


@pytest.fixture(scope="session")
def lasting_certificate(tmp_path_factory):
    """A certificate for localhost and its key, as paths."""
    return make_certificate(tmp_path_factory.mktemp("certificate"), days=100)


@pytest.fixture(scope="session")
def python_package(tmp_path_factory):
    """A function that installs a package in a virtual environment of its own, and returns the environment's folder."""
    @functools.cache
    def install(requirement, *flags):
        folder = tmp_path_factory.mktemp("package")
        for command in ([sys.executable, "-m", "venv", folder],
                        [folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *flags, requirement]):
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode != 0:
                message = f"{requirement} cannot be installed here: {(done.stderr or done.stdout).strip()[-300:]}"
                # In CI, no test may be left out unnoticed.
                pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
        return folder
    return install


@pytest.fixture
def public_folder():
    """A new folder that every user can enter, with a path short enough for Unix sockets in folders below it.

    Those that pytest makes are the present user's alone, and have long paths.
    """
    with tempfile.TemporaryDirectory(prefix="token-cache-test-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


@pytest.fixture
def connect():
    """A function that makes a `Connection`, with its arguments, which is closed after the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(Connection(*arguments, **options))


@pytest.fixture
def shim(shim_library, tmp_path):
    """A disk that can fail, and the servers on it; see `StorageShim`."""
    with StorageShim(shim_library, tmp_path / "shim") as disk:
        yield disk


@pytest.fixture
def small_disk():
    """A file system of 4 MiB. Named before `serve` among a test's arguments, it lasts longer than the servers on it."""
    with SmallDisk(4) as disk:
        yield disk.folder


@pytest.fixture
def serve(tmp_path):
    """A function that starts servers: `serve(settings, *flags, **options)`, with the arguments of `Server`."""
    servers = []
    numbers = itertools.count()

    def start(settings=None, *flags, **options):
        server = Server(tmp_path / f"server{next(numbers)}", settings, *flags, **options)
        servers.append(server)
        return server

    yield start
    crashes = []
    for server in servers:
        try:
            finish(server)
        except AssertionError as error:
            crashes.append(str(error))
    assert not crashes, crashes


@pytest.fixture(name="stopped")
def stopped_server(serve):
    """A server that stored a token and ended."""
    server = serve()
    assert server.post("canary4711", "canary4712") == STORED
    assert server.stop() == 0
    return server


@pytest.fixture(scope="session")
def proxy_certificate(tmp_path_factory):
    """The certificate of the reverse proxies; without these, the tests are skipped."""
    reason = install_packages()
    if reason:
        pytest.skip(reason)
    return Certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module", params=PROXIES)
def site(request, tmp_path_factory, proxy_certificate):
    """Each reverse proxy in turn, with a server behind it; see `Site`."""
    folder = tmp_path_factory.mktemp(request.param)
    with contextlib.closing(Site(folder, PROXIES[request.param], proxy_certificate)) as proxied:
        yield proxied


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory):
    """The PostgreSQL server that tests share; see `postgres`."""
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture
def postgres(postgres_server):
    """An empty database of its own on a shared PostgreSQL server, whose settings and processes stay as they are.

    A test that changes those starts a `Postgres` of its own.
    """
    database = Database(postgres_server)
    yield database
    postgres_server.drop_database(database.name)


@pytest.fixture(name="proxy")
def chaos_proxy(postgres):
    """A bad network before the test's database; see `ChaosProxy`."""
    with ChaosProxy(postgres.server) as proxy:
        yield proxy


@pytest.fixture(name="behind")
def store_behind_a_proxy(postgres_binary, postgres, proxy, tmp_path):
    """A store whose servers reach the database through the proxy."""
    url = proxy.url(postgres.user, postgres.name, sslmode="disable")
    with PostgresStore(postgres_binary, tmp_path / "store", postgres, url) as of_all:
        yield of_all


@pytest.fixture(name="direct")
def store_without_a_proxy(postgres_binary, postgres, tmp_path):
    """A store on the test's database; that of `behind`, if a test has both, has the same tokens and keys."""
    with PostgresStore(postgres_binary, tmp_path / "store", postgres) as of_all:
        yield of_all


@pytest.fixture
def store_on(postgres_binary, tmp_path):
    """A function that makes a store on a test's own database servers: `store_on(databases).serve("server")`."""
    with contextlib.ExitStack() as stack:
        yield lambda databases: stack.enter_context(
            PostgresStore(postgres_binary, tmp_path / "store", NamedDatabase(databases)))


@pytest.fixture(scope="module")
def tables_for_folders(postgres_binary, postgres_server, tmp_path_factory):
    """Has all servers that the tests of a module start keep their tokens in PostgreSQL; see `TablesForFolders`."""
    with TablesForFolders(postgres_binary, tmp_path_factory.mktemp("tables"), postgres_server) as tables:
        yield tables


@pytest.fixture
def replicated_postgres(tmp_path):
    """A function that starts a primary with standbys: `replicated_postgres(standbys=2)`; see `ReplicatedPostgres`."""
    numbers = itertools.count()
    with contextlib.ExitStack() as stack:
        yield lambda *arguments, **options: stack.enter_context(
            ReplicatedPostgres(tmp_path / f"replicated{next(numbers)}", *arguments, **options))


SMALL_LIMITS = {"head": 512, "body": 1024}

plain_server = shared_server("plain", {})
small_server = shared_server("small", {"limits": SMALL_LIMITS})
hasty_server = shared_server("hasty", {"timeouts": {"body": "2100ms", "idle": "60s"}})
idle_server = shared_server("brief", {"timeouts": {"body": "180s", "idle": "1s"}})
