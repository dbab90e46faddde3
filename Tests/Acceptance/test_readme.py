"""The README's curl session, as written, against the running server."""
import re
import shlex
import subprocess
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def sessions():
    """Each command of the README that starts with `$ curl`, with the output shown below it."""
    found = []
    for block in re.findall(r"(?:^    .*\n|^\n)+", README.read_text(encoding="utf-8"), re.M):
        for part in re.split(r"^    \$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("curl"):
                found.append((command, "\n".join(line[4:] for line in output.rstrip().split("\n"))))
    return found


def steady(text):
    """Without what is another each time."""
    text = re.sub(r"Date: .*", "Date: now", text.replace("\r", ""))
    return re.sub(r"X-Request-Id: [0-9a-f]{16}\n", "X-Request-Id: made\n", text).rstrip()


def test_the_curl_session_prints_what_the_readme_shows(serve):
    """In the order of the README, as later commands fetch what earlier ones stored."""
    server = serve()
    commands = sessions()
    assert len(commands) >= 5
    for command, shown in commands:
        arguments = shlex.split(command.replace("127.0.0.1:8080", f"127.0.0.1:{server.address[1]}"))
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=True)
        assert steady(result.stdout) == steady(shown), command
