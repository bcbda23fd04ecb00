// What was decided at a moment, and why: from the recorded columns, or, for now, from the decision itself.

import { amount, clock, count, inUnit, inZone, moment as written, seconds, time } from "./format.js";
import { SOURCES } from "./sources.js";

/** The steps of a decision after its sources: column, name, and how the decision names it. */
export const STEPS = [
  ["highest", "Highest proposal", "maximum"],
  ["stabilized", "Stabilized", "stabilized"],
  ["limited", "Limited", "limited"],
  ["desired", "Desired", "desired"],
];
const COLUMNS = ["needed", "expected", "expectedUpper", "current", "ready", "floor", "min", "max", ...SOURCES, ...STEPS.map(([column]) => column)];

/** The index of the last value that is not above `wanted`, in a sorted list; -1 if there is none. */
export function last(sorted, wanted) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= wanted) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** The moment `at`, or now if that is `null`. */
export function momentOf({ view, history }, at) {
  if (at === null) return present(view, history);
  const index = last(history.times, at);
  const newest = history.times.at(-1);
  if (newest === undefined || at >= newest + 60) return coming(history, at);
  if (index < 0 || at - history.times[index] >= 2 * history.stepSeconds) return { kind: "unknown", at, values: {} };
  const values = Object.fromEntries(COLUMNS.map((column) => [column, history[column]?.[index]]));
  const demand = history.demand.map(({ metric, unit, values: column }) => ({ metric, text: inUnit(column[index], unit) }));
  return { ...sentence(history.sentences, at), kind: "past", at, values, demand };
}

function present(view, history) {
  const decision = view.decision ?? {};
  const end = history.times.length - 1;
  const values = Object.fromEntries(COLUMNS.map((column) => [column, history[column]?.[end]]));
  Object.assign(values, { current: view.row.current, floor: decision.floor, min: view.row.min, max: view.row.max });
  for (const source of SOURCES) values[source] = decision.sources?.[source];
  for (const [column, , name] of STEPS) values[column] = decision[name];
  const at = seconds(view.now);
  return { kind: "now", at, values, winner: decision.winner, limit: decision.limit, text: inZone(decision.message ?? view.row.sentence, at) };
}

function coming(history, at) {
  const index = last(history.ahead.times, at);
  const near = index >= 0 && at - history.ahead.times[index] < 3600;
  const open = history.windows.filter((window) => window.from <= at && at < window.until);
  const expected = near ? history.ahead.expected[index] : null;
  const upper = near ? history.ahead.upper[index] : null;
  const parts = [
    expected === null ? "The forecast in force does not reach this moment." : `The demand is expected to need ${amount(expected)} replicas${upper === null || upper === undefined ? "" : `, at most ${amount(upper)}`}.`,
    ...open.map((window) => `Window ${window.name} asks for ${count(window.replicas)}.`),
  ];
  const cron = open.length ? Math.max(...open.map((window) => window.replicas)) : null;
  return { kind: "ahead", at, values: { expected, expectedUpper: upper, cron }, text: parts.join(" ") };
}

function sentence(sentences, at) {
  const index = last(sentences.map((each) => each.at), at + 59);
  return index < 0 ? {} : { ...sentences[index], text: inZone(sentences[index].text, at) };
}

/** `now`, or the time of a moment. */
export const named = (moment, now) => (moment.kind === "now" ? "now" : time(moment.at, now));

/** A moment in words, for a screen reader. */
export function spoken(moment) {
  const { desired, ready } = moment.values;
  const counts = desired === null || desired === undefined ? "" : `${count(desired)} replicas desired, ${count(ready)} ready. `;
  return `${moment.kind === "now" ? "now" : written(moment.at)}: ${counts}${moment.text ?? "nothing is recorded"}`;
}

/** What a step made of the count before it. */
export function effect(column, { values, winner, limit }) {
  const before = { stabilized: "highest", limited: "stabilized", desired: "limited" }[column];
  const [is, was] = [values[column], values[before]];
  if (column === "highest") return winner ? `from ${winner}` : "nothing asks";
  if (column === "stabilized" && !known(was)) return known(is) ? "kept as it is" : "";
  if (known(is) && known(was) && is !== was) {
    if (column === "stabilized") return is > was ? `held ${count(is - was)} higher` : `held ${count(was - is)} lower`;
    if (column === "limited") return is > was ? "scale-down is limited" : "scale-up is limited";
    return is > was ? (is === values.min ? "raised to minReplicas" : `raised to the floor`) : "capped by maxReplicas";
  }
  if (column === "stabilized") return "nothing held";
  if (column === "limited") return "no policy limits";
  return known(values.min) ? `within ${count(values.min)} to ${count(values.max)}` : (limit ?? "");
}

export const known = (value) => value !== null && value !== undefined;

/** When the forecast asks for fewer than are decided, for as long as it looks ahead. */
function falls({ times, expected, upper }, now, desired, lead) {
  const asks = times.map((_, i) => Math.ceil(upper[i] ?? expected[i]));
  const index = times.findIndex((at, i) => at > now && asks[i] < desired && times.every((later, j) => j < i || later > at + lead || asks[j] < desired));
  return index < 0 ? null : { at: times[index], text: `${roughly(times[index], now)}, when the forecast asks for ${count(asks[index])}` };
}

/** When the scale-down window ends, which only the sentence says. */
function until(message, now) {
  const [, end] = inZone(message, now)?.match(/scale-down window until (\d\d:\d\d)/) ?? [];
  return end ? `${end}, ` : "";
}

/** A time that is about right. */
const roughly = (at, now) => (at <= now + 60 ? "soon" : `about ${clock(at)}`);

/** What happens next: the forecast crossing the count, the end of what is held, or a window. */
export function upcoming({ view, history }) {
  const now = seconds(view.now);
  if (view.row.strategy === "Preview" || view.row.word === "conflict") return "";
  const desired = view.decision?.desired;
  const lead = Math.max(0, ...(view.decision?.proposals ?? []).map((proposal) => proposal.forecast?.windowSeconds ?? 0));
  const found = [];
  const { times, expected, upper } = history.ahead;
  const index = times.findIndex((at, i) => at > now && known(desired) && Math.ceil(upper[i] ?? expected[i]) > desired);
  if (index >= 0) {
    const at = Math.max(now, times[index] - lead);
    const asks = Math.ceil(upper[index] ?? expected[index]);
    const limit = asks > view.row.max ? `, of which maxReplicas allows ${count(view.row.max)}` : "";
    found.push({ at, text: `${roughly(at, now)}, when the forecast asks for ${count(asks)}${limit}` });
  }
  const { stabilized, maximum, sources } = view.decision ?? {};
  const least = Math.max(maximum, view.row.min);
  if (stabilized > maximum && desired > least) found.push({ at: now, text: `${until(view.decision.message, now)}when the scale-down window ends, from ${count(desired)} towards ${count(least)}` });
  else if (known(desired) && desired > view.row.min && sources?.forecast >= desired) found.push(...[falls(history.ahead, now, desired, lead)].filter(Boolean));
  const window = view.row.nextWindow;
  if (window) found.push({ at: seconds(window.at), text: `${time(seconds(window.at), now)}, when window ${window.name} ${window.opens ? "opens" : "closes"}` });
  found.sort((a, b) => a.at - b.at);
  if (found.length) return `Next: ${found.slice(0, 2).map(({ text }) => text).join("; ")}.`;
  if (times.length) return `Next: the forecast asks for no more until ${time(times.at(-1), now)}.`;
  return known(desired) ? "Next: when a metric asks for it; no forecast or cron window is ahead." : "";
}
