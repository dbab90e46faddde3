// Axes: which values the marks of an axis have, and where its ends are, so that they fit what is drawn.

const MARKS_AT_MOST = 5;

// From zero to a little above the largest value, in steps of 1, 2 or 5 times a power of ten, which for bytes counts units of 1024.
class LinearScale {
  constructor(largest, unit = 1) {
    const wanted = largest / unit / MARKS_AT_MOST;
    const power = 10 ** Math.floor(Math.log10(wanted));
    const step = power * [1, 2, 5, 10].find(step => step * power * 1.000001 >= wanted) * unit;
    const count = Math.max(1, Math.ceil(largest / step - 1e-6));
    this.marks = Array.from({ length: count + 1 }, (_, index) => index * step);
    this.top = count * step;
  }

  // Of a value: 0 at the bottom, 1 at the top.
  height(value) {
    return value / this.top;
  }

  static ofBytes(largest) {
    return new LinearScale(largest, 1024 ** Math.min(byteUnits.length - 1, Math.floor(Math.log2(Math.max(1, largest)) / 10)));
  }
}

// A logarithmic scale, for times: it shows both a median of microseconds and requests that took seconds.
class LogarithmicScale {
  constructor(smallest, largest) {
    let [low, high] = [Math.floor(Math.log10(smallest) + 1e-9), Math.ceil(Math.log10(largest) - 1e-9)];
    if (high === low) high += 1;
    Object.assign(this, { low, high });
    this.marks = Array.from({ length: high - low + 1 }, (_, index) => 10 ** (low + index));
  }

  height(value) {
    return Math.max(0, (Math.log10(value) - this.low) / (this.high - this.low));
  }
}

// The times of the marks of a time axis: whole minutes or hours of the browser's clock.
function timeMarks(from, to, step) {
  const offset = -new Date(to * 1000).getTimezoneOffset() * 60;
  const marks = [];
  for (let time = Math.ceil((from + offset) / step) * step - offset; time <= to; time += step) marks.push(time);
  return marks;
}
