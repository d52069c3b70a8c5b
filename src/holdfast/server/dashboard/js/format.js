/** Numbers, times and durations, by the browser's locale. */

const locale = navigator.languages?.length ? [...navigator.languages] : undefined;
const whole = new Intl.NumberFormat(locale, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(locale, { maximumFractionDigits: 1 });
const percents = new Intl.NumberFormat(locale, { style: "percent", maximumFractionDigits: 1 });
const short = new Intl.NumberFormat(locale, { notation: "compact", maximumFractionDigits: 1 });

/** A dash stands for a number that is not known. */
const UNKNOWN = "–";

/** @param {any} value */
export function number(value) {
  return value === null || value === undefined ? UNKNOWN : whole.format(Number(value));
}

/** @param {any} value */
export function decimal(value) {
  if (value === null || value === undefined) return UNKNOWN;
  return (Math.abs(Number(value)) < 100 ? tenths : whole).format(Number(value));
}

/** @param {any} value */
export function compact(value) {
  return value === null || value === undefined ? UNKNOWN : short.format(Number(value));
}

/** @param {any} part */
export function percent(part) {
  return part === null || !Number.isFinite(Number(part)) ? UNKNOWN : percents.format(Number(part));
}

/** Rounded down: what is not done is never 100 %. @param {number} part */
export function percentDone(part) {
  return percent(Math.floor(part * 1000) / 1000);
}

/** "1 job", "2 jobs". @param {number} n @param {string} one @param {string} [many] */
export function count(n, one, many = `${one}s`) {
  return `${number(n)} ${n === 1 ? one : many}`;
}

/** The time that rates are of: "last 5 min". @param {{window_s: number}} rates */
export function rateWindow(rates) {
  return `last ${Math.max(1, Math.floor(rates.window_s / 60))} min`;
}

const UNITS = /** @type {const} */ ([["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1000]]);

/**
 * Returns a duration with its two largest units: "4 min 12 s". Below a second in milliseconds.
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (ms === null || ms === undefined || !Number.isFinite(Number(ms))) return UNKNOWN;
  const left = Math.max(0, Number(ms));
  if (left < 1000) return left === 0 ? "0 s" : `${whole.format(Math.max(1, Math.round(left)))} ms`;
  if (left < 10_000) return `${tenths.format(left / 1000)} s`;
  const first = UNITS.findIndex(([, size]) => left >= size);
  const [unit, size] = UNITS[first];
  const head = Math.floor(left / size);
  const next = UNITS[first + 1];
  const tail = next ? Math.floor((left - head * size) / next[1]) : 0;
  return `${whole.format(head)} ${unit}${tail ? ` ${tail} ${next?.[0]}` : ""}`;
}

/** Like duration, but without fractions: for what ticks every second. @param {number} ms */
export function ticking(ms) {
  return duration(Math.max(0, Math.floor(ms / 1000)) * 1000);
}

const MS = /** @type {Record<string, number>} */ ({ ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 });

/** The number and the milliseconds of a text such as 600/1m or +1/10m. Null if it is none. @param {string | null | undefined} text */
export function ratio(text) {
  const found = /^\+?(\d+)\/([\d.]+)(ms|s|m|h|d)$/.exec(text ?? "");
  return found && { n: Number(found[1]), ms: Number(found[2]) * MS[found[3]] };
}

/** A number in a time, such as 600/1m, as people read it: "600 in 1 min". @param {string | null} text */
export function rate(text) {
  const found = ratio(text);
  return found ? `${text?.startsWith("+") ? "+" : ""}${number(found.n)} in ${duration(found.ms)}` : (text ?? UNKNOWN);
}

/** A text as one word of a shell, whatever it contains. @param {string} text */
export function quoted(text) {
  return /^[\w.:][\w.:/-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** A name as an argument of a command: a name that begins with a dash is no option. @param {string} name */
export function argument(name) {
  return name.startsWith("-") ? `-- ${quoted(name)}` : quoted(name);
}

/** @typedef {"relative" | "local" | "utc"} TimeForm */
const FORMS = /** @type {TimeForm[]} */ (["relative", "local", "utc"]);
let form = /** @type {TimeForm} */ (stored("holdfast.time") ?? "relative");
if (!FORMS.includes(form)) form = "relative";

/** @param {string} key */
export function stored(key) {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

/** @param {string} key @param {string} value */
export function store(key, value) {
  try {
    localStorage.setItem(key, value);
  } catch {
    // Storage is blocked: the choice lasts until the page is closed.
  }
}

export function timeForm() {
  return form;
}

/** Goes on to the next form of times: relative, local, UTC. */
export function nextTimeForm() {
  form = FORMS[(FORMS.indexOf(form) + 1) % FORMS.length];
  store("holdfast.time", form);
  return form;
}

/** @param {Intl.DateTimeFormatOptions} options */
const formatter = (options) => new Intl.DateTimeFormat(locale, options);
/** @type {Intl.DateTimeFormatOptions} */
const FULL = { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" };
const fullLocal = formatter({ ...FULL, timeZoneName: "short" });
const fullUtc = formatter({ ...FULL, timeZone: "UTC", timeZoneName: "short" });
const clockLocal = formatter({ hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clockUtc = formatter({ hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: "UTC" });
const minuteLocal = formatter({ hour: "2-digit", minute: "2-digit" });
const minuteUtc = formatter({ hour: "2-digit", minute: "2-digit", timeZone: "UTC" });
const dayLocal = formatter({ month: "short", day: "numeric" });
const dayUtc = formatter({ month: "short", day: "numeric", timeZone: "UTC" });

/** @param {number} ms */
export function fullTime(ms, utc = form === "utc") {
  return (utc ? fullUtc : fullLocal).format(ms);
}

/** @param {number} ms */
export function clockTime(ms) {
  return (form === "utc" ? clockUtc : clockLocal).format(ms);
}

/** @param {number} ms */
export function minuteTime(ms) {
  return (form === "utc" ? minuteUtc : minuteLocal).format(ms);
}

/** @param {number} ms */
export function day(ms) {
  return (form === "utc" ? dayUtc : dayLocal).format(ms);
}

/** The hour offset-free day number of a time in the zone that is shown, to see where the day changes. @param {number} ms */
export function dayNumber(ms) {
  const zone = form === "utc" ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return Math.floor((ms - zone) / 86_400_000);
}
