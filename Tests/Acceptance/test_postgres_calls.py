"""Each system call of a server on PostgreSQL fails, is shortened or delayed once; it recovers by itself and loses nothing.

A failing test prints a line for each fault, which `--fault` repeats alone.
"""
import pytest

from failing_campaigns import withstand

pytestmark = pytest.mark.usefixtures("tables_for_folders")

# How many faults of each phase the plain run tries.
PLAIN = {"insert": 40, "select": 30, "reconnect": 30}


@pytest.mark.parametrize("phase", PLAIN)
def test_a_server_on_postgres_withstands_each_failing_call(phase, failing_calls_library, lasting_certificate, public_folder, is_long, fault):
    withstand(phase, None if is_long else PLAIN[phase], failing_calls_library, lasting_certificate, public_folder, fault)
