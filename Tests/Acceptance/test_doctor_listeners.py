"""token-cache doctor tries the addresses and Unix sockets to listen on, and knows who reaches them."""
import os
import socket
import tempfile
from pathlib import Path

import pytest

from doctor import AS_SOMEBODY, advices, examine, needs_root, of, only_problem, problems, said
from ports import free_ports


def test_a_taken_port_is_a_problem(stopped):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for variable, key in (("TOKEN_CACHE_LISTEN", "listen"), ("TOKEN_CACHE_ADMIN_LISTEN", "admin.listen")):
            report = of(stopped, environment={variable: f"127.0.0.1:{port}"})
            only_problem(report, "Listeners", fr"^{key}: 127.0.0.1:{port} is in use by another program")
    only_problem(of(stopped, environment={"TOKEN_CACHE_LISTEN": "192.0.2.1:80"}), "Listeners", "listening on 192.0.2.1:80 fails")


def test_a_running_server_that_is_elsewhere_has_to_be_restarted(serve):
    server = serve()
    port, = free_ports(1)
    report = of(server, environment={"TOKEN_CACHE_LISTEN": f"127.0.0.1:{port}"})
    assert f"the running server does not listen on 127.0.0.1:{port}" in said(report, "Listeners", "warning")


def test_an_address_of_another_machine_is_a_problem(tmp_path):
    # From a range that is for documents only (RFC 5737).
    report = examine("--data-directory", str(tmp_path / "data"), environment={"TOKEN_CACHE_LISTEN": "192.0.2.1:8080"})
    only_problem(report, "Listeners", "listening on 192.0.2.1:8080 fails")
    (advice,) = advices(report)
    assert advice == "set listen to an address that `ip address` shows"


@needs_root
def test_low_ports_need_a_right_that_the_unit_does_not_give(tmp_path):
    # If all users may use low ports, there is no finding.
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    report = examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                     environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:7"})
    (advice,) = [finding["advice"] for finding in report["findings"] if "listen on 127.0.0.1:7" in finding["text"]]
    assert "use the socket unit" in advice and "unit gives" not in advice


def test_open_access_is_warned_of_where_other_machines_reach_it():
    warned = "access.mode is open, and other machines reach 0.0.0.0:0: whoever knows or guesses an id reads and overwrites its token"
    reached = examine(environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0,0.0.0.0:0,unix:/tmp/none/a"})
    assert said(reached, "Access", "warning") == warned
    local = examine(environment={"TOKEN_CACHE_LISTEN": "127.0.0.1:0,[::1]:0"})
    assert "only this machine reaches" in said(local, "Access") and said(local, "Access", "warning") == ""
    header = examine(environment={
        "TOKEN_CACHE_LISTEN": "0.0.0.0:0", "TOKEN_CACHE_ACCESS_MODE": "header",
        "TOKEN_CACHE_ACCESS_HEADER_NAME": "Remote-User", "TOKEN_CACHE_TRUSTED_PROXIES": "10.0.0.1"})
    assert said(header, "Access") == "access.mode is header" and said(header, "Access", "warning") == ""


# Unix sockets

def test_a_unix_socket_is_looked_at(stopped, tmp_path):
    def listening(path):
        return of(stopped, environment={"TOKEN_CACHE_LISTEN": f"unix:{path}"})

    path = tmp_path / "http.sock"
    assert "can be created" in said(listening(path), "Listeners")
    only_problem(listening(tmp_path / "none" / "http.sock"), "Listeners", "the folder of .* is missing")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        assert "is left over" in said(listening(path), "Listeners")
        other.listen()
        only_problem(listening(path), "Listeners", "in use by another program")
    path.unlink()
    path.write_text("")
    only_problem(listening(path), "Listeners", "is not a socket")


@needs_root
def test_a_unix_socket_of_somebody_else_is_not_taken_for_left_over(tmp_path):
    # Other users cannot enter pytest's folders.
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as other:
        Path(folder).chmod(0o755)
        path = Path(folder) / "http.sock"
        other.bind(str(path))
        other.listen()
        path.chmod(0o600)
        report = examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                         environment={"TOKEN_CACHE_LISTEN": f"unix:{path}"})
    assert f"the user nobody may not connect to unix:{path}" in said(report, "Listeners", "problem")


@needs_root
def test_a_unix_socket_that_this_user_cannot_make_is_not_said_to_be_had(tmp_path):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)

        def found(address):
            return said(examine("--data-directory", str(tmp_path / "data"), prefix=AS_SOMEBODY, folder="/",
                                environment={"TOKEN_CACHE_LISTEN": address}), "Listeners", "problem")

        address = f"unix:{folder}/http.sock"
        assert f"the user nobody may not create {address} in {folder}" in found(address)
        os.chown(folder, 65534, 65534)
        assert found(address) == ""
        assert f"the user nobody may not give {address} to root" in found(f"{address}?owner=root")


def test_an_owner_of_a_unix_socket_has_to_exist(tmp_path):
    report = examine("--data-directory", str(tmp_path / "data"),
                     environment={"TOKEN_CACHE_LISTEN": f"unix:{tmp_path}/http.sock?owner=root:nobody-of-that-name"})
    only_problem(report, "Listeners", "there is no user or group nobody-of-that-name")
