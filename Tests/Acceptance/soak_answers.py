"""Takes the answers that the clients of a soak get.

While the disk fails, a write may be answered with 50001 or 503 and a read with 50002; nothing else is excused.
"""
import json

from contract import NOT_FOUND, STORED, WRITE_FAILED


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
