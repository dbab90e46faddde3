"""The setting `json_bodies`: parameters in bodies of type application/json, off by default."""
import json

import pytest

from contract import INVALID_INPUT, STORED, found, fresh_id
from http_client import exchange, get, lines
from shared_servers import shared_server

JSON = "Content-Type: application/json"


json_server_fixture = shared_server("json_server", {"json_bodies": "on"}, scope="module")


def post_json(server, body, query="", field=JSON):
    """The answer to a POST with this body."""
    data = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    head = (f"POST /token{query} HTTP/1.1", "Host: localhost", field, f"Content-Length: {len(data)}")
    return exchange(server.address, lines(*head, body=data)).body


def stored(server, unique_id):
    return exchange(server.address, get(unique_id)).body


# The JSON of token_info, and the value that is stored
VALUES = {
    "string": ('"abc"', "abc"),
    "empty string": ('""', ""),
    "escapes": (r'"\"\\\/\b\f\n\r\t"', '"\\/\b\f\n\r\t'),
    "unicode escapes": (r'"\u00e4\u20AC"', "\u00e4\u20ac"),
    "surrogate pair": (r'"\ud83d\uDE00"', "\U0001f600"),
    "raw UTF-8": ('"\u00e4\u20ac\U0001f600"', "\u00e4\u20ac\U0001f600"),
    "plus and ampersand": ('"a+b&c=d%20"', "a+b&c=d%20"),
    "object": ('{"a":1}', '{"a":1}'),
    "empty object": ("{}", "{}"),
    "object as its own text": ('{ "b" : [1, 2.50, -1e+3, {}, []],\n"a":null, "\\u0041":"\\/" }',
                               '{ "b" : [1, 2.50, -1e+3, {}, []],\n"a":null, "\\u0041":"\\/" }'),
    "object in objects": ('{"a":{"a":{"a":[[[true,false]]]}}}', '{"a":{"a":{"a":[[[true,false]]]}}}'),
    "tags are removed": ('"a<b>c"', "ac"),
    "tags are removed from an object": ('{"a":"<b>c"}', '{"a":"c"}'),
}


@pytest.mark.parametrize("text, value", VALUES.values(), ids=VALUES)
def test_a_value_in_json_is_stored(json_server, text, value):
    unique_id = fresh_id()
    assert post_json(json_server, f'{{"unique_id": "{unique_id}", "token_info": {text}}}') == STORED
    assert stored(json_server, unique_id) == found(value)


def test_other_members_white_space_and_order_do_not_matter(json_server):
    unique_id = fresh_id()
    body = f'\r\n\t {{"x":[1,{{"unique_id":"a"}}],"token_info":"abc" ,"unique_id" : "{unique_id}", "y":null}}\n '
    assert post_json(json_server, body) == STORED
    assert stored(json_server, unique_id) == found("abc")


def test_an_escaped_name_and_the_last_of_equal_names_count(json_server):
    unique_id = fresh_id()
    body = f'{{"unique_id":"other","token_info":"a","unique\\u005fid":"{unique_id}","token_info":"b"}}'
    assert post_json(json_server, body) == STORED
    assert stored(json_server, unique_id) == found("b")


def test_the_body_wins_over_the_query_and_the_query_fills_in(json_server):
    unique_id = fresh_id()
    query = f"?unique_id={unique_id}&token_info=query"
    assert post_json(json_server, '{"token_info":"body"}', query) == STORED
    assert stored(json_server, unique_id) == found("body")
    assert post_json(json_server, "{}", query) == STORED
    assert stored(json_server, unique_id) == found("query")


@pytest.mark.parametrize("field", ["Content-Type: application/json; charset=utf-8", "content-type: Application/JSON"])
def test_the_type_is_recognised_with_parameters_and_in_any_case(json_server, field):
    body = json.dumps({"unique_id": fresh_id(), "token_info": "a"})
    assert post_json(json_server, body, field=field) == STORED


MALFORMED = {
    "empty": "",
    "no object": '["unique_id","token_info"]',
    "string": '"unique_id"',
    "open object": '{"unique_id":"ID","token_info":"a"',
    "something after the object": '{"unique_id":"ID","token_info":"a"}x',
    "two objects": '{"unique_id":"ID","token_info":"a"}{}',
    "trailing comma": '{"unique_id":"ID","token_info":"a",}',
    "missing comma": '{"unique_id":"ID" "token_info":"a"}',
    "missing colon": '{"unique_id":"ID","token_info" "a"}',
    "name without quotes": '{unique_id:"ID","token_info":"a"}',
    "single quotes": "{'unique_id':'ID','token_info':'a'}",
    "comment": '{"unique_id":"ID",/**/"token_info":"a"}',
    "number as token_info": '{"unique_id":"ID","token_info":1}',
    "list as token_info": '{"unique_id":"ID","token_info":["a"]}',
    "null as token_info": '{"unique_id":"ID","token_info":null}',
    "number as unique_id": '{"unique_id":1,"token_info":"a"}',
    "object as unique_id": '{"unique_id":{},"token_info":"a"}',
    "unknown escape": r'{"unique_id":"ID","token_info":"\x"}',
    "short unicode escape": r'{"unique_id":"ID","token_info":"\u00e"}',
    "high surrogate alone": r'{"unique_id":"ID","token_info":"\ud83d"}',
    "low surrogate alone": r'{"unique_id":"ID","token_info":"\ude00"}',
    "two high surrogates": r'{"unique_id":"ID","token_info":"\ud83d\ud83d"}',
    "line end in a string": '{"unique_id":"ID","token_info":"a\nb"}',
    "NUL in a string": '{"unique_id":"ID","token_info":"a\0b"}',
    "open string": '{"unique_id":"ID","token_info":"a',
    "number with a leading zero": '{"unique_id":"ID","token_info":"a","x":01}',
    "number without digits": '{"unique_id":"ID","token_info":"a","x":-}',
    "number that ends with a point": '{"unique_id":"ID","token_info":"a","x":1.}',
    "unknown word": '{"unique_id":"ID","token_info":"a","x":nul}',
    "malformed object as token_info": '{"unique_id":"ID","token_info":{"a":}}',
    "byte order mark": '\ufeff{"unique_id":"ID","token_info":"a"}',
    "nested beyond reason": '{"unique_id":"ID","token_info":"a","x":' + "[" * 50_000 + "]" * 50_000 + "}",
    "objects nested beyond reason": '{"unique_id":"ID","token_info":' + '{"a":' * 50_000 + "1" + "}" * 50_001,
    "surrogate as raw bytes": '{"unique_id":"ID","token_info":"\ud83d"}',
    "Latin-1": '{"unique_id":"ID","token_info":"ä"}'.encode("latin-1"),
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
def test_malformed_json_has_no_fields(json_server, body):
    unique_id = fresh_id()
    body = body.replace(b"ID", unique_id.encode()) if isinstance(body, bytes) else body.replace("ID", unique_id)
    before = stored(json_server, unique_id)
    assert post_json(json_server, body) == INVALID_INPUT
    assert stored(json_server, unique_id) == before


def test_malformed_json_leaves_the_fields_of_the_query(json_server):
    unique_id = fresh_id()
    body = '{"unique_id":"other","token_info":"a",}'
    assert post_json(json_server, body, f"?unique_id={unique_id}&token_info=query") == STORED
    assert stored(json_server, unique_id) == found("query")


def test_without_the_setting_a_json_body_is_ignored(plain):
    body = json.dumps({"unique_id": fresh_id(), "token_info": "a"})
    assert post_json(plain, body) == INVALID_INPUT
