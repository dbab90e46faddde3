"""The client library end to end: devices that share a user's token through the built server, and an app that uses it alone."""
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from administration import is_ready, last_line
from contract import STORED, fresh_id
from devices import CACHED, LOGGED_IN, MODES, REPOSITORY, Devices, DevicesWithSessions
from http_client import FORM, exchange, post_of
from server_process import until
from store_files import damage_rows

SWIFT = pytest.mark.skipif(not shutil.which("swift"), reason="the Swift toolchain is missing")


@pytest.fixture(name="mode", params=MODES)
def mode_of_access(request):
    """The kind of devices for each mode of access."""
    return MODES[request.param]


@pytest.fixture(name="begin")
def devices_of_any_user(mode, serve, tmp_path):
    """A function that makes the devices of a new user, or those of the same user after a restart of the server."""
    settings = mode.settings(tmp_path)
    servers = []

    def make(restarted=None):
        if restarted:
            restarted.server = serve(settings, data=restarted.server.data)
            return restarted
        if not servers:
            servers.append(serve(settings))
        return mode(tmp_path / "devices", servers[0], fresh_id())

    return make


@pytest.fixture(name="devices")
def devices_of_one_user(begin):
    """The devices of one user."""
    return begin()


def test_the_second_device_starts_logged_in(devices):
    assert devices.run("A") == ["not logged in"]
    login, token = devices.run("A", "login", "token")
    assert login == LOGGED_IN
    assert devices.run("A", "login", "token") == [CACHED, token]
    # The app was deleted and installed again.
    shutil.rmtree(devices.folder / "A")
    assert devices.run("A", "login", "token") == [CACHED, token]
    assert devices.run("B", "open", "token") == [CACHED, token]


def test_a_sign_out_and_a_new_token_are_learned_at_the_next_fetch(devices):
    devices.run("A", "login")
    _, extended = devices.run("B", "open", "refresh")
    assert devices.run("A", "fetch") == [extended]
    assert devices.run("B", "logout") == ["signed out"]
    assert devices.run("A", "fetch", "open") == ["no token", "not logged in"]
    assert devices.run("A", "login") == [LOGGED_IN]
    assert devices.run("B", "open") == [CACHED]


def test_a_cache_alone(devices):
    login, token = devices.run("A", "--local", "login", "token")
    assert login == LOGGED_IN and devices.run("A", "--local", "open", "token") == [CACHED, token]
    assert devices.run("B") == ["not logged in"]
    login, token = devices.run("C", "--remote", "login", "token")
    assert login == LOGGED_IN and not (devices.folder / "C").exists()
    assert devices.run("B", "open", "token") == [CACHED, token]


def test_a_device_switches_between_its_users(serve, tmp_path):
    devices = Devices(tmp_path / "devices", serve(), None)
    devices.identity = lambda name: []
    anna, bert = fresh_id(), fresh_id()
    switched, login, token = devices.run("A", "switch-user", anna, "login", "token")
    assert (switched, login) == (f"the user is {anna}", LOGGED_IN)
    assert devices.run("A", "switch-user", bert, "open") == [f"the user is {bert}", "not logged in"]
    # Also after a restart.
    assert devices.run("A") == ["not logged in"]
    assert devices.run("A", "switch-user", anna, "token") == [f"the user is {anna}", token]
    assert devices.run("A", "open", "token") == [CACHED, token]


def test_devices_work_while_the_server_is_down(begin):
    devices = begin()
    devices.run("A", "login")
    assert devices.run("B") == [CACHED]
    shutil.rmtree(devices.folder / "B")
    assert devices.server.stop() == 0
    assert devices.run("A") == [CACHED]
    extended, = devices.run("A", "refresh")
    assert devices.run("A", "fetch") == [extended]
    unknown, = devices.run("B", "fetch")
    assert unknown.startswith("unknown: the server cannot be reached")
    begin(devices)
    assert devices.run("A", "synchronize") == ["nothing waits"]
    assert devices.run("B", "fetch") == [extended]
    # What waited does not replace what is newer.
    assert devices.server.stop() == 0
    older, = devices.run("A", "refresh")
    begin(devices)
    newer, = devices.run("B", "refresh")
    assert older != newer and devices.run("A", "synchronize", "fetch") == ["nothing waits", newer]
    # Signing out without a network as well.
    assert devices.server.stop() == 0
    assert devices.run("A", "logout", "fetch") == ["signed out", "no token"]
    begin(devices)
    assert devices.run("A", "fetch") == ["no token"]
    assert devices.run("B", "fetch") == ["no token"]


@pytest.mark.parametrize("mode", ["open", "session"], indirect=True)
def test_a_sign_out_is_sent_by_whoever_uses_the_device_next(begin):
    """The user does not come back, and the app no longer has their credential. A proxy would vouch for the present user only."""
    anna, ben = begin(), begin()
    anna.run("A", "login")
    assert anna.server.stop() == 0
    assert anna.run("A", "logout") == ["signed out"]
    begin(anna)
    ben.server = anna.server
    assert anna.run("B", "open") == [CACHED]
    assert ben.run("A", "login") == [LOGGED_IN]
    until(lambda: anna.run("B", "fetch") == ["no token"])
    assert ben.run("B", "open") == [CACHED]


def test_an_empty_store_signs_nobody_out(devices, mode, serve, tmp_path):
    """Such as on a disk that is not mounted. In mode session, it does not know the session."""
    _, token = devices.run("A", "login", "token")
    assert devices.server.stop() == 0
    other = tmp_path / "other"
    other.mkdir()
    devices.server = serve(mode.settings(other))
    assert devices.run("A", "fetch", "open") == [token, CACHED]


# Without the cache of answers, so that each GET reads the database.
UNCACHED = {"cache": {"max_bytes": 0}, "store": {"timeout": "5s"}}


@pytest.fixture(name="failing", params=["sqlite", "postgresql"])
def server_whose_store_can_fail(request, mode, serve, tmp_path):
    """A server, and a function after which its store fails."""
    settings = mode.settings(tmp_path)
    if request.param == "sqlite":
        server = serve({**settings, "cache": UNCACHED["cache"]})

        def damage():
            # Enough rows to have pages of their own.
            others = [{"id": f"other{number}", "token_info": "x" * 1000} for number in range(20)]
            assert last_line(server.data, "/store/put", {"tokens": others})["reply"]["stored"] == len(others)
            damage_rows(server)

        yield server, damage
        return
    proxy, store = request.getfixturevalue("proxy"), request.getfixturevalue("behind")
    server = store.serve("server", {**settings, **UNCACHED})
    # The first connection may take longer than requests may wait.
    until(lambda: is_ready(server))
    yield server, lambda: (proxy.refuse(), proxy.cut())
    proxy.heal()


def test_an_outage_of_the_store_signs_nobody_out(mode, failing, tmp_path):
    """The answer to a read that failed has the same body as if nothing were stored. If devices took it for that, those with the
    token would sign out everywhere, and those without it would ask the user to log in."""
    server, fail = failing
    devices = mode(tmp_path / "devices", server, fresh_id())
    _, token = devices.run("A", "login", "token")
    # A session has to be made before the store fails.
    devices.identity("new")
    fail()

    def is_out():
        assert devices.run("A", "fetch") == [token]
        answer, = devices.run("new", "fetch")
        shutil.rmtree(devices.folder / "new", ignore_errors=True)
        return answer.startswith("unknown: the server cannot do it now (200) and asks to wait for")

    until(is_out)
    assert devices.run("A", "open", "token") == [CACHED, token]


def test_what_the_guides_sample_has_stored_is_read(serve, tmp_path):
    server = serve()
    bodies = [json.loads(line) for line in
              (REPOSITORY / "Tests" / "Fixtures" / "sample-bodies.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(bodies) == 8
    for body in bodies:
        assert exchange(server.address, post_of(body["body"].encode(), FORM, path="/token.php")).body == STORED
        user = body["body"].split("&")[0].partition("=")[2]
        expected = "no token" if body["expires"] is None else body["body"].split('TokenKey":"')[1].split('"')[0]
        assert Devices(tmp_path / "devices", server, user).run("A", "fetch") == [expected]


# Sessions

@pytest.fixture(name="with_sessions")
def devices_with_sessions(serve, tmp_path):
    """The devices of one user, with a session each."""
    return DevicesWithSessions(tmp_path / "devices", serve(DevicesWithSessions.settings(tmp_path)), fresh_id())


def test_a_revoked_session_is_unknown_and_the_others_go_on(with_sessions):
    devices = with_sessions
    devices.run("A", "login")
    _, token = devices.run("B", "open", "token")
    devices.api.end(devices.sessions["B"]["id"])
    # What is on the device stays usable; without it, nobody is taken for signed out.
    assert devices.run("B", "fetch", "open") == [token, CACHED]
    shutil.rmtree(devices.folder / "B")
    unknown, = devices.run("B", "fetch")
    assert unknown.startswith("unknown: the session is missing, unknown, expired or revoked")
    extended, = devices.run("A", "refresh")
    # With a new session, the device is as before.
    del devices.sessions["B"]
    assert devices.run("B", "fetch") == [extended]


# The package


def copied_sources(folder):
    """The sources of the working tree as a git repository of their own, at the tag 1.0.0."""
    listed = subprocess.run(["git", "-C", str(REPOSITORY), "ls-files", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is not a git repository")
    for name in listed.stdout.splitlines():
        if (REPOSITORY / name).is_file() and not name.startswith("Tests/Benchmarks/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(REPOSITORY / name, folder / name)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "copy"], ["tag", "1.0.0"]):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@example.com", *arguments], cwd=folder,
                       check=True)


@SWIFT
def test_an_app_with_the_client_fetches_none_of_the_servers_packages(tmp_path, is_long):
    if not is_long:
        pytest.skip("clones and builds the package: --long")
    package = tmp_path / "token-cache"
    copied_sources(package)
    app = tmp_path / "app"
    (app / "Sources" / "App").mkdir(parents=True)
    (app / "Package.swift").write_text(f"""\
// swift-tools-version: 6.0
import PackageDescription

let package = Package(
    name: "App",
    platforms: [.macOS(.v13)],
    dependencies: [.package(url: "file://{package}", from: "1.0.0")],
    targets: [
        .executableTarget(name: "App", dependencies: [.product(name: "TokenCacheClient", package: "token-cache")])
    ]
)
""")
    (app / "Sources" / "App" / "App.swift").write_text("""\
import TokenCacheClient

@main enum App {
    static func main() async throws {
        let cache = LocalTokenCache(.memory, user: "a")
        try await cache.store(TokenInformation(token: "CAAC"))
        let session = TokenSession(cache: cache)
        print(try await session.open(), try await session.token().token)
    }
}
""")
    done = subprocess.run(["swift", "build"], cwd=app, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning:" not in done.stdout + done.stderr
    assert [folder.name for folder in (app / ".build" / "checkouts").iterdir()] == ["token-cache"]
    assert [pin["identity"] for pin in json.loads((app / "Package.resolved").read_text())["pins"]] == ["token-cache"]
    assert subprocess.run([app / ".build" / "debug" / "App"], capture_output=True, text=True, check=True).stdout == (
        "open CAAC\n")


CLIENT = REPOSITORY / "Sources" / "TokenCacheClient"
STAND_INS = Path(__file__).parent / "stand-ins"
# As in Package.swift.
COMPILER = ["swiftc", "-swift-version", "6", "-package-name", "token_cache", "-strict-memory-safety", "-warnings-as-errors", *(
    part for feature in (
        "ExistentialAny", "MemberImportVisibility", "InternalImportsByDefault", "NonisolatedNonsendingByDefault")
    for part in ("-enable-upcoming-feature", feature))]


def compile_swift(*arguments):
    done = subprocess.run([*COMPILER, *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(name="compiled", scope="module")
def compiled_client(tmp_path_factory):
    """A folder with the client's module and its symbols, compiled with warnings as errors: in an app's build they are none."""
    if not shutil.which("swift"):
        pytest.skip("the Swift toolchain is missing")
    folder = tmp_path_factory.mktemp("client")
    (folder / "graphs").mkdir()
    compile_swift("-emit-module", "-module-name", "TokenCacheClient", "-o", folder / "TokenCacheClient.swiftmodule",
                  "-emit-symbol-graph", "-emit-symbol-graph-dir", folder / "graphs", *sorted(CLIENT.rglob("*.swift")))
    return folder


@SWIFT
def test_an_apps_build_turns_none_of_the_clients_warnings_into_errors():
    dumped = subprocess.run(["swift", "package", "dump-package"], cwd=REPOSITORY, capture_output=True, text=True,
                            timeout=300, check=True)
    client, = (target for target in json.loads(dumped.stdout)["targets"] if target["name"] == "TokenCacheClient")
    kinds = {next(iter(setting["kind"])) for setting in client["settings"]}
    assert kinds == {"enableUpcomingFeature", "strictMemorySafety"}
    assert client["resources"] == [{"path": "PrivacyInfo.xcprivacy", "rule": {"copy": {}}}]


@SWIFT
def test_the_lines_for_apples_systems_compile_against_stand_ins(tmp_path):
    """Their headers are not available here; the stand-ins show at least whether the types are right."""
    for name in "Darwin", "Security":
        source = tmp_path / f"{name}.swift"
        source.write_text("")
        compile_swift("-emit-module", "-module-name", name, "-o", tmp_path / f"{name}.swiftmodule", source)
    sources = sorted(CLIENT.rglob("*.swift"))
    assert any("canImport(Security)" in source.read_text(encoding="utf-8") for source in sources)
    done = subprocess.run(
        [*(part for part in COMPILER if part != "-warnings-as-errors"), "-typecheck", "-module-name", "TokenCacheClient",
         "-I", str(tmp_path), *map(str, sources), str(STAND_INS / "Apple.swift")],
        capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


ARTICLES = sorted((CLIENT / "TokenCacheClient.docc").glob("*.md"))


# That of Swift, and that of new projects of Xcode 26.
@pytest.mark.parametrize("isolation", ["nonisolated", "MainActor"])
@pytest.mark.parametrize("article", ARTICLES, ids=lambda article: article.stem)
def test_the_code_of_the_articles_compiles(article, isolation, compiled, tmp_path):
    blocks = re.findall(r"(?ms)^```swift\n(.*?)^```", article.read_text(encoding="utf-8"))
    assert blocks or article.stem == "TokenCacheClient"
    text = ["import Foundation", "import FoundationNetworking", "import TokenCacheClient"]
    for number, block in enumerate(blocks):
        # The macro would need a package.
        block = block.replace("#expect", "expect")
        text.append(block if block.startswith("extension") else f"func example{number}() async throws {{\n{block}}}")
    source = tmp_path / "Article.swift"
    source.write_text("\n".join(text))
    done = subprocess.run(
        ["swiftc", "-typecheck", "-swift-version", "6", "-parse-as-library", "-default-isolation", isolation, "-I", str(compiled),
         str(source), str(STAND_INS / "App.swift")], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_documentation_is_built_without_a_warning(compiled, tmp_path):
    docc = Path(shutil.which("swift")).resolve().with_name("docc")
    if not docc.exists():
        pytest.skip("docc is missing")
    done = subprocess.run(
        [docc, "convert", str(CLIENT / "TokenCacheClient.docc"),
         "--additional-symbol-graph-dir", str(compiled / "graphs"), "--fallback-display-name", "TokenCacheClient",
         "--fallback-bundle-identifier", "TokenCacheClient", "--output-path", str(tmp_path / "archive"),
         "--warnings-as-errors"], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr
