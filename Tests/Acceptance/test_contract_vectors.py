"""The golden vectors of the contract, each request sent whole and in pieces."""
import base64
import json
import random
import uuid
from pathlib import Path

import pytest

from http_client import Connection

VECTORS = Path(__file__).resolve().parent.parent / "Fixtures" / "vectors.jsonl"
CASES = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines() if line]

# The headers of all answers in mode open, in their order. Modes with users add some.
HEADERS = ["content-type", "cache-control", "x-content-type-options", "date", "strict-transport-security", "x-request-id", "location",
           "allow", "connection", "content-length"]


def prepared(request, server, run_key):
    """The bytes of a vector's request; placeholders of host and path are replaced in the head only."""
    request = request.replace("RUNKEY00", run_key)
    head, separator, body = request.partition("\r\n\r\n")
    head = head.replace("{HOST}", f"127.0.0.1:{server.address[1]}").replace("{PATH}", "/token.php")
    return (head + separator + body).encode("latin-1")


def pieces_of(data, generator, count):
    """The data cut at random places."""
    cuts = sorted(generator.sample(range(1, len(data)), count - 1))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)])]


def check(case, server, pieces):
    """Sends the requests of a case, each in so many pieces, and compares the answers with those that were recorded."""
    run_key = uuid.uuid4().hex[:8]
    generator = random.Random(case["id"])
    for number, step in enumerate(case["steps"], 1):
        data = prepared(step["request"], server, run_key)
        with Connection(server.address) as connection:
            connection.send_pieces([data] if pieces == 1 else pieces_of(data, generator, pieces), pause=0.0005)
            response = connection.receive(data.split(b" ", 1)[0].decode("latin-1"))
            rest = connection.receive_to_end()
        expected = step["expect"]
        place = f"{case['note']}, step {number}: {step['note']}"
        assert response.status == expected["status"], place
        assert response.headers.get("location") == expected["location"], place
        assert list(response.headers) == [name for name in HEADERS if name in response.headers], place
        if expected["body"] is not None:
            assert response.body == base64.b64decode(expected["body"]), place
        assert rest == b"", place


@pytest.mark.parametrize("delivery", ["whole", "pieces"])
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case_is_answered_as_recorded(plain, case, delivery):
    check(case, plain, pieces=1 if delivery == "whole" else 5)
