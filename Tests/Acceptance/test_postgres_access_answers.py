"""The tests of `test_access_answers` with the store on PostgreSQL."""
import pytest

from test_access_answers import *

pytestmark = pytest.mark.usefixtures("tables_for_folders")
