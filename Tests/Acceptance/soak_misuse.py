"""What the clients of a soak do that they should not, and how answers are taken while the disk may fail."""
import json

from contract import NOT_FOUND, STORED, WRITE_FAILED
from http_client import get, lines, post

HOST = "Host: localhost"

# Requests that are refused

REFUSED = [
    (lines("GET /token?unique_id=a HTTP/1.1"), 400), (lines("GET /nowhere HTTP/1.1", HOST), 404),
    (lines("CONNECT localhost:443 HTTP/1.1", HOST), 405), (lines("POST /token HTTP/1.1", HOST, "Content-Length: 9000000"), 413),
    (lines(f"GET /token?{'x' * 9_000} HTTP/1.1", HOST), 414), (lines("GET /token HTTP/1.1", HOST, *["X: y"] * 200), 431),
    (lines("GET /token HTTP/9.9", HOST), 505), (b"\x00\x01\x02 nonsense\r\n\r\n", 400),
    (lines("GET /v1/users/a/token HTTP/1.1", HOST, "Authorization: Bearer wrong"), 401),
]


def be_refused(client):
    """Breaks a rule."""
    request, status = client.random.choice(REFUSED)
    response = client.connect(False).exchange(request)
    assert response.status == status or (status == 401 and client.may_refuse(response)), response


def ask_for_nothing(client):
    """Ids that nobody has, and methods that the contract does not have."""
    connection = client.connect()
    for _ in range(5):
        assert connection.exchange(get(f"nobody{client.random.randrange(10 ** 9)}")).body == NOT_FOUND
    assert b"50003" in connection.exchange(lines("PUT /token HTTP/1.1", HOST)).body
    client.keep_session(connection)


# Clients that vanish

def come_and_go(client):
    """Connections without a request, or without a handshake."""
    for _ in range(4):
        connection = client.connect(False)
        connection.reset() if client.random.random() < 0.5 else connection.close()


def break_off(client):
    """Part of a request, or all of it, and then the connection is gone. Such a write may be stored or not."""
    connection = client.connect()
    with client.writing(client.soak.ledger.abandoned) as registers:
        for register in registers:
            number = register.begin_write()
            request = post(register.unique_id, register.value(number))
            whole = client.random.random() < 0.3
            connection.send(request if whole else request[:client.random.randrange(1, len(request))])
            connection.reset() if client.random.random() < 0.5 else connection.close()
    other = client.random.choice(client.soak.ledger.abandoned)
    response = client.connect(False).exchange(get(other.unique_id))
    take_read(client, other, other.begin_read(), response.body)


def leave_answers_unread(client):
    """Asks for a lot and goes."""
    connection = client.connect()
    register = client.random.choice(client.soak.ledger.largest)
    connection.send(get(register.unique_id) * 8)
    if client.random.random() < 0.5:
        connection.receive_raw(100)
    connection.reset()


def spoil_handshake(client):
    """Begins a TLS handshake and resets it, or sends something else."""
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + client.random.randbytes(200)
    begin = client.random.choice([hello, hello[:5], b"\x80\x00 no TLS at all"])
    connection = client.connect(False, at=1)
    connection.send(begin)
    connection.reset() if client.random.random() < 0.7 else connection.close()


def use_the_wrong_protocol(client):
    """Plain HTTP to the TLS listener, which says so."""
    connection = client.connect(False, at=1)
    assert connection.exchange(get("a")).status == 400


# Clients that take their time

def be_idle(client):
    """Stays until the server closes the connection."""
    connection = client.connect()
    assert connection.exchange(get("nobody")).body == NOT_FOUND
    assert not client.wait_for_end(connection)


def never_finish(client):
    """Sends half a request, which is answered with 408."""
    connection = client.connect(False)
    half = client.random.choice([b"GET /token?uni", post("abandoned0", "x" * 500)[:-300]])
    connection.send(half)
    answer = client.wait_for_end(connection)
    assert answer is None or answer.startswith(b"HTTP/1.1 408 "), answer


def never_shake_hands(client):
    """Connects to the TLS listener and says nothing."""
    assert not client.wait_for_end(client.connect(False, at=1))


def read_slowly(client):
    """Reads large answers in small pieces."""
    connection = client.connect(receive_buffer=4096)
    registers = [client.random.choice(client.soak.ledger.large) for _ in range(4)]
    leasts = [register.begin_read() for register in registers]
    connection.send(b"".join(get(register.unique_id) for register in registers))
    for register, least in zip(registers, leasts):
        client.soak.over.wait(0.3)
        take_read(client, register, least, connection.receive().body)


def read_nothing(client):
    """Asks for more than the system takes, and is cut off when it has read nothing for too long."""
    connection = client.connect(False, receive_buffer=4096)
    register = client.random.choice(client.soak.ledger.largest)
    connection.send(get(register.unique_id) * 60)
    if client.soak.over.wait(4):
        return
    # The rest of what the system has taken; then the end, or a reset.
    try:
        while connection.socket.recv(1 << 20):
            pass
    except ConnectionResetError:
        client.soak.count("readers cut off")


def take_write(client, register, number, response):
    """Takes the answer to a POST, or to a PUT or DELETE of an app's server."""
    if client.may_refuse(response):
        client.soak.count("writes failed")
        return
    assert response.status == 200, response
    if response.body == STORED:
        register.end_write(number)
        client.soak.count("writes acknowledged")
        return
    assert response.body == WRITE_FAILED and client.may_fail(), f"{register.unique_id}: {response}"
    client.soak.count("writes failed")


def value_in(body):
    """The token info of an answer to a GET; None if nothing was found."""
    return None if body == NOT_FOUND else json.loads(body)["token_info"]


def take_read(client, register, least, body):
    """Takes the answer to a GET. A read that has failed looks like a token that is gone."""
    value = value_in(body)
    try:
        register.end_read(value, least)
    except AssertionError:
        if value is not None or not client.may_fail():
            raise
        client.soak.count("reads failed")
