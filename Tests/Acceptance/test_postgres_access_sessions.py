"""The tests of `test_access_sessions` with the store on PostgreSQL."""
import pytest

from test_access_sessions import *

pytestmark = pytest.mark.usefixtures("tables_for_folders")
# Its commands are those of the other program, and have no URL in their settings.
del test_commands_make_list_and_end_sessions_of_a_running_server
