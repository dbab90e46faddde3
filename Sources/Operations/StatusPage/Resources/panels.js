// Which charts there are, and what connects them: the time that they show, and the moment under the pointer.

const byID = id => document.getElementById(id);

// A store on this machine measures other things than one in a database on others.
const isHere = status => !status.database;
const isElsewhere = status => Boolean(status.database);
const hasAccess = status => status.access.mode !== "open";
const countsSessions = status => hasAccess(status) && status.store.sessions !== undefined;

// What the charts show: an hour, or what there is of it, but at least five minutes.
function viewOf(age) {
  const span = Math.max(300, Math.min(ROWS * STEP, age));
  return { span, mark: span <= 480 ? 60 : span <= 2400 ? 300 : 900, name: `last ${Math.round(span / 60)} minutes` };
}

// The moment that the pointer or the keyboard has moved to, in all charts.
const selection = { chart: null, position: null };

const PANELS = [
  { title: "Requests a second", format: short,
    series: [["GET", "get"], ["POST", "post"], ["other", "other"]] },
  { title: "Errors a second", format: short,
    series: [["all", "errors", "highest"], ["server failed", "failures", "highest"], ["no access", "denied", "highest"]] },
  { title: "GET, time in the server", format: seconds, kind: "times", least: 0,
    series: [["p50", "get_p50"], ["p99", "get_p99"]] },
  { title: "POST, until it is on disk", format: seconds, kind: "times", least: 0,
    series: [["p50", "post_p50"], ["p99", "post_p99"]], concerns: isHere },
  { title: "POST, until the database has it", format: seconds, kind: "times", least: 0,
    series: [["p50", "post_p50"], ["p99", "post_p99"]], concerns: isElsewhere },
  { title: "Connections", format: short, least: 5,
    series: [["open", "connections", "highest"], ["refused a second", "refused", "highest"]] },
  { title: "Processor", format: percent, least: 0.05, series: [["of one core", "processor"]] },
  { title: "Memory", format: bytes, kind: "bytes",
    series: [["process", "memory", "highest"], ["answers", "cache_bytes", "highest"], ["buffers", "buffer_bytes", "highest"]] },
  { title: "Commit to the disk", format: seconds, kind: "times", least: 0,
    series: [["p50", "commit_p50"], ["p99", "commit_p99"], ["sync p99", "sync_p99"]], concerns: isHere },
  { title: "To the database and back", format: seconds, kind: "times", least: 0,
    series: [["read p50", "read_p50"], ["read p99", "read_p99"], ["write p99", "commit_p99"]], concerns: isElsewhere },
];

const MORE_PANELS = [
  { title: "Waiting for the database", format: short, least: 5,
    series: [["requests", "waiting", "highest"], ["sent again a second", "retries", "highest"]], concerns: isElsewhere },
  { title: "Shares of GET", format: percent, kind: "share",
    series: [["from memory", "hit_ratio"], ["no token found", "not_found_ratio"]], concerns: isHere },
  { title: "Share of GET", format: percent, kind: "share", series: [["no token found", "not_found_ratio"]], concerns: isElsewhere },
  { title: "Tokens stored", format: short, least: 5, series: [["tokens", "tokens"]],
    concerns: status => isHere(status) && !countsSessions(status) },
  // One panel, so that the last row of panels is as full as without sessions.
  { title: "Tokens and sessions", format: short, least: 5, series: [["tokens", "tokens"], ["sessions", "sessions"]],
    concerns: status => isHere(status) && countsSessions(status) },
  { title: "Size of the store", format: bytes, kind: "bytes", series: [["on disk", "store_bytes"]], concerns: isHere },
  { title: "Free on the disk", format: bytes, kind: "bytes", series: [["data folder", "disk_free"]], concerns: isHere },
];

function select(chart, position) {
  Object.assign(selection, { chart, position });
  for (const chart of charts) chart.view && chart.drawCursor();
  showTip();
}

const charts = [[PANELS, "panels"], [MORE_PANELS, "more-panels"]].flatMap(([panels, parent]) =>
  panels.map(panel => new Chart(byID(parent), panel, select)));

const [tip, tipTitle, tipList] = [byID("tip"), byID("tip").querySelector("b"), byID("tip").querySelector("dl")];
const tipRows = STYLES.map(style => {
  const row = element(tipList, "div");
  const sample = element(element(row, "dt"), "svg", { viewBox: "0 0 18 6" });
  element(sample, "path", { class: style, d: "M0 3H18" });
  return { row, label: element(row.firstChild, "span"), value: element(row, "dd") };
});
const tipEvent = element(tip, "p");

// Shows the values of the selected moment beside it.
function showTip() {
  const { chart, position } = selection;
  tip.hidden = chart === null || !chart.view;
  if (tip.hidden) return;
  const { span, events } = chart.view;
  setText(tipTitle, chart.when(position));
  const values = chart.at(position);
  tipRows.forEach(({ row, label, value }, index) => {
    row.hidden = index >= values.length;
    if (row.hidden) return;
    setText(label, values[index].label);
    setText(value, values[index].text);
  });
  const near = events.filter(event => Math.abs(event.position - position) <= Math.max(STEP, span / 100));
  tipEvent.hidden = near.length === 0;
  setText(tipEvent, near.slice(-3).map(event => `${event.kind}: ${afterKind(event)}`).join("\n"));
  const [place, x] = [chart.svg.getBoundingClientRect(), chart.x(position)];
  const left = x > chart.size / 2 ? place.left + x - tip.offsetWidth - 10 : place.left + x + 10;
  tip.style.left = `${Math.max(4, Math.min(left, document.documentElement.clientWidth - tip.offsetWidth - 4)) + scrollX}px`;
  tip.style.top = `${place.top + scrollY + 6}px`;
}
