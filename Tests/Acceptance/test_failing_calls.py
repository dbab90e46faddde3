"""Each system call of a running server fails, is shortened or delayed once; the server recovers by itself and loses nothing.

A failing test prints a line for each fault, which `--fault` repeats alone.
"""
import pytest

from failing_campaigns import withstand

# How many faults of each phase the plain run tries.
PLAIN = {"post": 50, "get": 30, "tls": 40, "backup": 50, "rekey": 50, "reload": 40, "erase": 40, "checkpoint": 16,
         "record": 30, "remove": 25, "rotate": 25, "renew": 16}


@pytest.mark.parametrize("phase", PLAIN)
def test_a_running_server_withstands_each_failing_call(phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    withstand(phase, None if is_long else PLAIN[phase], failing_calls_library, lasting_certificate, public_folder, fault)
