"use strict";
// Shows numbers, sizes and times as text.

const nothing = "–";
// Between a number and its unit, so that no line ends there.
const gap = "\u00a0";

const isMissing = value => value === null || value === undefined || Number.isNaN(value);

const numberFormats = [0, 1, 2].map(digits => new Intl.NumberFormat("en", { maximumFractionDigits: digits }));

function number(value, digits = 0) {
  return isMissing(value) ? nothing : numberFormats[digits].format(value);
}

// A number of any size with about three digits.
function short(value) {
  if (isMissing(value)) return nothing;
  if (value >= 1e6) return number(value / 1e6, value < 1e8 ? 1 : 0) + `${gap}M`;
  if (value >= 1e5) return number(value / 1e3) + `${gap}k`;
  return number(value, value < 10 ? 1 : 0);
}

function percent(value) {
  return isMissing(value) ? nothing : number(value * 100, value < 1 ? 1 : 0) + `${gap}%`;
}

const byteUnits = ["B", "KiB", "MiB", "GiB", "TiB"];

function bytes(value) {
  if (isMissing(value)) return nothing;
  let unit = 0;
  while (value >= 1024 && unit < byteUnits.length - 1) { value /= 1024; unit += 1; }
  return number(value, unit > 0 && value < 100 ? 1 : 0) + gap + byteUnits[unit];
}

function seconds(value) {
  if (isMissing(value)) return nothing;
  if (value < 1e-3) return number(value * 1e6) + `${gap}µs`;
  if (value < 1) return number(value * 1e3, value < 0.1 ? 1 : 0) + `${gap}ms`;
  return number(value, 1) + `${gap}s`;
}

function span(value) {
  const [days, hours, minutes] = [Math.floor(value / 86400), Math.floor(value / 3600) % 24, Math.floor(value / 60) % 60];
  if (days > 0) return `${days}${gap}d ${hours}${gap}h`;
  if (hours > 0) return `${hours}${gap}h ${minutes}${gap}min`;
  return minutes > 0 ? `${minutes}${gap}min ${Math.floor(value) % 60}${gap}s` : `${Math.max(0, Math.floor(value))}${gap}s`;
}

const twoDigits = value => String(value).padStart(2, "0");

// The time of day by the clock and in the time zone of the browser.
function clock(unixTime, withSeconds = true) {
  const time = new Date(unixTime * 1000);
  const parts = [time.getHours(), time.getMinutes(), time.getSeconds()];
  return parts.slice(0, withSeconds ? 3 : 2).map(twoDigits).join(":");
}

function date(unixTime) {
  const time = new Date(unixTime * 1000);
  return `${time.getFullYear()}-${twoDigits(time.getMonth() + 1)}-${twoDigits(time.getDate())}`;
}

function moment(unixTime) {
  return `${date(unixTime)} ${clock(unixTime)}`;
}

// Such as UTC, UTC+2 or UTC-3:30.
function timeZone() {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const rest = Math.abs(minutes) % 60;
  return `UTC${minutes < 0 ? "-" : "+"}${Math.floor(Math.abs(minutes) / 60)}${rest ? `:${twoDigits(rest)}` : ""}`;
}
