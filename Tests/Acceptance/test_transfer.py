"""Import and export of token.php's data files: ten thousand of them, as real PHP writes them, byte for byte."""
import errno
import filecmp
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

from contract import STORED, WRITE_FAILED, found
from http_client import Connection, post
from server_process import binary, clean_environment, run, until
from small_disk import SmallDisk
from storage_shim import ALWAYS
from store_files import CLEAR_STORE, command, holds, printed, refused

COUNT = 10_000

# As token.php does for a POST: removes tags and writes the token info as JSON to a file named by the id.
SCRIPT = r"""<?php
[, $folder, $count] = $argv;
mt_srand(4711);
$tails = ['', '-é', ' with blanks', '@example.com', '-🎉', '"quoted"', '%41+&=', "'", '..', "\u{2028}"];
$characters = ['a', 'Z', '0', '"', '\\', '/', "\n", "\t", "\x7f", "\x01", 'é', '€', '🎉', "\u{2028}", '<b>', '< 1', '&', '{', '}'];
for ($number = 0; $number < $count; $number++) {
    $text = '';
    for ($length = mt_rand(0, 60); $length > 0; $length--) $text .= $characters[mt_rand(0, count($characters) - 1)];
    $info = $number % 7 ? $text : '{"com.facebook.sdk:TokenInformationTokenKey":"CAA' . md5($number) . '","n":"' . $text . '"}';
    file_put_contents("$folder/" . strip_tags("user$number" . $tails[$number % 10]) . '.txt', json_encode(strip_tags($info)));
}
"""


@pytest.fixture(scope="module")
def written_by_php(tmp_path_factory):
    """A data folder of token.php."""
    if not shutil.which("php"):
        pytest.skip("there is no php here")
    folder = tmp_path_factory.mktemp("php")
    script = folder / "write.php"
    script.write_text(SCRIPT)
    data = folder / "data"
    data.mkdir()
    subprocess.run(["php", str(script), str(data), str(COUNT)], check=True, timeout=120)
    assert len(os.listdir(data)) == COUNT
    return data


def check_same(first, second):
    """Checks that two folders hold the same files with the same contents."""
    names = os.listdir(first)
    assert sorted(names) == sorted(os.listdir(second))
    _, different, unreadable = filecmp.cmpfiles(first, second, names, shallow=False)
    assert not different and not unreadable


def test_what_php_wrote_goes_in_and_comes_out_byte_for_byte(written_by_php, tmp_path):
    data = tmp_path / "store"
    told = printed(data, "import", str(written_by_php), "--json", seconds=300)
    assert json.loads(told) == {"done": COUNT, "skipped": {}}
    assert f"{COUNT:,} tokens written" in printed(data, "export", str(tmp_path / "out"), seconds=300)
    check_same(written_by_php, tmp_path / "out")


# The text that token.php finds in a file, as it writes it; nothing for a file in which it finds none.
READER = r"""<?php
[, $folder, $target] = $argv;
foreach (glob("$folder/*.txt") as $file) {
    $value = json_decode(file_get_contents($file), true);
    if (is_array($value)) $value = $value['token_info'] ?? null;
    if (is_string($value)) file_put_contents("$target/" . basename($file), json_encode($value));
}
"""
CONTENTS = [
    '"a"', '""', '"\\u00e9\\/\\ud83c\\udf89"', '" a\t"', '{"token_info":"a"}', '{ "token_info" : "a" , "b" : [1, {"c": null}] }',
    '{"b":1,"token_info":"a"}', '{"token_info":"a","token_info":"b"}', '{"token_info":1,"token_info":"b"}',
    '{"token_info":"b","token_info":1}', '{"token_info":null}', '{"token_info":12}', '{"token_info":["a"]}', '{"token_info":{"a":"b"}}',
    '"\\ud83c"', '"\\udc00"', '"\\ud83c\\u0041"', '{"token_info":"\\ud83c"}', '{"token_info":"a","b":"\\ud83c"}', '"a"b', '"a"\v', '"a',
    '"a\n"', '"\\x41"', '"\\u12"', '{"token_info":"a"', '{"token_info":"a"}x', '{"token_info":"a",}', '{"token_info":"a","b":01}', '{token_info:"a"}',
    '"\xff"', '{"token_info":"\xff"}',
]


@pytest.mark.skipif(not shutil.which("php"), reason="there is no php here")
def test_a_file_is_read_as_php_would_have_read_it(tmp_path):
    source, expected = tmp_path / "source", tmp_path / "expected"
    source.mkdir()
    expected.mkdir()
    spaces = [("", ""), ("", "\n"), ("", "\r\n"), (" ", ""), ("\r\n", " \t\n\n")]
    for number, (content, (before, behind)) in enumerate(itertools.product(CONTENTS, spaces)):
        (source / f"{number}.txt").write_bytes((before + content + behind).encode("latin-1"))
    script = tmp_path / "read.php"
    script.write_text(READER)
    subprocess.run(["php", str(script), str(source), str(expected)], check=True, timeout=60)
    told = json.loads(printed(tmp_path / "store", "import", str(source), "--json"))
    counts = [len(spaces) * number for number in (8, 22, 2)]
    assert told == {"done": counts[0], "skipped": {"lost": counts[1], "content_not_text": counts[2]}}
    printed(tmp_path / "store", "export", str(tmp_path / "out"))
    check_same(expected, tmp_path / "out")


def test_a_running_server_answers_imported_tokens_and_keeps_newer_ones(serve, tmp_path):
    source = tmp_path / "data"
    source.mkdir()
    for name, content in {"old.txt": '"from php"', "me.txt": '"from php"', "x.txt": '{"token_info":"o"}',
                          "r.txt": "raw", "lost.txt": "", "other.md": "x"}.items():
        (source / name).write_text(content)
        os.utime(source / name, (1_400_000_000, 1_400_000_000))
    server = serve()
    assert server.post("me", "newer") == STORED
    for stored, kept in ((3, 1), (0, 4)):
        told = printed(server.data, "import", str(source))
        assert f"{stored} tokens stored" in told
        assert f"{kept} skipped: the store has this token already, or a newer one" in told
        assert "1 skipped: the file is empty" in told
        assert server.get("old") == found("from php")
        assert server.get("x") == found("o")
        assert server.get("r") == found("raw")
        assert server.get("me") == found("newer")
    assert "4 tokens stored" in printed(server.data, "import", str(source), "--overwrite")
    assert server.get("me") == found("from php")
    printed(server.data, "export", str(tmp_path / "out"))
    assert (tmp_path / "out" / "x.txt").read_text() == '"o"'
    assert int(os.stat(tmp_path / "out" / "x.txt").st_mtime) == 1_400_000_000
    assert os.stat(tmp_path / "out" / "x.txt").st_mode & 0o777 == 0o600


def test_of_a_file_and_a_token_of_the_same_second_the_token_stays(serve, tmp_path):
    """token.php's last answer for this id was before the app moved, so the app's token is the later one."""
    server = serve()
    assert server.post("me", "newer") == STORED
    written = json.loads(printed(server.data, "list", "--json"))["written_at"]
    source = tmp_path / "data"
    source.mkdir()
    (source / "me.txt").write_text('"from php"')
    os.utime(source / "me.txt", (written, written))
    printed(server.data, "import", str(source))
    assert server.get("me") == found("newer")


def test_a_file_dated_in_the_future_takes_the_place_of_no_token(serve, tmp_path):
    """As on a disk that is shared with a machine whose clock is ahead."""
    source = tmp_path / "data"
    source.mkdir()
    (source / "me.txt").write_text('"from php"')
    os.utime(source / "me.txt", (4_000_000_000, 4_000_000_000))
    server = serve()
    assert "1 token stored" in printed(server.data, "import", str(source))
    assert server.get("me") == found("from php")
    assert json.loads(printed(server.data, "list", "--json"))["written_at"] <= time.time()
    assert server.post("me", "newer") == STORED
    assert "1 skipped: the store has this token already, or a newer one" in printed(server.data, "import", str(source))
    assert server.get("me") == found("newer")


# A control character takes six bytes of JSON.
LARGE = "\x01" * (3 << 20)


def test_a_file_too_large_to_be_sent_is_named_and_the_others_are_imported(serve, tmp_path):
    source = tmp_path / "data"
    source.mkdir()
    (source / "large.txt").write_text(LARGE)
    # Each is smaller than a request may be, but not all of them together.
    for number in range(4):
        (source / f"middle{number}.txt").write_text(f"{number}" + "\x01" * (2 << 20))
    for number in range(1000):
        (source / f"small{number}.txt").write_text(f'"{number}"')
    for file in source.iterdir():
        os.utime(file, (1_400_000_000, 1_400_000_000))
    server = serve()
    done = command(server.data, "import", str(source), seconds=300)
    assert done.returncode == 0, done.stderr
    assert "1,004 tokens stored" in done.stdout and "1 skipped: the file is too large to be sent" in done.stdout
    assert done.stderr.startswith("large.txt: the file is too large to be sent to a running server; stop the server")
    for number in range(1000):
        assert server.get(f"small{number}") == found(str(number))
    for number in range(4):
        assert printed(server.data, "get", f"middle{number}", seconds=60).startswith(f"{number}\x01")
    assert server.stop() == 0
    done = command(server.data, "import", str(source), seconds=300)
    assert done.returncode == 0 and "1 token stored" in done.stdout and not done.stderr, done.stderr


def test_nothing_is_exported_into_a_file_that_somebody_has_open(serve, tmp_path):
    server = serve()
    assert server.post("me", "secret4711") == STORED
    folder, others = tmp_path / "out", tmp_path / "others"
    folder.mkdir()
    others.touch(0o666)
    planted = folder / ".token-cache-export.new"
    planted.hardlink_to(others)
    with open(planted, "rb") as open_file:
        printed(server.data, "export", str(folder))
        assert open_file.read() == b""
    assert os.listdir(folder) == ["me.txt"]
    assert (folder / "me.txt").read_text() == '"secret4711"' and (folder / "me.txt").stat().st_mode & 0o777 == 0o600


def test_an_export_that_does_not_reach_the_disk_fails(shim, tmp_path):
    data = tmp_path / "data"
    printed(data, "put", "me", input="secret4711")
    shim.set(sync_failures=ALWAYS, error=errno.EIO)
    done = command(data, "export", str(shim.disk / "out"), environment=shim.environment)
    assert (done.returncode, done.stdout) == (1, "") and "cannot be written: Input/output error" in done.stderr, done
    shim.heal()
    assert "has files *.txt already" in refused(data, "export", str(shim.disk / "out"))
    printed(data, "export", str(shim.disk / "new"), environment=shim.environment)
    assert shim.get("failed_syncs") == 1


def test_tokens_whose_key_ring_is_lost_are_exported_while_the_disk_fails(shim, tmp_path):
    """What deploy/failures.md advises, at the worst moment."""
    server = shim.serve(tmp_path / "server")
    assert server.post("me", "secret4711") == STORED
    (server.data / "keys").unlink()
    shim.set(sync_failures=ALWAYS, error=errno.EIO)
    assert server.post("other", "hello") == WRITE_FAILED
    assert "written" in printed(server.data, "export", str(tmp_path / "out"))
    assert (tmp_path / "out" / "me.txt").read_text() == '"secret4711"'
    assert "the store is sound" in printed(server.data, "verify")
    shim.heal()
    until(lambda: server.post("other", "hello") == STORED)


TOKENS = 1_200


def copy(source, target, *flags, environment=None):
    done = run("copy", "--from", str(source), "--to", str(target), *flags, environment=environment, seconds=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def refusal(source, target, *flags, environment=None):
    done = run("copy", "--from", str(source), "--to", str(target), *flags, environment=environment)
    assert (done.returncode, done.stdout) == (1, ""), done
    return done.stderr


def fill(server, numbers, text="info"):
    with Connection(server.address) as connection:
        for number in numbers:
            assert connection.exchange(post(f"id{number}", f"{text} {number}")).body == STORED


def test_a_store_in_the_clear_is_only_copied(tmp_path):
    clear, sealed = tmp_path / "clear", tmp_path / "sealed"
    clear.mkdir(mode=0o700)
    shutil.copy(CLEAR_STORE, clear / "tokens.db")
    advice = "token-cache copy --from OLD --to NEW"
    message = refused(clear, "serve", "--listen", "127.0.0.1:0")
    assert f"the store {clear}/tokens.db holds tokens in the clear" in message and advice in message
    assert advice in command(clear, "doctor").stdout and not (clear / "keys").exists()
    # A backup in the clear is copied the same way; this one is such a backup.
    for arguments in ("verify",), ("restore",):
        message = refused(sealed, *arguments, str(CLEAR_STORE))
        assert f"put {CLEAR_STORE} as tokens.db into a folder of its own, and copy that" in message
    assert not (sealed / "tokens.db").exists()
    copied = copy(clear, sealed)
    assert copied.startswith("3 tokens and 0 sessions copied and verified") and "ended 1 session" in copied
    assert holds(clear, b"secret4711") and holds(sealed, b"secret4711") == []
    assert printed(sealed, "get", "9f8a4c1e7b3d60528cd1e5f27a94b306") == "secret4711 of a device\n"
    assert "the store is sound" in printed(sealed, "verify")


@pytest.mark.parametrize("place", ["source", "target"])
def test_a_copy_of_a_backup_revives_neither_erased_users_nor_sessions(serve, tmp_path, place):
    """A restore leaves the same out. Whatever a stopped store has is copied."""
    server, backup, target = serve(), tmp_path / "backup", tmp_path / "target"
    for user in ("anna", "berta"):
        assert server.post(user, f"canary of {user}") == STORED
        printed(server.data, "access", "sessions", "add", user)
    backup.mkdir(mode=0o700)
    printed(server.data, "backup", str(backup / "tokens.db"))
    printed(server.data, "erase", "anna")
    assert server.stop() == 0
    assert copy(server.data, tmp_path / "moved").startswith("1 token and 1 session copied")
    folders = {"source": backup, "target": target}
    target.mkdir(mode=0o700)
    shutil.copy(server.data / "keys", backup)
    shutil.copy(server.data / "erasures", folders[place])
    copied = copy(backup, target)
    assert copied.startswith("1 token and 0 sessions copied")
    assert "left out 1 user that had been erased" in copied and "ended 2 sessions" in copied
    assert printed(target, "get", "berta") == "canary of berta\n"
    assert "nothing is stored" in refused(target, "get", "anna")


def test_a_copy_that_is_killed_leaves_no_store_and_the_next_one_begins_anew(serve, tmp_path):
    server = serve()
    fill(server, range(TOKENS))
    assert server.stop() == 0
    target = tmp_path / "target"
    for _ in range(3):
        process = subprocess.Popen(
            [binary(), "copy", "--from", str(server.data), "--to", str(target)], env=clean_environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        until(lambda: (target / "tokens.db.new").exists() or process.poll() is not None, pause=0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (target / "tokens.db").exists():
            # It was complete by then.
            assert f"{TOKENS:,} tokens checked\nthe store is sound" in printed(target, "verify")
            shutil.rmtree(target)
    assert f"{TOKENS:,} tokens" in copy(server.data, target)
    assert "the store is sound" in printed(target, "verify")
    assert not [path for path in target.iterdir() if ".new" in path.name]


def test_refusals_say_what_to_do(serve, tmp_path):
    server = serve()
    fill(server, range(2))
    assert server.stop() == 0
    data, other = server.data, tmp_path / "other"
    assert "both are the same store" in refusal(data, f"{data}/.")
    assert "the source: there is no store at" in refusal(tmp_path / "nowhere", other)
    assert not (tmp_path / "nowhere").exists() and not other.exists()
    assert "secret" not in refusal("postgresql://u:secret@db/tokens", data)
    for place in ("host=db dbname=tokens password=secret", "Postgresql://u:secret@db/tokens", "jdbc:postgresql:secret", "u:secret@db/tokens"):
        message = refusal(data, place)
        assert "a database is named by a URL such as" in message and "secret" not in message
    # There is a store in the target, or a part of one.
    printed(other, "put", "a", "b")
    message = refusal(data, other)
    assert f"the target: there is a store already ({other}/tokens.db)" in message and "into an empty folder only" in message
    (other / "tokens.db").unlink()
    assert f"({other}/tokens.db-wal)" in refusal(data, other)
    # A server uses the target, or the source.
    used = serve()
    assert f"the target: the data directory {used.data} is in use by process" in refusal(data, used.data)
    assert f"the source: the data directory {used.data} is in use by process" in refusal(used.data, tmp_path / "new")
    # A ring other than that of the source.
    wrong = tmp_path / "wrong"
    assert run("keyring", "create", str(wrong)).returncode == 0
    message = refusal(data, tmp_path / "new", environment={"TOKEN_CACHE_SEALING_KEY_RING": str(wrong)})
    assert f"the source: the key ring {wrong} is not the one that the store was sealed with" in message
    # If the source's ring is missing, none is made.
    (data / "keys").rename(tmp_path / "keys")
    assert re.search("the source: .*keys is missing", refusal(data, tmp_path / "new"))
    assert not (data / "keys").exists()


def test_a_full_disk_leaves_no_store(serve):
    server = serve()
    for number in range(300):
        assert server.post(f"id{number}", f"{number}" * 10_000) == STORED
    assert server.stop() == 0
    with SmallDisk(megabytes=6) as disk:
        assert "disk is full" in refusal(server.data, disk.folder / "target")
        assert sorted(path.name for path in (disk.folder / "target").iterdir()) == ["keys", "lock"]
