"""The status page with an admin key: reload, drain, and one token looked up and deleted, in a real browser."""
import json

import pytest

from contract import NOT_FOUND, STORED, fresh_id
from http_client import exchange, get, post
from operators import UNKNOWN, Operators
from server_process import until
from test_page import opened, state

TOKEN = "the-token-info-that-nobody-sees"


@pytest.fixture(name="page")
def page_in_a_browser(operators, tmp_path):
    with opened(operators.server, tmp_path / "browser", 1280, 800, "light") as browser:
        yield browser


def shown(page, name):
    return page.evaluate(f"!byID('{name}').hidden")


def result(page):
    """What was announced last."""
    return page.evaluate("byID('result').textContent")


def fill(page, field, text):
    page.evaluate(f"byID({json.dumps(field)}).value = {json.dumps(text)};"
                  f"byID({json.dumps(field)}).dispatchEvent(new Event('input', {{ bubbles: true }}))")


def press(page, name):
    page.evaluate(f"byID({json.dumps(name)}).click()")


def use_key(page, secret):
    fill(page, "key", secret)
    page.evaluate("steering.keyForm.requestSubmit()")


def look_up(page, unique_id):
    fill(page, "id", unique_id)
    page.evaluate("steering.idForm.requestSubmit()")


def steer(page, operators):
    use_key(page, operators.keys["steer"])
    until(lambda: shown(page, "actions"))


def test_a_key_opens_what_it_permits_and_is_forgotten(operators, page):
    assert (shown(page, "key-form"), shown(page, "actions")) == (True, False)
    use_key(page, UNKNOWN)
    until(lambda: "It did not work: " in result(page))
    assert page.evaluate("key.secret") is None
    page.problems.clear()
    use_key(page, operators.keys["read"])
    until(lambda: shown(page, "key-known"))
    assert "key-to-read" in page.evaluate("byID('key-known').textContent")
    assert (shown(page, "key-form"), shown(page, "actions")) == (False, False)
    press(page, "forget")
    steer(page, operators)
    page.call("Page.reload")
    until(lambda: state(page) == "ready" and shown(page, "actions"))
    press(page, "forget")
    assert (shown(page, "key-form"), shown(page, "actions"), page.evaluate("sessionStorage.length")) == (True, False, 0)
    assert page.problems == []


def test_the_settings_are_reloaded(operators, page):
    steer(page, operators)
    press(page, "reload")
    until(lambda: result(page).startswith("Reloaded: "))
    until(lambda: "key-to-steer" in page.evaluate("eventList.textContent"))
    assert page.problems == []


def test_one_token_is_looked_up_and_deleted_and_never_shown(operators, page):
    unique_id = fresh_id()
    server = operators.server
    assert exchange(server.address, post(unique_id, TOKEN)).body == STORED
    steer(page, operators)
    look_up(page, "nobody")
    until(lambda: result(page) == "There is no token under this id.")
    assert not shown(page, "found") and not shown(page, "delete")
    look_up(page, unique_id)
    until(lambda: shown(page, "found"))
    found = page.evaluate("byID('found').textContent")
    assert f"{len(TOKEN)}\u00a0B" in found and "never" in found
    # Another id in the field is not the one that was looked up.
    fill(page, "id", unique_id + "x")
    assert not shown(page, "delete")
    look_up(page, unique_id)
    until(lambda: shown(page, "delete"))
    press(page, "delete")
    until(lambda: page.evaluate("byID('confirm').open"))
    press(page, "confirm-cancel")
    until(lambda: result(page) == "Not deleted.")
    assert exchange(server.address, get(unique_id)).status == 200
    assert TOKEN in exchange(server.address, get(unique_id)).body.decode()
    press(page, "delete")
    until(lambda: page.evaluate("byID('confirm').open"))
    press(page, "confirm-action")
    until(lambda: result(page) == "The token is deleted.")
    assert exchange(server.address, get(unique_id)).body == NOT_FOUND
    # Neither the id nor the token nor the key is anywhere that stays.
    assert page.evaluate("byID('id').value") == ""
    kept = page.evaluate("document.documentElement.outerHTML + JSON.stringify(localStorage) + location.href")
    assert not [secret for secret in (unique_id, TOKEN, operators.keys["steer"]) if secret in kept]
    entries = page.evaluate("JSON.stringify(performance.getEntries().map(({ name }) => name))")
    assert unique_id not in entries and operators.keys["steer"] not in entries
    assert page.evaluate("window.history.length") <= 2
    assert page.problems == []


def test_the_server_is_drained_after_a_question(operators, page):
    steer(page, operators)
    press(page, "drain")
    until(lambda: page.evaluate("byID('confirm').open"))
    assert page.evaluate("document.activeElement.id") == "confirm-cancel"
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape", code="Escape", windowsVirtualKeyCode=27)
    until(lambda: result(page) == "Not drained.")
    assert operators.server.is_running()
    operators.server.was_ended = True
    press(page, "drain")
    until(lambda: page.evaluate("byID('confirm').open"))
    press(page, "confirm-action")
    assert operators.server.wait() == 0
    until(lambda: state(page) == "unreachable")


def test_a_server_that_is_read_with_a_key_shows_nothing_before(serve, tmp_path):
    operators = Operators(serve, tmp_path / "operators", read="key")
    with opened(operators.server, tmp_path / "browser", 1280, 800, "light", until_state="locked") as page:
        assert page.evaluate("document.body.classList.contains('locked')")
        assert "admin key" in page.evaluate("byID('state').textContent") and "admin key" in result(page)
        assert page.evaluate("document.activeElement.id") == "key"
        assert page.evaluate("byID('panels').offsetHeight") == 0
        page.problems.clear()
        use_key(page, operators.keys["read"])
        until(lambda: state(page) == "ready")
        until(lambda: page.evaluate("charts[0].view ? byID('panels').offsetHeight : 0") > 100)
        assert not shown(page, "actions") and page.problems == []
        press(page, "forget")
        until(lambda: state(page) == "locked")
        assert page.evaluate("byID('panels').offsetHeight") == 0
