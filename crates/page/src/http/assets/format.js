// Numbers, times and words as people write them.
/** The zone in which times are written: the reader's, or UTC if chosen. */
export const zone = () =>
  localStorage.getItem("zone") === "UTC" ? "UTC" : Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** Between the reader's zone and UTC. */
export function toggleZone() {
  localStorage.setItem("zone", localStorage.getItem("zone") === "UTC" ? "local" : "UTC");
  formats.clear();
}

const formats = new Map();

function format(options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) {
    formats.set(key, new Intl.DateTimeFormat("en-GB", { timeZone: zone(), hourCycle: "h23", ...options }));
  }
  return formats.get(key);
}

const clock = (seconds) => format({ hour: "2-digit", minute: "2-digit" }).format(seconds * 1000);
const day = (seconds) => format({ weekday: "short", day: "numeric", month: "short" }).format(seconds * 1000).replace(",", "");

/** Seconds since 1970 of an RFC 3339 text. */
export const seconds = (text) => (text ? Math.floor(Date.parse(text) / 1000) : null);

/** `14:05`, `yesterday 14:05`, `Tue 24 Nov 14:05`. */
export function time(at, now) {
  const which = day(at);
  if (which === day(now)) return clock(at);
  if (which === day(now - 86400)) return `yesterday ${clock(at)}`;
  if (which === day(now + 86400)) return `tomorrow ${clock(at)}`;
  return `${which} ${clock(at)}`;
}

/** `Tue 24 Nov 14:05`. */
export const moment = (at) => `${day(at)} ${clock(at)}`;
export { clock, day };

/** A text of Foretide, which writes times of day in UTC, with those in the zone of the page. */
export const inZone = (text, near) => text?.replace(/\b(\d\d):(\d\d) UTC\b/g, (_, hours, minutes) => clock(near - (near % 86400) + hours * 3600 + minutes * 60));

/** What an input of times holds, in the zone of the page. */
export function localTime(at) {
  if (!at) return null;
  const offset = zone() === "UTC" ? 0 : new Date(at * 1000).getTimezoneOffset() * 60;
  return new Date((at - offset) * 1000).toISOString().slice(0, 16);
}

/** The seconds since 1970 of such a time; `NaN` if there is none. */
export const fromLocalTime = (text) => Date.parse(zone() === "UTC" ? `${text}Z` : text) / 1000;

/** `45 s`, `12 min`, `3 h 10 min`, `9 d`. */
export function duration(length) {
  const n = Math.max(0, Math.round(length));
  if (n < 60) return `${n} s`;
  if (n < 3600) return `${Math.round(n / 60)} min`;
  const pair = (big, bigUnit, small, smallUnit) => (small ? `${big} ${bigUnit} ${small} ${smallUnit}` : `${big} ${bigUnit}`);
  if (n < 86400) return pair(Math.floor(n / 3600), "h", Math.round((n % 3600) / 60) % 60, "min");
  return pair(Math.floor(n / 86400), "d", Math.round((n % 86400) / 3600) % 24, "h");
}

/** `in 3 h`, `2 min ago`. */
export const relative = (at, now) => (at > now ? `in ${duration(at - now)}` : `${duration(now - at)} ago`);

const number = (digits) => new Intl.NumberFormat("en-US", { maximumFractionDigits: digits });

/** A number with as many digits as it deserves. */
export function amount(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  return number(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3).format(value);
}

/** Whole numbers with separators. */
export const count = (value) => (value === null || value === undefined ? "–" : number(0).format(value));

/** `1 replica`, `3 replicas`. */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** A value in its own unit. */
export function inUnit(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit !== "bytes") return unit ? `${amount(value)} ${unit}` : amount(value);
  const power = Math.min(4, Math.floor(Math.log2(Math.max(1, value)) / 10));
  return `${amount(value / 1024 ** power)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

/** `62 %` of a share as text or number. */
export const percent = (share) => (share === undefined || share === null ? "–" : `${Math.round(Number(share) * 100)} %`);

/** A text as a sentence of its own. */
export const sentenceOf = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

/** What each state is called, and means, worst first. */
export const WORDS = {
  short: "fewer replicas serve than the demand needs",
  unready: "it cannot act",
  conflict: "something else sets the same replicas",
  capped: "a maximum is below what is asked for",
  untrusted: "a forecast, a cron or a metric is not used",
  fine: "none of these",
};

/** The short and the long name of a resource. */
export const KINDS = {
  effectivehorizontalpodautoscalers: ["ehpa", "EffectiveHorizontalPodAutoscaler"],
  federatedhpas: ["fhpa", "FederatedHPA"],
};

/** The fragment of an autoscaler's view. */
export const linkTo = ({ resource, namespace, name }) =>
  `#/autoscalers/${[resource, namespace, name].map(encodeURIComponent).join("/")}`;

/** The path of an autoscaler's answers. */
export const pathTo = ({ resource, namespace, name }) =>
  `api/v1/autoscalers/${[resource, namespace, name].map(encodeURIComponent).join("/")}`;
