"""What `test_clocks` checks of tokens that no wrong clock may hide, with the store on PostgreSQL."""
import pytest

from test_clocks import clock, serve_by, test_a_clock_that_is_set_hides_no_token, test_what_is_written_by_a_clock_that_is_behind_stays

pytestmark = pytest.mark.usefixtures("tables_for_folders")
