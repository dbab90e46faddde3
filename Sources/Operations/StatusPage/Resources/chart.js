// A panel with an SVG line chart of some figures over the last five minutes.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [HISTORY, 100];
const STYLES = ["first", "second", "third"];
// After this many seconds without a figure the line is interrupted.
const GAP = 3.5;

function element(parent, name, attributes = {}, text = "") {
  const made = name === "svg" || name === "path" ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  parent.append(made);
  return made;
}

// The smallest 1, 2 or 5 times a power of ten, or power of two for bytes, that is not below the value.
function roundedUp(value, isBinary) {
  if (isBinary) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 2, 5, 10].find(step => step * power >= value * 0.9999);
}

class Panel {
  // series: [label, name of the figure, own format]; a figure with its own format is shown as a number but not drawn.
  // concerns: whether the panel is shown for a server with this status; always without it.
  constructor(parent, { title, series, format, top, least = 0, isBinary = false, concerns }) {
    Object.assign(this, { title, format, top, least, isBinary, concerns });
    const panel = document.getElementById("panel").content.cloneNode(true);
    this.section = panel.querySelector(".panel");
    this.section.hidden = Boolean(concerns);
    panel.querySelector("h2").textContent = title;
    this.chart = panel.querySelector(".chart");
    this.axis = panel.querySelector(".top");
    this.chart.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    for (const part of [0, 0.5]) {
      element(this.chart, "path", { class: "grid", d: `M0 ${HEIGHT * part + 0.5}H${WIDTH}` });
    }
    this.series = series.map(([label, name, ownFormat], index) => {
      const entry = element(panel.querySelector(".legend"), "div");
      const term = element(entry, "dt");
      let line = null;
      if (!ownFormat) {
        const sample = element(term, "svg", { viewBox: "0 0 18 6", "aria-hidden": "true" });
        element(sample, "path", { class: STYLES[index], d: "M0 3H18" });
        line = element(this.chart, "path", { class: STYLES[index] });
      }
      term.append(label);
      return { label, name, line, format: ownFormat ?? format, value: element(entry, "dd", { "data-figure": name }, nothing) };
    });
    parent.append(panel);
  }

  adapt(status) {
    if (this.concerns) this.section.hidden = !this.concerns(status);
  }

  show(figures) {
    for (const { name, value, format } of this.series) value.textContent = format(figures[name]);
  }

  // points: [{ time, figures }], the oldest first; now: the time at the right edge.
  draw(points, now) {
    if (this.section.hidden) return;
    const drawn = this.series.filter(({ line }) => line);
    const largest = Math.max(this.least, ...points.flatMap(({ figures }) => drawn.map(({ name }) => figures[name] ?? 0)));
    const top = this.top ?? (largest > 0 ? roundedUp(largest, this.isBinary) : 1);
    for (const { name, line } of drawn) {
      let [path, last] = ["", -Infinity];
      for (const { time, figures } of points) {
        if (figures[name] === null) continue;
        const [x, y] = [WIDTH - (now - time), HEIGHT - 1 - figures[name] / top * (HEIGHT - 2)];
        const place = `${x.toFixed(1)} ${y.toFixed(1)}`;
        // A point without a neighbour is drawn as a short line, as it would be invisible otherwise.
        path += time - last > GAP ? `M${place}h.6` : `L${place}`;
        last = time;
      }
      line.setAttribute("d", path);
    }
    this.axis.textContent = `top: ${this.format(top)}`;
    const values = this.series.map(({ label, value }) => `${label} ${value.textContent}`).join(", ");
    this.chart.setAttribute("aria-label", `${this.title}, the last five minutes; now: ${values}`);
  }
}
