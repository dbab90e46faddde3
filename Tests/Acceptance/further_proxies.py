"""Runs the proxies of deploy/proxies/ with their configurations, except for placeholders, ports, paths and the user."""
import re
import shutil
from pathlib import Path

from proxies import Proxy, user


class FurtherProxy(Proxy):
    """A proxy whose program may be missing."""
    program = ""
    # The user that it runs as if root has started it.
    account = "root"
    # What its entry of listen has behind the port.
    options = ""
    has_plain_port = True
    # Whether a client cannot choose the id of its request.
    drops_request_id = True

    @classmethod
    def is_installed(cls):
        return shutil.which(cls.program) is not None

    def command(self):
        if not self.has_plain_port:
            self.http_port = self.https_port
        if user() == "root":
            for folder in self.folder, self.logs:
                shutil.chown(folder, self.account)
        return [self.program, *self.arguments()]

    def arguments(self):
        """Writes the configuration and returns the program's arguments."""
        raise NotImplementedError

    def configured(self, replacements, name=None, before=""):
        """The file with the configuration, which begins with these lines; each replacement must occur in it."""
        return self.write(name or Path(self.configuration).name, before + self.deployed(replacements))


class Hitch(FurtherProxy):
    program, configuration, options, has_plain_port = "hitch", "proxies/hitch.conf", "?proxy-protocol=required", False
    backend = ""

    def arguments(self):
        port = self.backend or self.server_port
        return [f"--config={self.configured({'[*]:443': f'[*]:{self.https_port}', '[127.0.0.1]:8080': f'[127.0.0.1]:{port}', '_hitch': user()})}"]


class Stunnel(FurtherProxy):
    program, configuration, has_plain_port = "stunnel", "proxies/stunnel.conf", False
    options = "?proxy-protocol=required&tls=terminated"

    def arguments(self):
        return [self.configured({":::443": f":::{self.https_port}", "setuid = stunnel4\nsetgid = stunnel4\n": "foreground = yes\npid =\n"})]


class Varnish(FurtherProxy):
    """Behind hitch."""
    program, configuration, own = "varnishd", "proxies/varnish.vcl", ("behind hitch",)

    def arguments(self):
        hitch = type("HitchOfVarnish", (Hitch,), {"backend": self.other_ports[0]})
        self.hitch = hitch(self.folder / "hitch", 0, self.certificate)
        self.https_port = self.hitch.https_port
        file = self.configured({'.port = "8080"': f'.port = "{self.server_port}"'})
        return ["-F", "-j", "none", "-n", self.folder / "work", "-f", file, "-a", f"http=:{self.http_port},HTTP",
                "-a", f"tls=127.0.0.1:{self.other_ports[0]},PROXY"]

    def close(self):
        super().close()
        self.hitch.close()


class Squid(FurtherProxy):
    program, configuration, account = "squid", "proxies/squid.conf", "proxy"

    def arguments(self):
        file = self.configured({
            "http_port 80 ": f"http_port {self.http_port} ", "https_port 443 ": f"https_port {self.https_port} ",
            "127.0.0.1 parent 8080": f"127.0.0.1 parent {self.server_port}", "access_log stdio:/var/log/squid/access.log": "access_log none"},
            before=f"pid_filename none\ncache_log {self.logs}/cache.log\nshutdown_lifetime 0 seconds\n")
        return ["-N", "-n", f"test{self.https_port}", "-f", file]


class Lighttpd(FurtherProxy):
    program, configuration = "lighttpd", "proxies/lighttpd.conf"

    def arguments(self):
        return ["-D", "-f", self.configured({
            'server.username = "www-data"\nserver.groupname = "www-data"\n': "", "/var/log/lighttpd": str(self.logs),
            "server.port = 80": f"server.port = {self.http_port}", '":443"': f'":{self.https_port}"',
            '"port" => 8080': f'"port" => {self.server_port}'})]


class Nghttpx(FurtherProxy):
    program, configuration, drops_request_id = "nghttpx", "proxies/nghttpx.conf", False

    def arguments(self):
        return [f"--conf={self.configured({'*,443': f'*,{self.https_port}', '*,80;': f'*,{self.http_port};', '127.0.0.1,8080': f'127.0.0.1,{self.server_port}'})}"]


class H2O(FurtherProxy):
    program, configuration, drops_request_id = "h2o", "proxies/h2o.conf", False

    def arguments(self):
        return ["-c", self.configured({
            "user: nobody": f"user: {user()}", "port: 80\n": f"port: {self.http_port}\n", "port: 443\n": f"port: {self.https_port}\n"})]


class TrafficServer(FurtherProxy):
    program, configuration, account = "traffic_server", "proxies/trafficserver/records.config", "trafficserver"

    def arguments(self):
        self.configured({"80 443:ssl": f"{self.http_port} {self.https_port}:ssl"})
        for name in "ip_allow.yaml", "remap.config", "ssl_multicert.config", "https.conf", "http.conf":
            self.configuration = f"proxies/trafficserver/{name}"
            self.configured({})
        # Debian's, but for its folders.
        text = Path("/etc/trafficserver/records.config").read_text()
        self.write("records.config", text + (self.folder / "records.config").read_text())
        for name in Path("/etc/trafficserver").iterdir():
            if name.is_file() and not (self.folder / name.name).exists():
                self.write(name.name, name.read_text())
        return []

    def environment(self):
        return {"PROXY_CONFIG_CONFIG_DIR": str(self.folder), "PROXY_CONFIG_LOCAL_STATE_DIR": str(self.folder),
                "PROXY_CONFIG_LOG_LOGFILE_DIR": str(self.logs), "PROXY_CONFIG_CACHE_DIR": str(self.folder)}


class UWSGI(FurtherProxy):
    program, configuration, drops_request_id = "uwsgi", "proxies/uwsgi.ini", False

    def arguments(self):
        return [self.configured({"https = :443,": f"https = :{self.https_port},", "http = :80\n": f"http = :{self.http_port}\n"})]


class Mitmproxy(FurtherProxy):
    program, configuration, has_plain_port = "mitmdump", "proxies/mitmproxy.py", False

    def arguments(self):
        add_on = self.configured({})
        command, = re.findall(r"^    mitmdump (.*)$", add_on.read_text(), re.M)
        words = [str(add_on) if word == "mitmproxy.py" else word for word in command.split()]
        return ["-q", *words, "--listen-port", str(self.https_port), "--certs", str(self.certificate.both), "--set", f"confdir={self.folder}"]


FURTHER = {kind.__name__.lower(): kind for kind in (
    Hitch, Stunnel, Varnish, Squid, Lighttpd, TrafficServer, Nghttpx, H2O, Mitmproxy, UWSGI)}
