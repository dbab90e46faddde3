"""nginx with a canned answer."""

import os
import pwd
import subprocess
from pathlib import Path

import machine
from peers import Certificate, Peer, children
from workloads import Workload


class Nginx(Peer):
    """nginx with one worker, or one on each of its cores, and `return 200`: the body of token-cache's answer, and its headers."""

    def __init__(
        self, core: int, folder: Path, certificate: Certificate, answers: dict[bytes, bytes], name: str = "nginx"
    ) -> None:
        super().__init__(core, folder)
        self.name = name
        self.certificate = certificate
        self.answers = answers
        # nginx' configuration takes no blanks in paths.
        self.own = folder / name.replace(", ", "-").replace(" ", "-")
        self.own.mkdir()

    def command(self, port: int, workload: Workload) -> list[str]:
        kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        places = "".join(f"{kind}_temp_path {self.own}/{kind};" for kind in kinds)
        # The worker needs the files of the user who runs the benchmark.
        user = f"user {user_name()};" if os.geteuid() == 0 else ""
        # Without these, one worker would accept most connections.
        masks = " ".join(f"{1 << core:b}" for core in self.cores)
        pinning, sharing = (f"worker_cpu_affinity {masks};", "reuseport") if len(self.cores) > 1 else ("", "")
        configuration = self.own / "nginx.conf"
        configuration.write_text(f"""
            {user} daemon off; worker_processes {len(self.cores)}; {pinning} pid {self.own}/nginx.pid; error_log stderr crit;
            events {{ worker_connections 16384; }}
            http {{
                access_log off; keepalive_requests 1000000000; default_type application/json; {places}
                server {{
                    listen 127.0.0.1:{port} {"ssl" if workload.is_tls else ""} {sharing}; ssl_protocols TLSv1.2 TLSv1.3;
                    ssl_certificate {self.certificate.chain}; ssl_certificate_key {self.certificate.key};
                    {self.location(workload)}
                }}
            }}
        """)
        return [machine.program("nginx"), "-e", "stderr", "-c", str(configuration)]

    def location(self, workload: Workload) -> str:
        """The directives that answer."""
        body = self.answers[workload.expected].partition(b"\r\n\r\n")[2]
        text = body.decode().replace("\\", "\\\\").replace("'", "\\'")
        hsts = "add_header Strict-Transport-Security max-age=31536000;" if workload.is_tls else ""
        return (
            f"add_header Cache-Control no-store; add_header X-Content-Type-Options nosniff; {hsts}"
            f"location / {{ return 200 '{text}'; }}"
        )

    def pids(self, process: subprocess.Popen) -> list[int]:
        """Master and worker."""
        return [process.pid, *children(process.pid)]


def user_name() -> str:
    """The user who runs the benchmark."""
    return pwd.getpwuid(os.geteuid()).pw_name
