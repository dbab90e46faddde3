"""A headless Chromium, driven over its DevTools protocol (chromedevtools.github.io/devtools-protocol)."""
import itertools
import json
import os
import select
import shutil
import subprocess
import time

from process_tree import Closeable

PROGRAM = shutil.which("chromium")
# A browser starts slowly beside a build.
ANSWER_SECONDS = 120
# Without the machine's certificates and accounts, and without Chromium's own requests to the network.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run", "--no-default-browser-check", "--mute-audio",
    "--remote-debugging-pipe",
)


class Browser(Closeable):
    """A browser with one page; `problems` collects the errors of the page."""

    def __init__(self, folder):
        ours, theirs = os.pipe(), os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4, each message ended by a NUL.
        script = f'exec "$0" "$@" 3<&{ours[0]} 4>&{theirs[1]}'
        command = ["bash", "-c", script, PROGRAM, *FLAGS, f"--user-data-dir={folder}", "about:blank"]
        self.process = subprocess.Popen(
            command, pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, "HOME": str(folder)})
        os.close(ours[0])
        os.close(theirs[1])
        self.output, self.input = ours[1], theirs[0]
        self.unread = b""
        self.numbers = itertools.count(1)
        self.problems = []
        self.session = None
        with self.closed_on_failure():
            target = next(
                target for target in self.call("Target.getTargets")["targetInfos"] if target["type"] == "page")
            attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            self.session = attached["sessionId"]
            for domain in "Page", "Runtime", "Log":
                self.call(f"{domain}.enable")

    def close(self):
        """Ends the browser; its helpers end with it."""
        self.process.kill()
        self.process.wait(ANSWER_SECONDS)
        os.close(self.output)
        os.close(self.input)

    def call(self, method, **parameters):
        """Sends a command and returns its result; events that arrive meanwhile are recorded."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.output, data):]
        while True:
            answer = self._receive(method)
            if answer.get("id") == number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]
            self._note(answer)

    def _receive(self, method):
        deadline = time.monotonic() + ANSWER_SECONDS
        while b"\0" not in self.unread:
            ready, _, _ = select.select([self.input], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser does not answer {method}"
            part = os.read(self.input, 1 << 16)
            assert part, f"the browser has ended during {method}"
            self.unread += part
        message, self.unread = self.unread.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        kind, parameters = event.get("method"), event.get("params", {})
        if kind == "Runtime.exceptionThrown":
            self.problems.append(parameters["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif kind == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
            self.problems.append(str(parameters["args"]))
        elif kind == "Log.entryAdded" and parameters["entry"]["level"] == "error":
            # Its warnings are of what a later version of the browser will not do any more.
            self.problems.append(parameters["entry"]["text"])

    # The page

    def size(self, width, height, **features):
        """Sets the size of the window, and media features such as `prefers_color_scheme="dark"`."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=named)

    def open(self, url):
        """Goes to a page."""
        result = self.call("Page.navigate", url=url)
        assert "errorText" not in result, result

    def evaluate(self, expression):
        """The value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")
