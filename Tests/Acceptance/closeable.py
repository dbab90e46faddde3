"""Programs and networks of tests that have to be ended, also when they did not come up."""
import contextlib


class Closeable:
    """Something with a method `close`, which is called at the end of a `with`."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    @contextlib.contextmanager
    def closed_on_failure(self):
        """Closes it if the statements in the `with` fail; an object whose `__init__` fails cannot be closed by its user."""
        try:
            yield
        except BaseException:
            self.close()
            raise
