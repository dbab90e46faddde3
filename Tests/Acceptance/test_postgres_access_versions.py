"""The tests of `test_access_versions` with the store on PostgreSQL."""
import pytest

from test_access_versions import *

pytestmark = pytest.mark.usefixtures("tables_for_folders")
