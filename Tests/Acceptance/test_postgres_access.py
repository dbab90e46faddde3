"""What `test_access_api` and `test_access_sessions` check, with the store on PostgreSQL."""
import pytest

from test_access_api import (
    server_with_api, test_a_deleted_token_is_gone_for_the_app_too, test_a_read_may_have_conditions,
    test_a_user_is_the_same_in_paths_bodies_and_apps, test_a_write_says_what_it_replaces,
)
from test_access_sessions import *

pytestmark = pytest.mark.usefixtures("tables_for_folders")
# Their commands are those of the other program, and have no URL in their settings.
del test_commands_make_list_and_end_sessions_of_a_running_server
del test_an_erased_user_stays_erased_when_an_older_backup_is_restored
