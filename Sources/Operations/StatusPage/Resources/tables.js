// The cards below the charts: facts, and tables with a row for each code or loop.

// The time over which the rates in tables are taken.
const RATE_SECONDS = 5;

// The counts of the answers of /status in the last seconds, which show how fast each count grows.
class Growth {
  constructor() {
    this.earlier = [];
  }

  // counts: by name. A name that is missing in an earlier answer has grown from 0.
  add(time, counts) {
    this.earlier.push({ time, counts });
    while (this.earlier[0].time < time - RATE_SECONDS - 0.5 || this.earlier.length > 10) this.earlier.shift();
  }

  // By how much a count grows in a second.
  rate(name) {
    const [before, now] = [this.earlier[0], this.earlier.at(-1)];
    if (before === now) return NaN;
    return Math.max(0, (now.counts[name] ?? 0) - (before.counts[name] ?? 0)) / (now.time - before.time);
  }

  clear() {
    this.earlier = [];
  }
}

// Formats a figure that not every store reports; the row is left out if this one does not.
const known = (show, value, time) => isMissing(value) ? null : show(value, time);

function backup({ backup, time }) {
  if (!backup) return "none yet";
  const age = backup.last_success === undefined ? "none succeeded" : `${span(Math.max(0, time - backup.last_success))} ago`;
  return backup.successful ? age : `the last has failed, before: ${age}`;
}

function walk({ ended_at, damaged, progress }, time) {
  const present = `the present one at ${percent(progress)}`;
  const last = ended_at === undefined ? "none has ended" : `${span(Math.max(0, time - ended_at))} ago`;
  return [last, damaged === 0 ? [] : `${number(damaged)} damaged rows`, present].flat().join("\n");
}

const ROLES = {
  standby: "standby", former: "was the primary before", refused: "is not used, the log says why",
  unreachable: "cannot be reached", unknown: "not asked yet",
};

const FACTS = [
  ["Store", [
    ["tokens", status => known(number, status.store.tokens)],
    ["database", status => known(bytes, status.store.database_bytes)],
    ["WAL", status => known(bytes, status.store.wal_bytes)],
    ["free on the disk", status => known(({ free_bytes, bytes: all }) => `${bytes(free_bytes)} of ${bytes(all)}`, status.disk)],
    ["last backup", status => status.store.database_bytes === undefined ? null : backup(status)],
    ["written", status => number(status.store.writes)],
    ["expired", status => number(status.store.expired)],
    ["failures", status => number(status.store.failures)],
    ["rows that cannot be decrypted", status => number(status.store.unreadable)],
    ["last walk over all rows", ({ store, time }) => known(walk, store.walk, time)],
  ]],
  ["Database", [
    ["primary", ({ database }) => database.hosts.find(({ role }) => role === "primary")?.name ?? "none was found"],
    ["other hosts", ({ database }) => {
      const others = database.hosts.filter(({ role }) => role !== "primary");
      return others.length === 0 ? "none" : others.map(({ name, role }) => `${name}, ${ROLES[role]}`).join("\n");
    }],
    ["connections, of wanted", ({ database }) =>
      `${number(database.connections.open)} of ${number(database.connections.wanted)}`],
    ["waiting, of at most", ({ database }) => `${number(database.waiting_requests)} of ${number(database.request_limit)}`],
    ["software", ({ database }) => known(({ software }) => software, database.hosts.find(({ role }) => role === "primary"))],
    ["durability", ({ database }) => database.durability],
    ["TLS", ({ database }) => known(encrypted => encrypted ? "on" : "off", database.encrypted)],
    ["failovers", ({ database }) => number(database.failovers)],
    ["last failover", ({ database }) => known(moment, database.last_failover)],
    ["sent again", ({ database }) => number(database.retries)],
    ["not acknowledged", ({ database }) => number(database.unacknowledged)],
  ], isElsewhere],
  ["Connections", [
    ["open, of at most", status => `${number(status.connections.open)} of ${number(status.connections.limit)}`],
    ["accepted", status => number(status.connections.accepted)],
    ["refused", status => number(status.connections.refused)],
    ["first certificate expires", status => {
      if (!status.certificate) return "no TLS here";
      const left = Math.floor((status.certificate.expires_at - status.time) / 86400);
      return `${date(status.certificate.expires_at)}, ${left < 0 ? "it has expired" : `in${gap}${left}${gap}d`}`;
    }],
    ["audit log", status => {
      if (!status.audit) return "off";
      return status.audit.failing ? "cannot be written" : `line ${number(status.audit.sequence)}, head ${status.audit.head}`;
    }],
  ]],
  ["Process", [
    ["processor time", status => span(status.process.processor_seconds)],
    ["descriptors", status => `${number(status.process.descriptors)} of ${number(status.process.descriptor_limit)}`],
    ["threads", status => number(status.process.threads)],
    ["started", status => moment(status.started_at)],
    ["store", status => status.store_software],
    ["OpenSSL", status => status.openssl],
  ]],
  ["Access", [
    ["mode", status => status.access.mode],
    ["sessions", status => known(number, status.store.sessions)],
    ["in memory", status => number(status.access.cached_sessions)],
    ["not served", status => {
      const reasons = Object.entries(status.access.failures).sort(([, one], [, other]) => other - one);
      if (reasons.length === 0) return "none";
      return reasons.map(([reason, count]) => `${reason.replaceAll("_", " ")} ${number(count)}`).join("\n");
    }],
  ], hasAccess],
];

// Of the codes and, times 100, the statuses with which a request fails.
const MEANINGS = {
  30001: "invalid id or token", 50001: "not stored", 50003: "method not allowed",
  40000: "malformed request", 40100: "no valid credential", 40300: "not allowed", 40400: "no such path",
  40500: "method not allowed here", 40800: "client too slow", 41200: "If-Match or If-None-Match fails", 41300: "body too large",
  41400: "request line too long", 41700: "unknown expectation", 42100: "wrong host", 42800: "neither If-Match nor If-None-Match",
  42900: "too many failures", 43100: "headers too large", 50000: "fault of the server", 50100: "unknown transfer coding",
  50300: "too busy, or the store or the audit log fails", 50500: "other version of HTTP",
};

const TABLES = [
  { card: "errors", title: "Errors by code", columns: ["code", "meaning", "a second", "in all"], empty: "none since the start",
    rows: status => Object.entries(status.requests.by_code).map(([name, count]) => ({ name, count })).sort((one, other) => other.count - one.count),
    cells: (row, growth) => [row.name, MEANINGS[row.name], short(growth.rate(row.name)), short(row.count)] },
  { card: "loops", title: "Loops", columns: ["thread", "connections", "requests/s", "busy"],
    rows: status => status.loops.map(({ name, connections, requests, processor_seconds }) =>
      ({ name, count: requests, busy: processor_seconds, connections })),
    cells: (row, growth) => [row.name, number(row.connections), short(growth.rate(row.name)), percent(growth.rate(`${row.name} busy`))] },
];

class FactCard {
  constructor(parent, [title, rows, concerns]) {
    this.concerns = concerns;
    this.card = element(parent, "section", { class: "card fact" });
    this.card.hidden = Boolean(concerns);
    element(this.card, "h2", {}, title);
    const list = element(this.card, "dl");
    this.rows = rows.map(([label, show]) => {
      const row = element(list, "div", { class: "row" });
      element(row, "dt", {}, label);
      return { show, row, value: element(row, "dd", {}, nothing) };
    });
  }

  show(status) {
    if (this.concerns) this.card.hidden = !this.concerns(status);
    if (this.card.hidden) return;
    for (const { show, row, value } of this.rows) {
      const text = show(status);
      row.hidden = text === null;
      setText(value, text ?? "");
    }
  }
}

class TableCard {
  constructor(parent, { card: name, title, columns, rows, cells, empty }) {
    Object.assign(this, { rowsOf: rows, cellsOf: cells, growth: new Growth(), shown: new Map() });
    const card = element(parent, "section", { class: "card", id: name });
    const table = element(card, "table");
    element(table, "caption", {}, title);
    const head = element(element(table, "thead"), "tr");
    columns.forEach(column => element(head, "th", { scope: "col" }, column));
    this.body = element(table, "tbody");
    this.empty = element(card, "p", { class: "empty" }, empty ?? "");
  }

  show(status) {
    const rows = this.rowsOf(status);
    const counts = {};
    for (const { name, count, busy } of rows) Object.assign(counts, { [name]: count, [`${name} busy`]: busy });
    this.growth.add(status.time, counts);
    this.empty.hidden = rows.length > 0;
    this.body.parentElement.classList.toggle("is-empty", rows.length === 0);
    for (const name of [...this.shown.keys()].filter(name => !rows.some(row => row.name === name))) {
      this.shown.get(name)[0].parentElement.remove();
      this.shown.delete(name);
    }
    for (const row of rows) {
      const texts = this.cellsOf(row, this.growth);
      if (!this.shown.has(row.name)) {
        const line = element(this.body, "tr");
        this.shown.set(row.name, texts.map((_, index) =>
          element(line, index === 0 ? "th" : "td", index === 0 ? { scope: "row" } : {})));
      }
      this.shown.get(row.name).forEach((cell, index) => setText(cell, texts[index]));
    }
  }

  clear() {
    this.growth.clear();
  }
}

const tables = TABLES.map(table => new TableCard(byID("cards"), table));
const [store, database, ...others] = FACTS;
const facts = [store, database].map(fact => new FactCard(byID("cards"), fact));

// The latest events, the newest first.
const eventCard = element(byID("cards"), "section", { class: "card" });
element(eventCard, "h2", { id: "events-title" }, "Events");
const eventList = element(eventCard, "ol", { class: "events", "aria-labelledby": "events-title" });
const EVENTS_SHOWN = 8;

// The text of an event behind the word for its kind, with which the text may begin itself.
function afterKind({ kind, text }) {
  const rest = text.replace(/^(a|the) /, "");
  return rest.startsWith(`${kind} `) ? rest.slice(kind.length + 1) : text;
}

// The day on which the events were shown: those of other days have a date.
let eventsDay = "";

function showEvents(events, { position, time }) {
  eventsDay = date(time);
  eventList.replaceChildren();
  for (const event of events.slice(-EVENTS_SHOWN).reverse()) {
    const item = element(eventList, "li", event.failed ? { class: "failed" } : {});
    const when = time - (position - event.position);
    element(item, "time", {}, date(when) === eventsDay ? clock(when) : moment(when));
    item.append(" ");
    element(item, "b", {}, event.kind);
    item.append(" ");
    element(item, "span", {}, afterKind(event));
  }
}

facts.push(...others.map(fact => new FactCard(byID("cards"), fact)));
