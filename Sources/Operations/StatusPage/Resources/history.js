// The server's history as this page knows it: as many rows of figures as the server keeps.

// The seconds that a row is about, and how many rows there are at most.
const [STEP, ROWS] = [10, 360];

class Rows {
  constructor() {
    this.clear();
  }

  clear() {
    this.list = [];
  }

  // The position of the last row of full ten seconds; -1 without one.
  get last() {
    return this.list.findLast(({ position }) => position % STEP === 0)?.position ?? -1;
  }

  // How many seconds before a position the oldest row is; 0 without one.
  age(position) {
    return this.list.length === 0 ? 0 : position - this.list[0].position;
  }

  // Adds the rows of an answer of /history. The last one may be of ten seconds that are not over: the next answer replaces it.
  add({ positions, figures }) {
    const last = this.last;
    const added = positions.map((position, row) => ({
      position, figures: Object.fromEntries(Object.entries(figures).map(([name, values]) => [name, values[row] ?? NaN])),
    }));
    this.list = [...this.list.filter(({ position }) => position <= last), ...added.filter(({ position }) => position > last)].slice(-ROWS);
  }

  // A figure of the rows of some parts of the time, which are the multiples of ten seconds; NaN for a part without a row.
  parts(name, first, count) {
    const values = new Float64Array(count).fill(NaN);
    for (const { position, figures } of this.list) {
      const part = Math.ceil(position / STEP) - first;
      if (part >= 0 && part < count) values[part] = figures[name] ?? NaN;
    }
    return values;
  }

  // The newest value of a figure, of the row before if there was no request in the present one.
  newest(name) {
    return this.list.slice(-2).map(({ figures }) => figures[name] ?? NaN).findLast(value => !Number.isNaN(value)) ?? NaN;
  }
}

// The events among the rows, the newest last; as many as the server keeps.
class Events {
  constructor(capacity) {
    Object.assign(this, { capacity, list: [] });
  }

  clear() {
    this.list = [];
  }

  // Returns whether there are new ones.
  add(events) {
    const known = new Set(this.list.map(({ position, number }) => `${position} ${number}`));
    const added = events.filter(({ position, number }) => !known.has(`${position} ${number}`));
    if (added.length === 0) return false;
    this.list = [...this.list, ...added].sort((one, other) => one.position - other.position).slice(-this.capacity);
    return true;
  }
}
