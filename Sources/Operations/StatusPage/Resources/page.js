// Asks the server for its status and its history once a second, and shows them.

// Milliseconds without an answer after which the server counts as unreachable.
const REQUEST_TIMEOUT = 3000;
// Milliseconds between two rounds of requests. While the page is in the background, only its title has to stay up to date.
const [PAUSE, BACKGROUND_PAUSE] = [1000, 10000];
// For users who prefer reduced motion, the charts are redrawn only every ten seconds; the figures still change every second.
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

const history = new Rows();
const events = new Events(100);
// The position and the time of the last answer of the history.
let present = null;

const MARKS = { ready: "M2 8.5 6.5 13 14 3.5", unready: "M8 1.5 15 14H1ZM8 6v4M8 11.5v1", unreachable: "M3 3 13 13M13 3 3 13" };

// Writes the text only if it has changed, because screen readers announce every write.
function setState(state, text) {
  if (byID("state-text").textContent === text) return;
  byID("state").dataset.state = state;
  byID("mark").setAttribute("d", MARKS[state]);
  byID("state-text").textContent = text;
  document.body.classList.toggle("stale", state === "unreachable");
  document.title = `${state === "ready" ? "" : "! "}${hostName || "token-cache"}: ${text}`;
}

// The list of what the operator should know or change. It is rebuilt only when that has changed.
class Notes {
  constructor(list) {
    Object.assign(this, { list, shown: "" });
  }

  show(notes) {
    const text = JSON.stringify(notes);
    if (text === this.shown) return;
    this.shown = text;
    this.list.replaceChildren();
    this.list.hidden = notes.length === 0;
    for (const { level, text } of notes) {
      const item = element(this.list, "li", { "data-level": level });
      element(item, "b", {}, { error: "Not ready:", warning: "Warning:" }[level]);
      item.append(" " + text);
    }
  }
}

const notes = new Notes(byID("notes"));

const IDENTITY = [
  ["version", status => status.version],
  ["up", status => span(status.time - status.started_at)],
  ["listens on", status => status.listeners.join(", ")],
].map(([label, show]) => {
  const entry = element(byID("identity"), "div");
  element(entry, "dt", {}, label);
  return { show, value: element(entry, "dd", { "data-figure": label }) };
});

let hostName = "";
let startedAt = null;

// Forgets the figures of another server, for example when an address has moved from one server to another.
function recognize(status) {
  if (status.host !== hostName) {
    hostName = status.host;
    setText(document.querySelector("[data-figure=host]"), hostName);
    forget();
  }
  // After a restart all counters begin at 0.
  if (status.started_at !== startedAt) {
    for (const table of tables) table.clear();
  }
  startedAt = status.started_at;
}

function forget() {
  history.clear();
  events.clear();
}

function showStatus(status) {
  recognize(status);
  for (const chart of charts) chart.adapt(status);
  for (const card of [...tables, ...facts]) card.show(status);
  for (const { show, value } of IDENTITY) setText(value, show(status));
  setState(status.ready ? "ready" : "unready", status.ready ? "Ready" : "Not ready");
  const reasons = status.reasons.map(text => ({ level: "error", text }));
  notes.show([...reasons, ...status.warnings.map(({ text }) => ({ level: "warning", text }))]);
}

function addHistory(answer) {
  // The machine has been started again: its positions begin at 0.
  if (present && answer.now.position < present.position) forget();
  present = answer.now;
  history.add(answer);
  const areNew = events.add(answer.events);
  if (areNew || date(present.time) !== eventsDay) showEvents(events.list, present);
  if (areNew) settingsCard.load();
}

let lastDrawn = -Infinity;
function drawCharts(isForced = false) {
  if (!present || document.hidden) return;
  for (const chart of charts) chart.show(history);
  const view = viewOf(history.age(present.position));
  if (!isForced && reducedMotion.matches && Math.abs(present.position - lastDrawn) < STEP - 0.5) return;
  lastDrawn = present.position;
  const [first, shown] = [present.position - view.span, selection.position];
  if (shown !== null && shown < first) select(null, null);
  for (const chart of charts) {
    chart.draw(history, { ...view, now: present.position, time: present.time, events: events.list });
  }
  if (selection.chart) showTip();
}

// The answer to a request as an object.
async function ask(path) {
  const response = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(REQUEST_TIMEOUT) });
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.json();
}

let lastAnswer = null;
async function poll() {
  try {
    const status = await ask("/status");
    lastAnswer = new Date();
    showStatus(status);
    // The rows that are missing here.
    addHistory(await ask(`/history?since=${history.last + 1}`));
    drawCharts();
  } catch {
    const since = lastAnswer ? `, last answer at ${clock(lastAnswer / 1000)}` : "";
    setState("unreachable", `The server cannot be reached${since}`);
  }
}

let timer = null;
let round = 0;
// Starts a round at once. A round that was under way then does not schedule another one.
async function keepPolling() {
  const own = ++round;
  clearTimeout(timer);
  await poll();
  if (own !== round) return;
  timer = setTimeout(keepPolling, document.hidden ? BACKGROUND_PAUSE : PAUSE);
}

let isResizing = false;
new ResizeObserver(() => {
  if (isResizing) return;
  isResizing = true;
  requestAnimationFrame(() => { isResizing = false; drawCharts(true); });
}).observe(byID("panels"));
document.addEventListener("visibilitychange", () => { if (!document.hidden) keepPolling().then(() => drawCharts(true)); });

byID("zone").textContent = timeZone();
keepPolling();
