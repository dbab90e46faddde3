// A panel with an SVG chart of some figures over time.

const SVG = "http://www.w3.org/2000/svg";
const STYLES = ["first", "second", "third"];
const HEIGHT = 112;
// Room for the marks of the axes, in pixels.
const [LEFT, TOP, BOTTOM] = [52, 6, 18];
const TIME_MARKS_AT_MOST = 8;

function element(parent, name, attributes = {}, text = "") {
  const isDrawing = ["svg", "path", "text", "g"].includes(name);
  const made = isDrawing ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

// Sets a text or an attribute only if it differs, because the browser does the work of a change even for an equal value.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

class Chart {
  // series: a label and a name each, and "highest" if a row has the largest of its seconds.
  // kind: "linear", "bytes", "times" or "share"; least: the smallest top of the axis.
  // concerns: whether the chart is shown for a server with this status; always without it.
  // select: called with the position that the pointer or the keyboard has moved to, or null.
  constructor(parent, { title, series, format, kind = "linear", least = 1, concerns }, select) {
    Object.assign(this, { title, format, kind, least, concerns, select, summary: "" });
    const panel = byID("panel").content.cloneNode(true);
    this.section = panel.querySelector(".panel");
    this.section.hidden = Boolean(concerns);
    panel.querySelector("h2").textContent = title;
    this.plot = panel.querySelector(".plot");
    this.svg = panel.querySelector("svg");
    this.setUpDrawing();
    this.series = series.map(([label, name, highest], index) => {
      const entry = element(panel.querySelector(".legend"), "div");
      const term = element(entry, "dt");
      const sample = element(term, "svg", { viewBox: "0 0 18 6", "aria-hidden": "true" });
      element(sample, "path", { class: STYLES[index], d: "M0 3H18" });
      const line = element(this.svg, "path", { class: `line ${STYLES[index]}` });
      term.append(label);
      const value = element(entry, "dd", { "data-figure": name }, nothing);
      return { label: highest ? `${label} (${highest})` : label, name, line, value };
    });
    this.cursor = element(this.svg, "path", { class: "cursor" });
    this.listen();
    parent.append(panel);
  }

  setUpDrawing() {
    setAttribute(this.svg, "height", String(HEIGHT));
    this.grid = element(this.svg, "path", { class: "grid" });
    this.band = element(this.svg, "path", { class: "band" });
    this.events = ["event", "event fault"].map(kind => element(this.svg, "path", { class: kind }));
    const texts = (count, kind) => Array.from({ length: count }, () => element(this.svg, "text", { class: kind }));
    this.valueMarks = texts(MARKS_AT_MOST + 2, "mark-value");
    this.timeMarks = texts(TIME_MARKS_AT_MOST, "mark-time");
  }

  adapt(status) {
    if (this.concerns) this.section.hidden = !this.concerns(status);
  }

  // Shows the newest figures.
  show(rows) {
    for (const { name, value } of this.series) setText(value, this.format(rows.newest(name)));
  }

  // rows: what is drawn; view: { span, mark, name, now, time, events }.
  draw(rows, view) {
    const size = this.section.hidden ? 0 : this.svg.clientWidth;
    if (size === 0) return;
    this.view = view;
    this.size = size;
    this.first = Math.ceil((view.now - view.span) / STEP) + 1;
    const count = Math.ceil(view.now / STEP) - this.first + 1;
    this.values = this.series.map(({ name }) => rows.parts(name, this.first, count));
    const found = this.values.flatMap(values => [...values]).filter(value => !Number.isNaN(value));
    this.scale = this.fitting(found);
    this.drawValueAxis();
    this.drawTimeAxis(view);
    this.series.forEach(({ line }, index) => setAttribute(line, "d", this.path(this.values[index])));
    if (this.kind === "times") setAttribute(this.band, "d", this.between(this.values[0], this.values[1]));
    this.drawEvents(view);
    this.drawCursor();
    this.summarize();
  }

  fitting(values) {
    const largest = Math.max(this.least, ...values);
    if (this.kind === "share") return new LinearScale(1);
    if (this.kind === "bytes") return LinearScale.ofBytes(largest);
    if (this.kind !== "times") return new LinearScale(largest);
    const measured = values.filter(value => value > 0);
    return measured.length === 0 ? new LogarithmicScale(1e-4, 1e-2) : new LogarithmicScale(Math.min(...measured), Math.max(...measured));
  }

  // Pixels from the left and from the top.
  x(position) {
    return LEFT + (1 - (this.view.now - position) / this.view.span) * (this.size - LEFT - 1);
  }

  y(value) {
    return HEIGHT - BOTTOM - Math.min(1, this.scale.height(value)) * (HEIGHT - BOTTOM - TOP);
  }

  // The position at the end of a part.
  position(part) {
    return Math.min(this.view.now, (this.first + part) * STEP);
  }

  path(values) {
    let [path, last] = ["", -Infinity];
    for (let part = 0; part < values.length; part += 1) {
      if (Number.isNaN(values[part])) continue;
      const place = `${this.x(this.position(part)).toFixed(1)} ${this.y(values[part]).toFixed(1)}`;
      // A point without a neighbour is drawn as a short line, as it would be invisible otherwise.
      path += part - last > 1 ? `M${place}h1` : `L${place}`;
      last = part;
    }
    return path;
  }

  // The area between two lines where both have values.
  between(lower, upper) {
    let path = "";
    for (let begin = 0; begin < lower.length; begin += 1) {
      let end = begin;
      while (end < lower.length && !Number.isNaN(lower[end]) && !Number.isNaN(upper[end])) end += 1;
      if (end - begin > 1) {
        const places = values => Array.from({ length: end - begin }, (_, index) =>
          `${this.x(this.position(begin + index)).toFixed(1)} ${this.y(values[begin + index]).toFixed(1)}`);
        path += `M${places(upper).join("L")}L${places(lower).reverse().join("L")}Z`;
      }
      begin = end;
    }
    return path;
  }

  drawValueAxis() {
    const marks = this.scale.marks.length <= this.valueMarks.length ? this.scale.marks
      : this.scale.marks.filter((_, index) => index % 2 === 0).slice(0, this.valueMarks.length);
    let grid = "";
    this.valueMarks.forEach((text, index) => {
      const isUsed = index < marks.length;
      setText(text, isUsed ? this.format(marks[index]) : "");
      if (!isUsed) return;
      const y = this.y(marks[index]);
      setAttribute(text, "x", String(LEFT - 6));
      setAttribute(text, "y", (y + 3.5).toFixed(1));
      grid += `M${LEFT} ${Math.round(y) + 0.5}H${this.size}`;
    });
    setAttribute(this.grid, "d", grid);
  }

  drawTimeAxis({ time, span, mark }) {
    const marks = timeMarks(time - span, time, mark).slice(-TIME_MARKS_AT_MOST);
    this.timeMarks.forEach((text, index) => {
      const x = index < marks.length ? this.x(this.view.now - (time - marks[index])) : -1;
      const isUsed = x > LEFT + 14 && x < this.size - 14;
      setText(text, isUsed ? clock(marks[index], false) : "");
      if (!isUsed) return;
      setAttribute(text, "x", x.toFixed(1));
      setAttribute(text, "y", String(HEIGHT - 4));
    });
  }

  // A tick at the top of the chart and a line down for each event; those that tell of a failure have a path of their own.
  drawEvents({ events }) {
    const path = isFailure => events.filter(({ failed, position }) => failed === isFailure && this.x(position) >= LEFT)
      .map(({ position }) => `M${this.x(position).toFixed(1)} 0V${HEIGHT - BOTTOM}m-3.5 ${BOTTOM - HEIGHT}h7l-3.5 5z`).join("");
    this.events.forEach((line, index) => setAttribute(line, "d", path(index === 1)));
  }

  // The number of the part that a moment is in.
  part(position) {
    const part = Math.max(0, Math.min(this.values[0].length - 1, Math.ceil(position / STEP) - this.first));
    // The newest part may have no row yet.
    return part > 0 && this.values.every(values => Number.isNaN(values[part])) ? part - 1 : part;
  }

  // From when until when the row of a moment is, by the time of day.
  when(position) {
    const { time, now } = this.view;
    const [begin, end] = [(this.first + this.part(position) - 1) * STEP, this.position(this.part(position))];
    return [begin, end].map(place => clock(time - (now - place))).join("–");
  }

  // The values at a moment, as text.
  at(position) {
    const part = this.part(position);
    return this.series.map(({ label }, index) => ({ label, text: this.format(this.values[index][part]) }));
  }

  drawCursor() {
    const position = selection.position;
    const x = position === null ? -1 : this.x(position);
    setAttribute(this.cursor, "d", x < LEFT ? "" : `M${x.toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}`);
  }

  // Describes the chart in words, for screen readers. While the chart has the focus, the words change only when a key is
  // pressed, because a screen reader speaks every change.
  summarize() {
    const now = this.series.map(({ label, value }) => `${label} ${value.textContent}`).join(", ");
    const peaks = this.series.map(({ label }, index) => {
      const found = this.values[index].filter(value => !Number.isNaN(value));
      return `${label} ${this.format(found.length === 0 ? NaN : found.reduce((one, other) => Math.max(one, other)))}`;
    }).join(", ");
    this.summary = `now: ${now}; most in the ${this.view.name}: ${peaks}`;
    if (document.activeElement === this.plot) return;
    setAttribute(this.plot, "aria-valuetext", this.summary);
    setAttribute(this.plot, "aria-valuemin", String(-this.view.span));
    setAttribute(this.plot, "aria-valuenow", "0");
  }

  // Says where the cursor is, for those who cannot see it.
  tell(position) {
    if (!this.view) return;
    const text = position === null ? this.summary
      : `${this.when(position)}: ${this.at(position).map(({ label, text }) => `${label} ${text}`).join(", ")}`;
    setAttribute(this.plot, "aria-valuenow", String(position === null ? 0 : Math.round(position - this.view.now)));
    setAttribute(this.plot, "aria-valuetext", text);
  }

  listen() {
    setAttribute(this.plot, "aria-label", `${this.title}, chart over time`);
    this.plot.addEventListener("pointermove", event => {
      if (!this.view) return;
      const share = (event.clientX - this.svg.getBoundingClientRect().left - LEFT) / (this.size - LEFT - 1);
      this.select(this, this.view.now - (1 - Math.max(0, Math.min(1, share))) * this.view.span);
    });
    this.plot.addEventListener("pointerleave", () => this.select(null, null));
    this.plot.addEventListener("blur", () => this.select(null, null));
    this.plot.addEventListener("keydown", event => {
      if (!this.view) return;
      const { now, span } = this.view;
      const place = selection.position ?? now;
      const moved = {
        ArrowLeft: place - STEP, ArrowDown: place - STEP, ArrowRight: place + STEP, ArrowUp: place + STEP,
        PageDown: place - span / 10, PageUp: place + span / 10, Home: now - span + STEP, End: now, Escape: null,
      }[event.key];
      if (moved === undefined) return;
      event.preventDefault();
      this.select(moved === null ? null : this, moved === null ? null : Math.max(now - span + STEP, Math.min(now, moved)));
      this.tell(selection.position);
    });
  }
}
