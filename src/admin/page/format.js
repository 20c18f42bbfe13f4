// How numbers, lengths of time and times are written.

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A count; `counted` = where counting stops, so that there may be more. */
export function count(n, counted) {
  return counted && n > counted ? `${whole.format(counted)}+` : whole.format(n);
}

/** A count for little space. */
export function brief(n) {
  return Math.abs(n) < 10000 ? whole.format(Math.round(n)) : short.format(n);
}

/** Messages a second. */
export function rate(n) {
  if (n === null || n === undefined) return "–";
  if (n === 0) return "0/s";
  if (n < 0.1) return `${trim(n * 60)}/min`;
  return `${n >= 1000 ? brief(n) : trim(n)}/s`;
}

/** A share of one as per cent. */
export function share(x) {
  if (x === null || x === undefined) return "–";
  if (x > 0 && x < 0.001) return "<0.1 %";
  return `${trim(x * 100)} %`;
}

function trim(n) {
  if (n >= 100) return String(Math.round(n));
  if (n >= 10) return String(Math.round(n * 10) / 10);
  return String(Math.round(n * 100) / 100);
}

/** A length of time in seconds. */
export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 0) return `-${seconds(-s)}`;
  if (s === 0) return "0 s";
  if (s < 0.001) return "<1 ms";
  if (s < 1) return `${Math.round(s * 1000)} ms`;
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${two(s % 60, "s", s)}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h${two((s % 3600) / 60, "min", s)}`;
  return `${Math.floor(s / 86400)} d${two((s % 86400) / 3600, "h", s)}`;
}

function two(rest, unit) {
  const n = Math.floor(rest);
  return n > 0 ? ` ${n} ${unit}` : "";
}

/** PostgreSQL's way to write an interval, in seconds. */
export function interval(text) {
  const found = /^(?:(-?\d+) days? ?)?(?:(-?)(\d+):(\d+):(\d+(?:\.\d+)?))?$/.exec(text ?? "");
  if (!found) return null;
  const time = Number(found[3] ?? 0) * 3600 + Number(found[4] ?? 0) * 60 + Number(found[5] ?? 0);
  return Number(found[1] ?? 0) * 86400 + (found[2] ? -time : time);
}

/** Bytes. */
export function bytes(n) {
  if (n < 1000) return `${n} B`;
  if (n < 1e6) return `${trim(n / 1e3)} kB`;
  return n < 1e9 ? `${trim(n / 1e6)} MB` : `${trim(n / 1e9)} GB`;
}

/** A time to the millisecond, where the user is. */
export function exact(text) {
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return text ?? "";
  const pad = (n, to = 2) => String(n).padStart(to, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}.${pad(at.getMilliseconds(), 3)} ${zone(at)}`;
}

function zone(at) {
  const minutes = -at.getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const pad = (n) => String(n).padStart(2, "0");
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${pad(Math.floor(size / 60))}:${pad(size % 60)}`;
}

/** How long ago a time was, or how far away it is. */
export function ago(text, now = Date.now()) {
  const at = new Date(text).getTime();
  if (Number.isNaN(at)) return text ?? "–";
  const passed = (now - at) / 1000;
  if (Math.abs(passed) < 2) return "now";
  const size = coarse(Math.abs(passed));
  return passed > 0 ? `${size} ago` : `in ${size}`;
}

function coarse(s) {
  if (s < 60) return `${Math.round(s)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}
