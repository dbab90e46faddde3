"""The table of answers for requests with and without a good credential: a list of cases for each mode."""
import random
from dataclasses import dataclass, field

from access import (
    CONFLICT, DENIED, FOREIGN_PAGE, INVALID_TOKEN, MISSING, NONE_IN_PARAMETER, NOTHING, OTHER_USER, PRECONDITION, bearer, fetch,
    found_by, store, token_of, unknown_session,
)

STOLEN = '{"token of":"nobody"}'


@dataclass(frozen=True)
class Case:
    """A GET and a POST with the same credential, and their outcomes. A good POST stores the token of `user`."""
    name: str
    outcome: tuple
    unique_id: object = None
    fields: tuple = ()
    user: str = ""
    # Only one of them if the other would change what further cases expect.
    methods: tuple = ("GET", "POST")

    def requests(self):
        """The method, the bytes and the expected outcome of each request."""
        get, post = self.outcome
        info = token_of(self.user) if self.user else STOLEN
        made = {
            "GET": (fetch(*self.fields, unique_id=self.unique_id), get),
            "POST": (store(info, *self.fields, unique_id=self.unique_id), post)}
        for method in self.methods:
            yield method, *made[method]


@dataclass
class Table:
    """The cases of a mode. Its users have stored their tokens, except for `newcomer`."""
    cases: list = field(default_factory=list)

    def add(self, name, outcome, **options):
        self.cases.append(Case(name, outcome, **options))

    def good(self, name, user, **options):
        self.cases.append(Case(name, found_by(user), user=user, **options))

    def shuffled(self, seed):
        """All requests in a random order: name, method, bytes and outcome."""
        requests = [(f"{case.name}, {method}", method, data, outcome)
                    for case in self.cases for method, data, outcome in case.requests()]
        random.Random(seed).shuffle(requests)
        return requests


# Both are refused before the credential is checked.
INVALID_IDS = {"NUL": b"a\0b", "not UTF-8": b"\xff\xfe"}
# How browsers name the page that causes a request; it matters for credentials that they send by themselves.
FOREIGN_PAGES = {
    "another site": ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site"), "a link": ("Sec-Fetch-Site: cross-site",),
    "an old browser": ("Origin: https://evil.example",), "a sandbox": ("Origin: null",),
    "a neighbour": ("Origin: https://app.localhost", "Sec-Fetch-Site: same-site")}
OWN_PAGES = {"the server's own page": ("Sec-Fetch-Site: same-origin",), "typed": ("Sec-Fetch-Site: none",)}
BASIC = "Authorization: Basic dXNlcjpwYXNzd29yZA=="


def session_table(anna, anna_too, ben, newcomer, expired, revoked, tag):
    """In mode session. `anna_too` is another session of the same user, `tag` the version of Ben's token."""
    table = Table()
    stale, weak = 'If-Match: "1"', f"If-Match: W/{tag}"
    bad = {
        "unknown": unknown_session(), "expired": expired, "revoked": revoked, "too short": anna[:-1], "too long": f"{anna}A",
        "another case": f"TCS{anna[3:]}", "another character": f"{anna[:20]}+{anna[21:]}", "an id": "anna"}
    # In unique_id, where old apps have it
    table.good("session in unique_id", "anna", unique_id=anna)
    table.good("another session in unique_id", "anna", unique_id=anna_too)
    table.good("another user's session in unique_id", "ben", unique_id=ben)
    table.good("session with tags in unique_id", "anna", unique_id=f"<b>{anna[:9]}</b>{anna[9:]}")
    table.add("empty unique_id", NONE_IN_PARAMETER, unique_id="")
    table.add("unique_id of tags", NONE_IN_PARAMETER, unique_id="<b></b>")
    for name, value in {**INVALID_IDS, "too long": b"a" * 1025}.items():
        table.add(f"unique_id with {name}", NONE_IN_PARAMETER, unique_id=value)
    for name, session in bad.items():
        table.add(f"{name} in unique_id", DENIED, unique_id=session)
    table.add("API key in unique_id", DENIED, unique_id="tck_" + anna[4:])
    table.add("nothing stored, session in unique_id", NOTHING, unique_id=newcomer, methods=("GET",))
    table.add("stale tag, session in unique_id", PRECONDITION, unique_id=ben, fields=(stale,))
    # In Authorization
    table.add("no credential", MISSING)
    for name, line in {"scheme in lower case": f"authorization: bearer {anna}", "usual": bearer(anna)}.items():
        table.good(f"session in Authorization, {name}", "anna", fields=(line,))
    table.good("Authorization and an empty unique_id", "anna", unique_id="", fields=(bearer(anna),))
    table.good("Authorization and the user", "anna", unique_id="anna", fields=(bearer(anna),))
    table.good("Authorization and the user with tags", "anna", unique_id="<i>an</i>na", fields=(bearer(anna),))
    table.good("Authorization and the same session", "anna", unique_id=anna, fields=(bearer(anna),))
    for name, session in bad.items():
        table.add(f"{name} in Authorization", INVALID_TOKEN, fields=(bearer(session),))
        table.add(f"{name} in Authorization, beside the user", INVALID_TOKEN, unique_id="anna", fields=(bearer(session),))
    for name, line in {"no token": "Authorization: Bearer", "two tokens": f"{bearer(anna)} {anna}"}.items():
        table.add(f"Authorization, {name}", INVALID_TOKEN, fields=(line,))
    for name, line in {"another scheme": BASIC, "empty": "Authorization:", "no space": f"Authorization: Bearer{anna}"}.items():
        table.add(f"Authorization, {name}", MISSING, fields=(line,))
        table.good(f"Authorization, {name}, session in unique_id", "anna", unique_id=anna, fields=(line,))
    table.add("another user in unique_id", OTHER_USER, unique_id="ben", fields=(bearer(anna),))
    table.add("the user in another case", OTHER_USER, unique_id="Anna", fields=(bearer(anna),))
    table.add("two users' sessions", CONFLICT, unique_id=ben, fields=(bearer(anna),))
    table.add("two sessions of a user", CONFLICT, unique_id=anna_too, fields=(bearer(anna),))
    table.add("two Authorization fields", CONFLICT, fields=(bearer(anna), bearer(ben)))
    table.add("nothing stored, session in Authorization", NOTHING, fields=(bearer(newcomer),), methods=("GET",))
    table.add("stale tag, session in Authorization", PRECONDITION, fields=(bearer(ben), stale))
    table.add("weak tag", PRECONDITION, fields=(bearer(ben), weak))
    table.add("any token, nothing stored", PRECONDITION, fields=(bearer(newcomer), "If-Match: *"))
    table.add("already stored", PRECONDITION, fields=(bearer(ben), "If-None-Match: *"), methods=("POST",))
    # The credential comes before the preconditions.
    table.add("unknown with a stale tag", INVALID_TOKEN, fields=(bearer(bad["unknown"]), stale))
    return table


def bearer_table(issuer, other, is_in_unique_id):
    """In mode bearer. `other` is an issuer with the same name whose keys the server does not know."""
    table = Table()
    anna, again, ben = issuer.token("anna"), issuer.token("anna", jti="2"), issuer.token("ben")
    bad = {
        "expired": issuer.token("anna", exp=1_600_000_000), "foreign key": other.token("anna"),
        "another audience": issuer.token("anna", aud="shop"), "another issuer": issuer.token("anna", iss="https://evil.example"),
        "no user": issuer.token(None), "cut": anna[:-1], "unsigned": anna.rpartition(".")[0] + ".", "no token": "anna",
        "session": unknown_session()}
    table.add("no credential", MISSING)
    table.good("token in Authorization", "anna", fields=(bearer(anna),))
    table.good("another token of the user", "anna", fields=(bearer(again),))
    table.good("another user's token", "ben", fields=(bearer(ben),))
    table.good("token and the user", "anna", unique_id="anna", fields=(bearer(anna),))
    table.good("token and an empty unique_id", "anna", unique_id="", fields=(bearer(anna),))
    for name, token in bad.items():
        table.add(f"{name} in Authorization", INVALID_TOKEN, fields=(bearer(token),))
        table.add(f"{name} in Authorization, beside the user", INVALID_TOKEN, unique_id="anna", fields=(bearer(token),))
    table.add("another scheme", MISSING, fields=(BASIC,))
    table.good("token of 12 KiB", "ben", fields=(bearer(issuer.token("ben", padding="a" * 9000)),))
    table.add("another user in unique_id", OTHER_USER, unique_id="ben", fields=(bearer(anna),))
    table.add("two Authorization fields", CONFLICT, fields=(bearer(anna), bearer(ben)))
    table.add("nothing stored, token in Authorization", NOTHING, fields=(bearer(issuer.token("newcomer")),), methods=("GET",))
    table.add("stale tag", PRECONDITION, fields=(bearer(ben), 'If-Match: "1"'))
    for name, value in INVALID_IDS.items():
        table.add(f"unique_id with {name}", NONE_IN_PARAMETER, unique_id=value)
    if is_in_unique_id:
        table.good("token in unique_id", "anna", unique_id=anna)
        table.good("another user's token in unique_id", "ben", unique_id=ben)
        table.good("the same token twice", "anna", unique_id=anna, fields=(bearer(anna),))
        table.good("another scheme, token in unique_id", "anna", unique_id=anna, fields=(BASIC,))
        table.add("two users' tokens", CONFLICT, unique_id=ben, fields=(bearer(anna),))
        table.add("two tokens of a user", CONFLICT, unique_id=again, fields=(bearer(anna),))
        table.add("empty unique_id", NONE_IN_PARAMETER, unique_id="")
        for name, token in bad.items():
            table.add(f"{name} in unique_id", DENIED, unique_id=token)
        table.add("nothing stored, token in unique_id", NOTHING, unique_id=issuer.token("newcomer"), methods=("GET",))
        table.add("stale tag, token in unique_id", PRECONDITION, unique_id=ben, fields=('If-Match: "1"',))
        table.good("long token in unique_id", "ben", unique_id=issuer.token("ben", padding="a" * 2000))
        table.add("longer than 16 KiB", NONE_IN_PARAMETER, unique_id="a" * 16385, methods=("POST",))
    else:
        table.add("token in unique_id", MISSING, unique_id=anna)
        table.add("empty unique_id", MISSING, unique_id="")
    return table


def header_table():
    """In mode header, for a client that is the trusted proxy."""
    table = Table()
    table.add("no user", MISSING)
    table.add("empty user", MISSING, fields=("Remote-User:",))
    table.add("user in unique_id alone", MISSING, unique_id="anna")
    table.add("another spelling", MISSING, fields=("Remote_User: anna",))
    table.good("user", "anna", fields=("Remote-User: anna",))
    table.good("name in lower case", "anna", fields=("remote-user: anna",))
    table.good("another user", "ben", fields=("Remote-User: ben",))
    table.good("user, and a header spelled with _", "anna", fields=("Remote-User: anna", "Remote_User: ben"))
    table.good("user and unique_id", "anna", unique_id="anna", fields=("Remote-User: anna",))
    table.good("user and an empty unique_id", "anna", unique_id="", fields=("Remote-User: anna",))
    table.good("Authorization does not count", "anna", fields=("Remote-User: anna", bearer("ben")))
    table.add("user that would be stored otherwise", INVALID_TOKEN, fields=("Remote-User: an<b>na",))
    table.add("user that is too long", INVALID_TOKEN, fields=("Remote-User: " + "a" * 1025,))
    table.add("another user in unique_id", OTHER_USER, unique_id="ben", fields=("Remote-User: anna",))
    table.add("two users", CONFLICT, fields=("Remote-User: anna", "Remote-User: ben"))
    for name, fields in FOREIGN_PAGES.items():
        table.add(f"page: {name}", FOREIGN_PAGE, fields=("Remote-User: anna", "X-Forwarded-Proto: https", *fields))
    for name, fields in OWN_PAGES.items():
        table.good(f"page: {name}", "anna", fields=("Remote-User: anna", "X-Forwarded-Proto: https", *fields))
    table.add("nothing stored", NOTHING, fields=("Remote-User: newcomer",), methods=("GET",))
    table.add("stale tag", PRECONDITION, fields=("Remote-User: ben", 'If-Match: "1"'))
    return table


def certificate_table(user, other):
    """In mode certificate, for a client with the certificate of a user."""
    table = Table()
    table.good("certificate", user)
    table.good("certificate and the user", user, unique_id=user)
    table.good("Authorization does not count", user, fields=(bearer("anything"),))
    table.add("another user in unique_id", OTHER_USER, unique_id=other)
    for name, fields in FOREIGN_PAGES.items():
        table.add(f"page: {name}", FOREIGN_PAGE, fields=fields)
    for name, fields in OWN_PAGES.items():
        table.good(f"page: {name}", user, fields=fields)
    table.good("page: the server's own, in an old browser", user, fields=("Origin: https://localhost",))
    table.add("stale tag", PRECONDITION, fields=('If-Match: "1"',))
    return table


# Running

def keep_alive(table, seed):
    """Returns a function that sends all requests over one connection, one after the other."""
    def run(connection):
        for name, method, data, outcome in table.shuffled(seed):
            outcome.check(connection.exchange(data, method), name)
    return run


def pipelined(table, seed, group=16):
    """Returns a function that sends all requests over one connection, many at a time."""
    def run(connection):
        requests = table.shuffled(seed)
        for start in range(0, len(requests), group):
            part = requests[start:start + group]
            connection.send(b"".join(data for _, _, data, _ in part))
            for name, method, _, outcome in part:
                outcome.check(connection.receive(method), name)
    return run


def byte_by_byte(table, seed):
    """Returns a function that sends some requests in small pieces, with the end of one and the start of the next together."""
    def run(connection):
        requests = table.shuffled(seed)[:20]
        data = b"".join(data for _, _, data, _ in requests)
        connection.send_pieces([data[start:start + 61] for start in range(0, len(data), 61)], pause=0.0002)
        for name, method, _, outcome in requests:
            outcome.check(connection.receive(method), name)
    return run


DELIVERIES = {"keep-alive": keep_alive, "pipelined": pipelined, "in pieces": byte_by_byte}

