"""What the API does with tokens and sessions, as in `test_access_api`, with the store on PostgreSQL."""
import pytest

from test_access_api import (
    server_with_api, test_a_deleted_token_is_gone_for_the_app_too, test_a_read_may_have_conditions,
    test_a_session_that_does_not_exist_cannot_be_ended, test_a_user_is_the_same_in_paths_bodies_and_apps,
    test_a_write_says_what_it_replaces,
)

pytestmark = pytest.mark.usefixtures("tables_for_folders")
