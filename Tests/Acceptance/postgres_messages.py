"""Messages of PostgreSQL's protocol (version 3), as far as a proxy needs to tell them apart.

https://www.postgresql.org/docs/15/protocol-message-formats.html
"""
import struct

SSL_REQUEST, ENCRYPTION_REQUEST = 80877103, 80877104


class Messages:
    """Takes the bytes of one direction of a connection apart; the other direction has its own.

    What follows an agreement on encryption cannot be read, and passes as it comes.
    """

    def __init__(self):
        self.unread = b""
        self.is_opaque = False

    def take(self, data):
        """The messages that are complete with these bytes, as kind, content and bytes; both are empty if they cannot be read."""
        self.unread += data
        found = []
        while self.unread:
            if self.is_opaque:
                message, self.unread = ("", b"", self.unread), b""
            else:
                message = self.first()
            if message is None:
                break
            found.append(message)
        return found

    def first(self):
        """Removes the first message, if it is complete."""
        raise NotImplementedError

    def whole(self, size, kind, start):
        """Removes a message whose content begins at a position, if all of it is there."""
        if len(self.unread) < size:
            return None
        message, self.unread = self.unread[:size], self.unread[size:]
        return kind, message[start:], message

    def usual(self):
        """A message with its kind in the first byte and its length in the next four, which it does not count."""
        if len(self.unread) < 5:
            return None
        return self.whole(1 + struct.unpack_from("!I", self.unread, 1)[0], chr(self.unread[0]), 5)


class ClientMessages(Messages):
    """What a client sends. The first messages have no kind; it is empty here."""

    def __init__(self):
        super().__init__()
        self.has_started = False
        # Questions for encryption, each of which the server answers with a single byte.
        self.questions = 0

    def first(self):
        if self.has_started:
            return self.usual()
        if len(self.unread) < 4:
            return None
        message = self.whole(struct.unpack_from("!I", self.unread)[0], "", 4)
        if message:
            if struct.unpack_from("!I", message[1])[0] in (SSL_REQUEST, ENCRYPTION_REQUEST):
                self.questions += 1
            else:
                self.has_started = True
        return message


class ServerMessages(Messages):
    """What a server sends to a client."""

    def __init__(self, client):
        super().__init__()
        self.client = client

    def first(self):
        if self.client.questions == 0:
            return self.usual()
        self.client.questions -= 1
        if self.unread[:1] in (b"S", b"G"):
            self.is_opaque = self.client.is_opaque = True
        return self.whole(1, "", 1)
