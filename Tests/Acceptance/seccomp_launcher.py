"""Replaces itself with a program that may make only the given system calls.

    seccomp_launcher.py FILE PROGRAM ARGUMENTS...

The file holds JSON: {"allowed": [...], "refused": [...]}. Allowed calls work, refused ones fail with EPERM, and any other
one kills the process. Needs Debian's python3-seccomp.
"""
import errno
import json
import os
import sys

import seccomp


def main():
    """Loads the filter and executes the program."""
    with open(sys.argv[1], encoding="utf-8") as file:
        calls = json.load(file)
    rules = seccomp.SyscallFilter(seccomp.KILL_PROCESS)
    for action, names in (seccomp.ALLOW, calls["allowed"]), (seccomp.ERRNO(errno.EPERM), calls["refused"]):
        for name in names:
            # systemd's groups contain the calls of all architectures; those of others have negative numbers here.
            if seccomp.resolve_syscall(seccomp.Arch(), name) >= 0:
                rules.add_rule(action, name)
    rules.load()
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
