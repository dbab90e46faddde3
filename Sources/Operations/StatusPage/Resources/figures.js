"use strict";
// Computes current figures, such as rates and percentiles, from the server's counters. Times are in seconds.

const HISTORY = 300;
// Percentiles cover this many seconds: over a single second they would vary too much when there are few requests.
const LATENCY_WINDOW = 5;

const nothing = "–";

function number(value, digits = 0) {
  if (value === null || value === undefined) return nothing;
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

// A number of any size with about three digits.
function short(value) {
  if (value === null) return nothing;
  if (value >= 1e6) return number(value / 1e6, value < 1e8 ? 1 : 0) + " M";
  if (value >= 1e5) return number(value / 1e3) + " k";
  return number(value, value < 10 ? 1 : 0);
}

function percent(value) {
  return value === null ? nothing : number(value * 100, value < 1 ? 1 : 0) + " %";
}

function bytes(value) {
  if (value === null) return nothing;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return number(value, unit > 0 && value < 100 ? 1 : 0) + " " + units[unit];
}

function seconds(value) {
  if (value === null) return nothing;
  if (value < 1e-3) return number(value * 1e6) + " µs";
  if (value < 1) return number(value * 1e3, value < 0.1 ? 1 : 0) + " ms";
  return number(value, 1) + " s";
}

function span(value) {
  const [days, hours, minutes] = [Math.floor(value / 86400), Math.floor(value / 3600) % 24, Math.floor(value / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${Math.floor(value) % 60} s` : `${Math.max(0, Math.floor(value))} s`;
}

function date(unixTime) {
  return new Date(unixTime * 1000).toISOString().slice(0, 10);
}

function moment(unixTime) {
  return new Date(unixTime * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// The quantile of the durations measured between two readings of a histogram. Durations count as evenly spread within
// their bucket, as in Prometheus' histogram_quantile.
function quantile(share, before, after) {
  const counts = after.counts.map((count, index) => count - before.counts[index]);
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total <= 0) return null;
  let wanted = share * total;
  for (let index = 0; index < counts.length; index += 1) {
    if (wanted <= counts[index] && counts[index] > 0) {
      const low = index === 0 ? 0 : after.bounds[index - 1];
      // The last bucket has no upper bound.
      return index === after.bounds.length ? low : low + (after.bounds[index] - low) * wanted / counts[index];
    }
    wanted -= counts[index];
  }
  return after.bounds.at(-1);
}

// The figures of one point in the charts. Rates are since the previous status, percentiles since the earlier one, which is
// from the beginning of the window of latencies.
function figures(status, previous, earlier) {
  const took = status.time - previous.time;
  const rate = pick => Math.max(0, pick(status) - pick(previous)) / took;
  const hits = status.cache.hits - previous.cache.hits;
  const reads = hits + status.cache.misses - previous.cache.misses;
  // A store may not measure all of them.
  const latency = (pick, share) => pick(status) ? quantile(share, pick(earlier), pick(status)) : null;
  return {
    get: rate(now => now.requests.get),
    post: rate(now => now.requests.post),
    errors: rate(now => now.requests.errors),
    hit_ratio: reads > 0 ? hits / reads : null,
    get_p50: latency(now => now.latency.get, 0.5),
    get_p99: latency(now => now.latency.get, 0.99),
    post_p50: latency(now => now.latency.post, 0.5),
    post_p99: latency(now => now.latency.post, 0.99),
    commit_p50: latency(now => now.latency.commit, 0.5),
    commit_p99: latency(now => now.latency.commit, 0.99),
    sync_p99: latency(now => now.latency.sync, 0.99),
    read_p50: latency(now => now.latency.read, 0.5),
    read_p99: latency(now => now.latency.read, 0.99),
    write_p99: status.database ? latency(now => now.latency.commit, 0.99) : null,
    waiting: status.database ? status.database.waiting_requests : null,
    retries: status.database ? rate(now => now.database.retries) : null,
    connections: status.connections.open,
    refused: rate(now => now.connections.refused),
    memory: status.process.resident_bytes,
    cache_bytes: status.cache.bytes,
    processor: rate(now => now.process.processor_seconds),
    tokens: status.store.tokens ?? null,
    store_bytes: (status.store.database_bytes ?? 0) + (status.store.log_bytes ?? 0),
  };
}
