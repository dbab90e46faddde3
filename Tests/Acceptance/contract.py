"""The answers of the contract, byte for byte."""
import json
import uuid

STORED = b'{"status":"true"}'


def quoted(text):
    """A JSON string as PHP writes it: unlike Python, PHP escapes `/` and does not escape DEL."""
    return "\x7f".join(json.dumps(part)[1:-1].replace("/", "\\/") for part in text.split("\x7f")).join('""')


def found(token_info):
    """The answer to a GET that finds this text."""
    return f'{{"status":"true","token_info":{quoted(token_info)}}}'.encode()


def error(code, message):
    """An error of the contract."""
    return f'{{"status":"false","errorCode":"{code}","errorMessage":{quoted(message)}}}'.encode()


INVALID_INPUT = error(30001, "Invalid data input.")
WRITE_FAILED = error(50001, "Could not write file contents.")
NOT_FOUND = error(50002, "Could not read file contents or data empty.")


def unsupported(method):
    """The answer to a method other than GET, HEAD and POST."""
    return error(50003, f"Unsupported method: {method}")


def fresh_id():
    """An id that no other test uses."""
    return uuid.uuid4().hex


def check_http_error(response, status):
    """Checks an error of HTTP in the contract's shape and returns its message."""
    assert response.status == status, response
    fields = json.loads(response.body)
    assert list(fields) == ["status", "errorCode", "errorMessage"]
    assert (fields["status"], fields["errorCode"]) == ("false", str(status * 100))
    assert response.body == error(status * 100, fields["errorMessage"])
    return fields["errorMessage"]
