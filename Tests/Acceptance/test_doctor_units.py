"""token-cache doctor reads the service's systemd unit: the folders, users and ports that it grants or denies the server."""
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from doctor import NOWHERE, advices, examine, needs_root, only_problem, problems, said, unit_folder, with_settings
from server_process import binary, clean_environment, run


@needs_root
def test_beside_an_installed_unit_it_says_how_to_look_from_inside(tmp_path):
    file = with_settings(tmp_path, tmp_path / "data")
    units = unit_folder(tmp_path, file, f"User={os.getuid()}")

    def hint(**variables):
        return said(examine("--config", str(file), environment={**units, **variables}), "Service")

    assert "systemctl start token-cache-doctor" in hint()
    # Of a unit of systemd's.
    assert hint(INVOCATION_ID="0" * 32) == ""


@needs_root
def test_systemd_makes_and_hands_over_the_folders_of_the_unit(public_folder):
    """In a namespace of mounts of its own, with an empty /var/lib."""
    file = with_settings(public_folder, "/var/lib/token-cache-test")
    units = unit_folder(public_folder, file, "DynamicUser=yes", "User=token-cache-test", "StateDirectory=token-cache-test",
                        # The service has a /tmp of its own.
                        f"BindReadOnlyPaths={public_folder}")

    def report(preparation):
        script = f"mount -t tmpfs none /var/lib || exit 99; {preparation}; exec " + " ".join(
            [binary(), "doctor", "--json", "--config", str(file)])
        done = subprocess.run(["unshare", "-m", "sh", "-ec", script], env=clean_environment({**NOWHERE, **units}),
                              capture_output=True, text=True, timeout=60)
        if done.returncode == 99 or "unshare failed" in done.stderr:
            pytest.skip("nothing can be mounted here")
        assert done.stderr == "", done.stderr
        return json.loads(done.stdout)

    # What is not there yet is not held against it by check-config either.
    script = "mount -t tmpfs none /var/lib || exit 99; exec " + " ".join([binary(), "check-config", "--config", str(file)])
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script], env=clean_environment(units), capture_output=True, text=True,
                          timeout=60, check=False)
    assert (done.returncode, done.stderr) in ((0, ""), (99, "")) or "unshare failed" in done.stderr, done
    missing = report("true")
    assert problems(missing) == [] and "systemd creates it for the service" in said(missing, "Data folder")
    private = "mkdir -m 700 /var/lib/private /var/lib/private/token-cache-test; ln -s private/token-cache-test /var/lib"
    roots = report(private)
    assert problems(roots) == []
    assert "owned by root; systemd gives it to token-cache-test" in said(roots, "Data folder", "warning")
    # Its own folder is behind one that only root may enter.
    own = private + "; chown 62000:62000 /var/lib/private/token-cache-test"
    reached = report(own)
    assert problems(reached) == [] and "the first start creates it" in said(reached, "Store")
    with_database = report(own + "; install -m 600 /dev/null /var/lib/private/token-cache-test/tokens.db")
    only_problem(with_database, "Data folder", "the server's user token-cache-test may not read and write .*/tokens.db")
    # chown has no such user while the service is stopped.
    (advice,) = advices(with_database)
    assert advice.startswith("chown --reference=/var/lib/token-cache-test/ /var/lib/token-cache-test/tokens.db"), advice


@needs_root
@pytest.mark.parametrize("command", ("doctor", "check-config"))
@pytest.mark.parametrize("missing", ("nothing", "proc"))
def test_a_chroot_in_which_nobody_else_can_look_is_told_of_calmly(public_folder, command, missing):
    """Its root folder is no mount point; that needs a namespace of mounts of its own."""
    file = with_settings(public_folder, "/var/lib/token-cache-test")
    units = unit_folder(public_folder, file, "DynamicUser=yes", "User=token-cache-test", "StateDirectory=token-cache-test",
                        f"BindReadOnlyPaths={public_folder}")
    root = public_folder / "root"
    (root / "machine").mkdir(parents=True)
    script = ("mount -t tmpfs none /var/lib || exit 99; mkdir -m 700 /var/lib/private /var/lib/private/token-cache-test;"
              " ln -s private/token-cache-test /var/lib; mount --rbind / $0/machine;"
              " for name in $(ls / | grep -v $1); do ln -s machine/$name $0; done; shift; exec chroot $0 \"$@\"")
    arguments = [binary(), command, *(["--json"] if command == "doctor" else []), "--config", str(file)]
    done = subprocess.run(["unshare", "-m", "sh", "-ec", script, root, missing, *arguments], capture_output=True, text=True, timeout=60,
                          env=clean_environment({**NOWHERE, **units}), check=False)
    if done.returncode == 99 or "unshare failed" in done.stderr:
        pytest.skip("nothing can be mounted here")
    if missing == "proc":
        assert done.returncode == 1 and done.stderr == (
            "token-cache: /proc is not mounted here, as in some chroots; mount it first: mount -t proc proc /proc\n"), done
        return
    assert done.returncode == 0, done
    reason = "as in this chroot the folders that systemd keeps for token-cache-test cannot be opened"
    if command == "doctor":
        (finding,) = [finding for finding in json.loads(done.stdout)["findings"] if finding["topic"] == "User"]
        assert finding["state"] == "ok" and reason in finding["text"] and done.stderr == "", done
    else:
        assert reason in done.stderr and "mount:" not in done.stderr and "data_directory: " in done.stdout, done


@needs_root
def test_a_file_that_is_certificate_and_key_is_reported_once(public_folder):
    pair = public_folder / "pair.pem"
    pair.write_text("not looked at")
    pair.chmod(0o600)
    file = public_folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(public_folder / "data"), "listen": "127.0.0.1:0", "admin": {"listen": "off"},
                                "tls": {"certificate": str(pair), "private_key": str(pair)}}))
    os.chown(public_folder, 65534, 65534)
    only_problem(examine("--config", str(file), "--user", "nobody"), "Certificates", f"may not read {pair}$")


@needs_root
def test_credentials_of_a_service_that_does_not_run_are_not_held_against_it(public_folder):
    """A unit with LoadCredential=tls.pem:..., whose file systemd makes at the start (systemd.exec(5))."""
    pair = "/run/credentials/token-cache-absent.service/tls.pem"
    file = public_folder / "token-cache.yaml"
    file.write_text(json.dumps({"data_directory": str(public_folder / "data"), "listen": "127.0.0.1:0", "admin": {"listen": "off"},
                                "tls": {"certificate": pair, "private_key": pair}}))
    os.chown(public_folder, 65534, 65534)
    units = unit_folder(public_folder, file, "User=nobody", "LoadCredential=tls.pem:/etc/ssl/private/tokens.pem")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 0 and "data_directory: " in done.stdout, done
    assert done.stderr == f"token-cache: {pair} is a credential, which is there only while the service runs; it was not checked\n"
    ring = pair.replace("tls.pem", "token-cache.keys")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units, "TOKEN_CACHE_SEALING_KEY_RING": ring})
    assert done.returncode == 0 and [line.split()[1] for line in done.stderr.splitlines()] == [pair, ring], done
    report = examine("--config", str(file), environment=units)
    assert problems(report) == [] and f"{pair} is a credential" in said(report, "Certificates", "warning")
    # Nobody makes that file for a service without credentials.
    (public_folder / "units" / "token-cache.service").unlink()
    (public_folder / "units").rmdir()
    units = unit_folder(public_folder, file, "User=nobody")
    done = run("check-config", "--config", str(file), environment={**NOWHERE, **units})
    assert done.returncode == 1 and pair in done.stderr and "No such file" in done.stderr, done


@needs_root
def test_a_port_that_systemd_opens_for_the_service_needs_no_right(public_folder):
    if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 7:
        pytest.skip("here everybody may have low ports")
    data = public_folder / "data"
    file = with_settings(public_folder, data)
    os.chown(public_folder, 65534, 65534)
    units = unit_folder(public_folder, file, "User=nobody")
    low = {**units, "TOKEN_CACHE_LISTEN": "127.0.0.1:7"}
    only_problem(examine("--config", str(file), environment=low), "Listeners", "nobody may not listen on 127.0.0.1:7")
    (public_folder / "units" / "token-cache.socket").write_text("[Socket]\nListenStream=127.0.0.1:7\n")
    (public_folder / "units" / "sockets.target.wants").mkdir()
    (public_folder / "units" / "sockets.target.wants" / "token-cache.socket").symlink_to("../token-cache.socket")
    report = examine("--config", str(file), environment=low)
    assert problems(report) == [] and "systemd listens on port 7 for" in said(report, "Listeners")
    unit = public_folder / "units" / "token-cache.service"
    shutil.rmtree(public_folder / "units" / "sockets.target.wants")
    unit.write_text(unit.read_text() + "AmbientCapabilities=CAP_NET_BIND_SERVICE\n")
    report = examine("--config", str(file), environment=low)
    assert problems(report) == [] and "lets the server listen on 127.0.0.1:7" in said(report, "Listeners")
