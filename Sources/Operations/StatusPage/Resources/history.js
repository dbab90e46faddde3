// The part of the server's history that this page keeps: rows of figures, in a fixed amount of memory however long the page
// stays open.

class Rows {
  // capacity: how many rows are kept; step: the seconds that a row is about.
  constructor(capacity, step) {
    Object.assign(this, { capacity, step, start: 0, count: 0 });
    this.positions = new Float64Array(capacity);
    this.columns = new Map();
  }

  clear() {
    [this.start, this.count] = [0, 0];
  }

  // The position of the newest row; -1 without one.
  get last() {
    return this.count === 0 ? -1 : this.positions[this.place(this.count - 1)];
  }

  // How many seconds before a position the oldest row is; 0 without one.
  age(position) {
    return this.count === 0 ? 0 : position - this.positions[this.place(0)];
  }

  place(index) {
    return (this.start + index) % this.capacity;
  }

  // Appends the rows of an answer of /history. A column that the answer lacks has no values from then on.
  add({ positions, figures }) {
    for (const name of Object.keys(figures)) {
      if (!this.columns.has(name)) this.columns.set(name, new Float32Array(this.capacity).fill(NaN));
    }
    for (let row = 0; row < positions.length; row += 1) {
      if (positions[row] <= this.last) continue;
      let place = this.place(this.count);
      if (this.count === this.capacity) {
        place = this.start;
        this.start = (this.start + 1) % this.capacity;
      } else {
        this.count += 1;
      }
      this.positions[place] = positions[row];
      for (const [name, column] of this.columns) column[place] = figures[name]?.[row] ?? NaN;
    }
  }

  // A figure for equal parts of the time, each combined from its rows; NaN for a part without rows.
  // Parts begin at multiples of their width, so that a row stays in its part while time moves on.
  // combine: "mean", "largest" or "last".
  parts(name, { first, count, width }, combine) {
    const [column, values] = [this.columns.get(name), new Float64Array(count).fill(NaN)];
    if (!column) return values;
    const numbers = new Uint16Array(count);
    // From the newest row back, as far as is asked for.
    let place = this.place(this.count + this.capacity - 1);
    for (let left = this.count; left > 0; left -= 1, place = place === 0 ? this.capacity - 1 : place - 1) {
      const part = Math.ceil(this.positions[place] / width) - first;
      if (part < 0) break;
      const value = column[place];
      if (part >= count || Number.isNaN(value)) continue;
      numbers[part] += 1;
      if (numbers[part] === 1) values[part] = value;
      else if (combine === "largest") values[part] = Math.max(values[part], value);
      else if (combine === "mean") values[part] += (value - values[part]) / numbers[part];
    }
    return values;
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
