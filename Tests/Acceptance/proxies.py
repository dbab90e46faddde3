"""Runs the reverse proxies with the configurations of deploy/, except for placeholders, ports, paths and the user."""
import contextlib
import grp
import os
import pwd
import re
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

from certificates import make_pair
from http_client import Connection
from ports import free_ports
from process_tree import Closeable
from server_process import until

DEPLOY = Path(__file__).parents[2] / "deploy"
PACKAGES = ["nginx", "haproxy", "apache2", "caddy", "curl", "openssl"]
HOST = "tokens.test"
START_SECONDS = 20
STOP_SECONDS = 20


def install_packages():
    """Installs missing packages; returns the reason if it may not."""
    result = subprocess.run(
        [DEPLOY / "packages", "--for", "the tests of the proxies", *PACKAGES], capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    if os.geteuid() != 0 and not shutil.which("sudo"):
        return f"the proxies are not installed, and there is neither root nor sudo: {result.stderr}"
    raise RuntimeError(f"deploy/packages {' '.join(PACKAGES)} failed: {result.stderr}")


class Certificate:
    """A self-signed certificate for the host, and its key."""

    def __init__(self, folder):
        (self.file, self.key), self.both = make_pair(folder, "certificate", HOST), folder / "both.pem"
        self.both.write_bytes(self.file.read_bytes() + self.key.read_bytes())
        self.context = ssl.create_default_context(cafile=str(self.file))

    def connect(self, port, **options):
        """A connection over TLS to a proxy's port."""
        return Connection(("127.0.0.1", port), context=self.context, host=HOST, **options)


class Proxy(Closeable):
    """A running proxy with its own folder; a subclass for each program."""
    configuration = ""
    own = ()
    # The line of the configuration that says how long the proxy waits for the server's answer.
    patience = ("", "")
    # An id in the log.
    request_id = ""
    # The statuses and the type of answers that are built into the program and cannot be configured.
    fixed_answers = (set(), "")

    def __init__(self, folder, server_port, certificate):
        self.folder = Path(folder)
        self.logs = self.folder / "logs"
        self.logs.mkdir(parents=True)
        self.certificate, self.server_port = certificate, server_port
        self.http_port, self.https_port, *self.other_ports = free_ports(2 + len(self.own))
        self.replacements = {
            "tokens.example.com": HOST,
            "/etc/token-cache/tls/certificate.pem": str(certificate.file),
            "/etc/token-cache/tls/private-key.pem": str(certificate.key),
            "/etc/token-cache/tls/haproxy.pem": str(certificate.both),
            "/etc/token-cache/tls/both.pem": str(certificate.both),
            "127.0.0.1:8080": f"127.0.0.1:{server_port}",
        }
        # A master process ends its workers only when asked to; a process group of their own lets us end them all.
        with open(self.logs / "output", "wb") as output:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                env={**os.environ, **self.environment()}, start_new_session=True,
            )
        with self.closed_on_failure():
            until(self._accepts, START_SECONDS)

    def command(self):
        """Writes the configuration and returns the program with its arguments."""
        raise NotImplementedError

    def environment(self):
        return {}

    def write(self, name, text):
        """A file in the proxy's folder."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def deployed(self, replacements):
        """The configuration of deploy/ with these replacements; each must occur in it."""
        text = (DEPLOY / self.configuration).read_text()
        for old, new in replacements.items():
            assert old in text, f"{self.configuration} has no {old}"
            text = text.replace(old, new)
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        return text

    def _accepts(self):
        assert self.process.poll() is None, f"the proxy ended with {self.process.returncode}: {self.log()}"
        try:
            for port in self.http_port, self.https_port:
                socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            return False
        return True

    def log(self):
        """Everything that the proxy has logged, in all its files."""
        return "\n".join(file.read_text(errors="replace") for file in sorted(self.logs.iterdir()) if file.is_file())

    def is_running(self):
        return self.process.poll() is None

    def close(self):
        """Ends the proxy and its workers."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(STOP_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)
            self.process.wait(STOP_SECONDS)


def user():
    return pwd.getpwuid(os.geteuid()).pw_name


class Nginx(Proxy):
    configuration = "nginx/token-cache.conf"
    patience = ("proxy_read_timeout 60s;", "proxy_read_timeout 1s;")
    request_id = r" [0-9a-f]{32}$"

    def command(self):
        site = self.write("token-cache.conf", self.site())
        temporary = "".join(
            f"{name}_temp_path {self.folder}/{name};\n"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        # The same as Debian's nginx.conf where it matters here.
        main = self.write("nginx.conf", (
            (f"user {user()};\n" if os.geteuid() == 0 else "")
            + f"pid {self.folder}/pid;\nerror_log {self.logs}/main.log;\nworker_processes 2;\nevents {{}}\n"
            + f"http {{\n{temporary}access_log {self.logs}/access.log;\ninclude {site};\n}}\n"))
        return ["/usr/sbin/nginx", "-p", self.folder, "-c", main, "-g", "daemon off;"]

    def site(self):
        return self.deployed({
            "listen 80;": f"listen {self.http_port};",
            "listen [::]:80;": f"listen [::]:{self.http_port};",
            "listen 443 ssl;": f"listen {self.https_port} ssl;",
            "listen [::]:443 ssl;": f"listen [::]:{self.https_port} ssl;",
            "/var/log/nginx/": f"{self.logs}/",
        })


class LoggingSocket:
    """Replaces syslog: writes the messages that arrive on a socket to a file."""

    def __init__(self, path, file):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.thread = threading.Thread(target=self._copy, args=(file,), daemon=True)
        self.thread.start()

    def _copy(self, file):
        with open(file, "wb", buffering=0) as log:
            while message := self.socket.recv(65536):
                log.write(message.rstrip(b"\n") + b"\n")

    def close(self):
        # An empty datagram ends the thread.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"", self.socket.getsockname())
        self.thread.join()
        self.socket.close()


class HAProxy(Proxy):
    configuration = "haproxy/haproxy.cfg"
    patience = ("timeout server 60s", "timeout server 1s")
    request_id = r" [0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    fixed_answers = ({400, 408, 501}, "text/html")

    def command(self):
        # HAProxy looks for /dev/log in its new root, where Debian's systemd creates it.
        system_log = self.folder / "dev/log"
        system_log.parent.mkdir()
        self.system_log = LoggingSocket(system_log, self.logs / "system")
        text = self.text({
            "bind :80\n": f"bind :{self.http_port}\n",
            "bind :::80 ": f"bind :::{self.http_port} ",
            "bind :443 ": f"bind :{self.https_port} ",
            "bind :::443 ": f"bind :::{self.https_port} ",
            "chroot /var/lib/haproxy": f"chroot {self.folder}",
            "user haproxy": f"user {user()}",
            "group haproxy": f"group {grp.getgrgid(os.getegid()).gr_name}",
        })
        if os.geteuid() != 0:
            # Only root may change these.
            text = re.sub(r"(?m)^ +(chroot|user|group) .*\n", "", text).replace("/dev/log", str(system_log))
        return ["/usr/sbin/haproxy", "-db", "-f", self.write("haproxy.cfg", text)]

    def text(self, replacements):
        """The whole configuration."""
        return self.deployed(replacements)

    def close(self):
        super().close()
        self.system_log.close()


class HAProxyForSeveral(HAProxy):
    """HAProxy with several servers behind it.

    - places: of each server, its port and that of its administration, as text: `("127.0.0.1:8081", "9091")`.
    """

    def __init__(self, folder, places, certificate):
        self.places = places
        super().__init__(folder, None, certificate)

    def text(self, replacements):
        before, section, _ = self.deployed(replacements).partition("\nbackend token_cache\n")
        assert section, "haproxy.cfg has no such section, which would be replaced"
        text = (DEPLOY / "haproxy/several-servers.cfg").read_text()
        for number, (address, checked_port) in enumerate(self.places, 1):
            server = f"    server token-cache-{number} 10.0.0.1{number}:8080\n"
            assert server in text, f"several-servers.cfg has no line {server}"
            text = text.replace(server, f"    server token-cache-{number} {address} port {checked_port}\n")
        return before + "\n" + text


class Apache(Proxy):
    configuration = "apache/token-cache.conf"
    patience = (" timeout=60 ", " timeout=1 ")
    request_id = r" [A-Za-z0-9@_-]{27}$"
    # The modules that Debian enables, and those that the configuration needs.
    enabled = ["access_compat", "alias", "authz_core", "authz_host", "deflate", "dir", "env", "filter", "mime",
               "mpm_event", "negotiation", "reqtimeout", "setenvif", "status"]

    def command(self):
        asked = re.search(r"a2enmod (.*) &&", (DEPLOY / self.configuration).read_text())[1].split()
        for module in {*self.enabled, *asked, "socache_shmcb"}:
            self.enable(module)
        self.write("ports.conf", f"Listen {self.http_port}\nListen {self.https_port}\n")
        self.write("sites-enabled/token-cache.conf", self.deployed({
            "<VirtualHost *:80>": f"<VirtualHost *:{self.http_port}>",
            "<VirtualHost *:443>": f"<VirtualHost *:{self.https_port}>",
        }))
        # Debian's main configuration, whose folders are relative to the root or given by the environment.
        return ["/usr/sbin/apache2", "-DFOREGROUND", "-d", self.folder, "-f", "/etc/apache2/apache2.conf"]

    def enable(self, module):
        """Enables modules as a2enmod does."""
        folder = self.folder / "mods-enabled"
        folder.mkdir(exist_ok=True)
        for file in Path("/etc/apache2/mods-available").glob(f"{module}.*"):
            (folder / file.name).symlink_to(file)

    def environment(self):
        # Apache refuses to serve as root, so it runs as Debian's user.
        name = "www-data" if os.geteuid() == 0 else user()
        return {
            "APACHE_RUN_USER": name, "APACHE_RUN_GROUP": name, "APACHE_RUN_DIR": str(self.folder),
            "APACHE_LOCK_DIR": str(self.folder), "APACHE_PID_FILE": str(self.folder / "pid"),
            "APACHE_LOG_DIR": str(self.logs),
        }


class Caddy(Proxy):
    configuration = "caddy/Caddyfile"
    patience = ("response_header_timeout 60s", "response_header_timeout 1s")
    request_id = r'"X-Request-Id":\["[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"\]'
    fixed_answers = ({400, 431, 501}, "text/plain")
    own = ("admin",)

    def command(self):
        file = self.write("Caddyfile", self.deployed({
            "http_port 80": f"http_port {self.http_port}",
            "https_port 443": f"https_port {self.https_port}",
            "localhost:2019": f"localhost:{self.other_ports[0]}",
            "/var/log/caddy/": f"{self.logs}/",
        }))
        return ["/usr/bin/caddy", "run", "--config", file, "--adapter", "caddyfile"]

    def environment(self):
        return {"HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder), "XDG_DATA_HOME": str(self.folder)}


PROXIES = {"nginx": Nginx, "haproxy": HAProxy, "apache": Apache, "caddy": Caddy}
