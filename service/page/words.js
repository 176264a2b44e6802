/** Numbers, times and names as a person reads them. */

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short" });
const DAY_MS = 86_400_000;

/** `23:00`, `tomorrow 07:00` or `Sat, 5 Dec, 07:00`, in the browser's zone. */
export function moment(iso, now = new Date()) {
  const when = new Date(iso);
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate());
  const days = Math.floor((when - midnight) / DAY_MS);
  const time = clock.format(when);
  if (days === 0) return time;
  if (days === 1) return `tomorrow ${time}`;
  if (days === -1) return `yesterday ${time}`;
  return `${day.format(when)}, ${time}`;
}

/** `12 s`, `4 min`, `3 h`. */
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3600)} h`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let size = count;
  let unit = 0;
  while (size >= 1024 && unit < units.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${size.toFixed(unit === 0 || size >= 100 ? 0 : 1)} ${units[unit]}`;
}

/** A gate's reading or limit with its unit; a boolean as yes or no. */
export function quantity(value, unit) {
  if (value === null) return "unknown";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (unit === "bytes") return bytes(value);
  const text = Number.isInteger(value) ? String(value) : value.toFixed(1);
  return unit === null ? text : `${text} ${unit}`;
}

export function percent(share) {
  return `${(share * 100).toFixed(share > 0.995 || share < 0.005 ? 0 : 1)} %`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString()} ${number === 1 ? one : many}`;
}

/** What the API says to programs, without the request it names: here there is a button for that. */
export function says(text) {
  const plain = text
    .replace(/[;.,]? *\b(POST|GET|PUT|DELETE) \/v1\/\S+ [^.;]*/g, "")
    .replace(/\.\.+/g, ".");
  return sentence(plain);
}

/** With a capital and a full stop. */
export function sentence(text) {
  const trimmed = text.trim();
  const begun = trimmed.slice(0, 1).toUpperCase() + trimmed.slice(1);
  return /[.!?…]$/.test(begun) ? begun : `${begun}.`;
}
