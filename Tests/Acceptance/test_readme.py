"""The commands of the documents, as written, against a running server: each prints what the README shows below it."""
import os
import re
import subprocess
from pathlib import Path

import pytest

from certificates import make_certificate
from ports import free_ports
from server_process import binary, clean_environment

yaml = pytest.importorskip("yaml", reason="there is no python3-yaml")

REPOSITORY = Path(__file__).parents[2]
README = REPOSITORY / "README.md"
# In this order, because later commands fetch what earlier ones stored.
SESSIONS = [README, *(REPOSITORY / name for name in ("config/README.md", "deploy/examples/README.md"))]
# The READMEs' name for the server's folder.
FOLDER = "/srv/tokens"


def sessions():
    """Each command behind `$ ` in the READMEs, with the output shown below it."""
    found = []
    text = "\n".join(document.read_text(encoding="utf-8") for document in SESSIONS)
    for block in re.findall(r"(?:^    .*\n|^\n)+", text, re.M):
        for part in re.split(r"^    \$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, "\n".join(line[4:] for line in output.rstrip().split("\n"))))
    return found


def normalised(text):
    """The text with everything that differs between runs removed or replaced."""
    text = re.sub(r"\d{4}-\d\d-\d\d", "TODAY", text.rstrip())
    return re.sub(r'"(created_at|expires_at|last_used_at)":\d+', r'"\1":TIME', text)


# What the server chooses at random, and later commands name: sessions and their public ids.
CHOSEN = re.compile(r'(?<="session":")[^"]+|(?<="id":")[^"]+')


# The settings file of the READMEs' server.
SETTINGS = """\
listen: [127.0.0.1:8080, 'https://127.0.0.1:8443']
admin: {listen: [127.0.0.1:9090]}
data_directory: /srv/tokens/data
tls: {certificate: /srv/tokens/certificate.pem, private_key: /srv/tokens/private-key.pem}
"""


def user_settings():
    """The settings of the README's second server, which knows its users."""
    block = re.search(r"(?m)^    listen: 127\.0\.0\.1:8081\n(    .*\n)+", README.read_text(encoding="utf-8"))[0]
    return re.sub(r"(?m)^    ", "", block)


@pytest.fixture(name="ask")
def asked_server(serve, tmp_path):
    """A function that runs a command, with the servers' real ports and paths in place of the READMEs'."""
    ports = dict(zip(("8080", "8443", "9090", "8081"), map(str, free_ports(4))))
    folder = tmp_path / "server0"
    folder.mkdir()
    make_certificate(folder, "-addext", "subjectAltName=DNS:tokens.example.com", days=90)
    text = real(SETTINGS, ports).replace(FOLDER, str(folder))
    server = serve(yaml.safe_load(text))
    assert server.folder == folder
    # Written as in the READMEs, for the commands that print its lines.
    (folder / "token-cache.yaml").write_text(text)
    users = real(user_settings(), ports).replace("./", f"{folder}/")
    (folder / "users.yaml").write_text(users)
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "token-cache").symlink_to(binary())
    environment = clean_environment({"PATH": f"{tools}:{os.environ['PATH']}"})

    def ask(command):
        if ":8081" in command and not ask.knows_users:
            # It has its API key now.
            serve(yaml.safe_load(users))
            ask.knows_users = True
        done = subprocess.run(["bash", "-c", real(command, ports)], capture_output=True, text=True, timeout=30,
                              cwd=folder, env=environment, check=False)
        printed = done.stdout.replace(str(folder), FOLDER)
        for shown, port in ports.items():
            printed = printed.replace(f":{port}", f":{shown}")
        return printed

    ask.server, ask.knows_users = server, False
    return ask


def real(text, ports):
    for shown, port in ports.items():
        text = text.replace(f":{shown}", f":{port}")
    return text


def test_the_commands_print_what_the_readmes_show(ask):
    commands = sessions()
    assert len(commands) >= 10
    chosen = {}
    for command, shown in commands:
        for name, value in chosen.items():
            command = command.replace(name, value)
        printed = ask(command)
        for name, value in zip(CHOSEN.findall(shown), CHOSEN.findall(printed)):
            chosen.setdefault(name, value)
        for name, value in chosen.items():
            printed = printed.replace(value, name)
        assert normalised(printed) == normalised(shown), command
    assert ask.server.stop() == 0
