"""A server that keeps its tokens in PostgreSQL, and whose connections to it meet failing calls."""
from failing_worlds import World
from server_process import Server


class PostgresWorld(World):
    """A server with tables of its own; to be used with the fixture `tables_for_folders`."""
    lasting_threads = ("loop 0", "administration")
    # Connections of the administration: it makes one more if two things are done at once, and keeps it.
    spare_descriptors = 2

    @property
    def database(self):
        return Server.place(self.server.data).database

    def disconnect(self):
        """Has the database end the server's connections."""
        assert self.database.server.terminate(f"usename = '{self.database.user}'") > 0
