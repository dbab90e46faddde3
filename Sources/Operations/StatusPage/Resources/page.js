// Requests /status once a second and shows the figures.

const byID = id => document.getElementById(id);
// Milliseconds without an answer after which the server counts as unreachable.
const REQUEST_TIMEOUT = 3000;
// For users who prefer reduced motion, the charts are redrawn only every ten seconds; the figures still change every second.
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

// A store on this machine measures other things than one in a database on others.
const isHere = status => !status.database;
const isElsewhere = status => status.database;

const panels = [
  { title: "Requests a second", format: short, least: 1,
    series: [["GET", "get"], ["POST", "post"], ["errors", "errors"]] },
  { title: "GET, time in the server", format: seconds, series: [["p50", "get_p50"], ["p99", "get_p99"]] },
  { title: "POST, until it is on disk", format: seconds, series: [["p50", "post_p50"], ["p99", "post_p99"]] },
  { title: "Answered from memory", format: percent, top: 1, series: [["of reads", "hit_ratio"]], concerns: isHere },
  { title: "Commit to the disk", format: seconds,
    series: [["p50", "commit_p50"], ["p99", "commit_p99"], ["sync p99", "sync_p99"]], concerns: isHere },
  { title: "To the database and back", format: seconds,
    series: [["read p50", "read_p50"], ["read p99", "read_p99"], ["write p99", "write_p99"]], concerns: isElsewhere },
  { title: "Waiting for the database", format: short, least: 10,
    series: [["requests", "waiting"], ["sent again a second", "retries"]], concerns: isElsewhere },
  { title: "Connections", format: short, least: 10,
    series: [["open", "connections"], ["refused a second", "refused"]] },
  { title: "Memory", format: bytes, isBinary: true, series: [["in use", "memory"], ["answers", "cache_bytes"]] },
  { title: "Processor", format: percent, least: 1, series: [["of one core", "processor"]] },
  { title: "Tokens stored", format: short, least: 10,
    series: [["tokens", "tokens"], ["on disk", "store_bytes", bytes]], concerns: isHere },
].map(panel => new Panel(byID("panels"), panel));

// Formats a figure that not every store reports; the row is left out if this one does not.
const known = (show, value) => value === undefined ? null : show(value);

const ROLES = {
  standby: "standby", former: "was the primary before", refused: "is not used, the log says why",
  unreachable: "cannot be reached", unknown: "not asked yet",
};

const facts = [
  ["Store", [
    ["tokens", status => known(number, status.store.tokens)],
    ["database", status => known(bytes, status.store.database_bytes)],
    ["WAL", status => known(bytes, status.store.log_bytes)],
    ["written", status => number(status.store.writes)],
    ["expired", status => number(status.store.expired)],
    ["failures", status => number(status.store.failures)],
    ["rows that cannot be decrypted", status => number(status.store.unreadable)],
  ]],
  ["Database", [
    ["primary", ({ database }) => {
      const primary = database.hosts.find(({ role }) => role === "primary");
      return primary ? primary.name : "none was found";
    }],
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
      return `${date(status.certificate.expires_at)}, ${left < 0 ? "it has expired" : `in ${left} d`}`;
    }],
  ]],
  ["Access", [
    ["mode", status => status.access.mode],
    ["sessions", status => known(number, status.store.sessions)],
    ["in memory", status => number(status.access.cached_sessions)],
    ["not served", status => {
      const reasons = Object.entries(status.access.failures).sort(([, one], [, other]) => other - one);
      if (reasons.length === 0) return "none";
      return reasons.map(([reason, count]) => `${reason.replaceAll("_", " ")} ${number(count)}`).join(", ");
    }],
    ["limited addresses", status => number(status.access.limited_addresses)],
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
    ["store, OpenSSL", status => `${status.store_software}, ${status.openssl}`],
  ]],
].map(([title, rows, concerns]) => {
  const fact = element(byID("facts"), "section", { class: "fact" });
  fact.hidden = Boolean(concerns);
  element(fact, "h2", {}, title);
  const list = element(fact, "dl");
  return rows.map(([label, show]) => {
    const row = element(list, "div", { class: "row" });
    element(row, "dt", {}, label);
    return { show, concerns, fact, row, value: element(row, "dd", {}, nothing) };
  });
}).flat();

const MARKS = { ready: "M2 8.5 6.5 13 14 3.5", unready: "M8 1.5 15 14H1ZM8 6v4M8 11.5v1", unreachable: "M3 3 13 13M13 3 3 13" };

// Writes the text only if it has changed, because screen readers announce every write.
function setState(state, text) {
  if (byID("state-text").textContent === text) return;
  byID("state").dataset.state = state;
  byID("mark").setAttribute("d", MARKS[state]);
  byID("state-text").textContent = text;
  document.title = `${state === "ready" ? "" : "! "}token-cache: ${text}`;
  document.body.classList.toggle("stale", state === "unreachable");
}

let shownNotes = "";
function setNotes(notes) {
  const text = JSON.stringify(notes);
  if (text === shownNotes) return;
  shownNotes = text;
  byID("notes").replaceChildren();
  for (const { level, text } of notes) {
    const item = element(byID("notes"), "li", { "data-level": level });
    element(item, "b", {}, { error: "Not ready:", warning: "Warning:", notice: "Note:" }[level]);
    item.append(" " + text);
  }
}

let statuses = [];
let points = [];
let lastDrawn = 0;
let lastAnswer = null;

function update(status) {
  // After a restart all counters begin at 0.
  if (statuses.length > 0 && statuses.at(-1).started_at !== status.started_at) statuses = [];
  for (const panel of panels) panel.adapt(status);
  const previous = statuses.at(-1);
  if (previous && status.time > previous.time) {
    const earlier = statuses.find(({ time }) => time >= status.time - LATENCY_WINDOW - 0.5) ?? previous;
    points.push({ time: status.time, figures: figures(status, previous, earlier) });
    points = points.filter(({ time }) => time > status.time - HISTORY && time <= status.time);
    for (const panel of panels) panel.show(points.at(-1).figures);
  }
  statuses = [...statuses.filter(({ time }) => time > status.time - 2 * LATENCY_WINDOW), status];
  for (const { show, concerns, fact, row, value } of facts) {
    if (concerns) fact.hidden = !concerns(status);
    if (fact.hidden) continue;
    const text = show(status);
    row.hidden = text === null;
    value.textContent = text;
  }
  document.querySelector('[data-figure="version"]').textContent = status.version;
  document.querySelector('[data-figure="uptime"]').textContent = span(status.time - status.started_at);
  setState(status.ready ? "ready" : "unready", status.ready ? "Ready" : "Not ready");
  setNotes([...status.reasons.map(text => ({ level: "error", text })), ...status.warnings]);
}

function draw(now) {
  if (reducedMotion.matches && now - lastDrawn < 10 && lastDrawn > 0) return;
  lastDrawn = now;
  for (const panel of panels) panel.draw(points, now);
}

async function poll() {
  try {
    const response = await fetch("/status", { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const status = await response.json();
    lastAnswer = new Date();
    update(status);
    draw(status.time);
  } catch (error) {
    const since = lastAnswer ? `, last answer at ${lastAnswer.toTimeString().slice(0, 8)}` : "";
    setState("unreachable", `The server cannot be reached${since}`);
  }
  setTimeout(poll, 1000);
}

poll();
