// One autoscaler: its state, the decision as a tree, the charts with their cursor, and all that helps to judge them.

import { Plot } from "./chart.js";
import { cards, h, heading, morph, wide } from "./dom.js";
import { badge, source, step } from "./fleet.js";
import { KINDS, amount, count, duration, fromLocalTime, inZone, localTime, moment as written, pathTo, percent, plural, relative, seconds, sentenceOf, time, zone } from "./format.js";
import { STEPS, effect, known, momentOf, named, spoken, upcoming } from "./moment.js";
import { OF_FLOOR, SOURCES } from "./sources.js";
import { comparison } from "./worth.js";

const SPANS = { "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800 };
const NAMES = { "1h": "1 h", "6h": "6 h", "24h": "24 h", "7d": "7 d", all: "All" };
const DEFAULT = "6h";
/** Layers of the chart that are always drawn; the others only if they are picked. */
const LAYERS = ["min", "max", "ready", "short", ...SOURCES, "desired", "band", "needed", "expected", "ahead"];

let plot = null;
let hover = null;
let worth = {};

const keyOf = ({ path: [, resource, namespace, name] }) => ({ resource, namespace, name });
const pinned = (route) => (route.query.get("at") ? Number(route.query.get("at")) : null);

/** What the chart covers: what the URL says, or a length that ends ahead of now. */
function spanOf({ query }, now, recorded) {
  const [from, until] = [Number(query.get("from")), Number(query.get("until"))];
  if (from && until > from) return { from: Math.round(from), until: Math.round(until) };
  const chosen = query.get("span") ?? DEFAULT;
  const known = now - (recorded?.from ?? now);
  const all = Math.max(3600, known);
  // What has just begun to be recorded fills the chart, too.
  const first = Math.max(1800, Math.min(SPANS[DEFAULT], known));
  const length = chosen === "all" ? all : chosen === DEFAULT ? first : (SPANS[chosen] ?? first);
  return { from: now - length, until: now + Math.min(Math.round(length / 3), 43200) };
}

const outside = (at, { from, until }) => at < from || at > until;

const width = () => Math.max(280, Math.min(2000, document.querySelector(".chartbox")?.clientWidth ?? document.getElementById("main").clientWidth));

async function load(app, signal) {
  const base = pathTo(keyOf(app.route));
  const view = await app.get(base, signal);
  let span = spanOf(app.route, Math.floor(seconds(view.now) / 60) * 60, view.recorded);
  const at = pinned(app.route);
  if (at && !signal.aborted && outside(at, span)) {
    const half = Math.round((span.until - span.from) / 2);
    span = { from: at - half, until: at + half };
    app.amend({ from: String(span.from), until: String(span.until), span: null });
  }
  const asked = new URLSearchParams(span);
  const drawn = new URLSearchParams({ ...span, width: width(), zone: zone(), layers: [...LAYERS, app.route.query.get("show")].filter(Boolean).join() });
  const [history, chart] = await Promise.all([app.get(`${base}/history?${asked}`, signal), app.get(`${base}/chart.svg?${drawn}`, signal)]);
  appraise(app, base);
  return { view, history, chart, span };
}

/** The worth is computed from days of minutes, so it is asked for rarely, and nothing waits for it. */
async function appraise(app, base) {
  if (worth.base === base && performance.now() < worth.until) return;
  worth = { base, until: performance.now() + 60000, data: worth.base === base ? worth.data : undefined };
  try {
    worth.data = await app.get(`${base}/worth`);
  } catch (error) {
    worth.data = { error: error.message };
  }
  if (app.route.path[0] === "autoscalers") app.redraw();
}

// === parts ===

function head(app) {
  const { row, mode } = app.data.view;
  const [short, kind] = KINDS[row.resource] ?? ["", row.resource];
  const facts = [row.target, `${count(row.min)} to ${plural(row.max, "replica")}`, row.strategy === "Preview" ? "Preview: nothing is written" : row.strategy, mode];
  return [
    h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "#/fleet" }, "Fleet"), h("a", { href: `#/fleet?search=${encodeURIComponent(row.namespace)}` }, row.namespace), h("span", { title: kind }, short)),
    h("div.head", h("div", h("h1", row.name, badge(row.word)), h("p.meta", facts.filter(Boolean).map((fact) => h("span", fact)))),
      h("p.big", step(row.current, row.desired), h("small", row.current === row.desired ? "replicas" : "replicas now, and decided"))),
    trouble(app),
  ];
}

/** What is wrong, and what to do about it. */
function trouble({ data: { view } }) {
  const wrong = view.conditions.filter((condition) => !condition.healthy);
  if (!wrong.length && view.row.word === "fine") return null;
  const told = wrong.some((condition) => condition.message === view.row.sentence);
  return h(`section.trouble.${view.row.word}`, { "aria-label": "Trouble" },
    !told && h("p.sentence", inZone(view.row.sentence, seconds(view.now))),
    wrong.map((condition) => h("div", { "data-key": condition.type },
      h("h3", condition.type, " is ", condition.status, h("code", condition.reason)), h("p", condition.message), remedy(condition.remedy))));
}

function remedy(advice) {
  if (!advice) return null;
  return [h("p.advice", sentenceOf(advice.text)), advice.copy && copyable(advice.copy)];
}

export const copyable = (text) => h("div.copy", h("pre", { tabindex: 0 }, h("code", text)), h("button", { type: "button", "data-act": "copy" }, "Copy"));

/** The heading, the sentence and the tree of a moment. */
function why(app, moment) {
  const now = seconds(app.data.view.now);
  const { desired } = moment.values;
  const title = !known(desired) ? (moment.kind === "ahead" ? "What is expected" : "What was decided") : `Why ${plural(desired, "replica")}`;
  const away = outside(now, app.data.span) ? { from: null, until: null } : {};
  const back = moment.kind !== "now" && h("a.button", { href: app.link({ at: null, ...away }) }, "Back to now");
  const sentence = moment.text ?? (moment.kind === "unknown" ? "Nothing is recorded of this minute." : "No decision yet.");
  return [
    h("div.when", h("h2", title, " ", h("em", named(moment, now))), back),
    h("p.sentence", { "aria-live": hover === null ? "polite" : "off" }, sentence, moment.kind === "now" && h("small", upcoming(app.data))),
    tree(app, moment),
  ];
}

function tree(app, moment) {
  const node = (column, name, note, extra) => {
    const value = moment.values[column];
    const shown = app.route.query.get("show") === column;
    return h("button.node", {
      type: "button", "data-act": "pick", "data-layer": column, "aria-pressed": String(shown), class: `node ${column} ${extra}`,
      title: shown ? "Show all series again" : "Show this series in the chart",
    }, h("span", name), h("b", count(value)), h("small", note));
  };
  const sources = SOURCES.map((each) => node(each, each, basis(app, moment, each), moment.winner === each ? "wins" : ""));
  const steps = STEPS.map(([column, name]) => node(column, name, effect(column, moment), changes(column, moment) ? "changes" : ""));
  const { current, ready, floor } = moment.values;
  const beside = [
    [ready, `${count(ready)} of ${plural(current ?? ready, "replica")} ready`, "ready"],
    [floor, `floor of ${OF_FLOOR} ${count(floor)}`, "floor"],
  ].filter(([value]) => known(value));
  return [
    h("div.tree", { role: "group", "aria-label": "How the count comes about" }, h("div.sources", sources), steps),
    h("p.beside", beside.map(([, text, layer]) => h("button.chip", { type: "button", "data-act": "pick", "data-layer": layer, "aria-pressed": String(app.route.query.get("show") === layer), class: `chip ${layer}` }, text))),
  ];
}

function changes(column, { values }) {
  const before = { stabilized: "highest", limited: "stabilized", desired: "limited" }[column];
  return before && known(values[before]) && values[before] !== values[column];
}

/** What a source's count rests on. */
function basis({ data: { view, history } }, moment, name) {
  if (moment.kind === "past") {
    if (name === "observed") return moment.demand.map((each) => each.text).join(", ");
    if (!known(moment.values[name])) return "asks for nothing";
    if (name === "forecast") return `${amount(moment.values.expected)} replicas were expected`;
    return name === "cron" ? open(history, moment.at) : "";
  }
  if (moment.kind !== "now") return "";
  const own = (view.decision?.proposals ?? []).filter((proposal) => proposal.source === name);
  if (!own.length) return "not configured";
  if (own.every((proposal) => proposal.reason === "NoActiveWindow")) return "no window is open";
  const highest = own.reduce((best, each) => ((each.replicas ?? -1) > (best.replicas ?? -1) ? each : best));
  const { value, target } = view.amounts.find((each) => each.source === name && each.name === highest.name) ?? {};
  if (highest.replicas === undefined || !value) return highest.replicas === undefined ? highest.reason ?? "" : highest.name;
  return `${highest.name.replace(/^resource\./, "")} ${value}${target ? `, target ${target}` : ""}`;
}

const open = ({ windows }, at) => windows.filter((window) => window.from <= at && at < window.until).map((window) => window.name).join(", ");

function toolbar(app) {
  const { query } = app.route;
  const zoomed = query.get("from");
  const chosen = zoomed ? null : (query.get("span") ?? DEFAULT);
  const span = (name) => h("a", { href: app.link({ span: name === DEFAULT ? null : name, from: null, until: null }), "aria-current": name === chosen ? "true" : null }, NAMES[name]);
  return h("div.toolbar",
    h("nav.spans", { "aria-label": "Span" }, Object.keys(NAMES).map(span)),
    h("label.goto", "Go to", h("input", { type: "datetime-local", "data-change": "goto", step: 60, min: localTime(app.data.view.recorded?.from), max: localTime(app.data.span.until) })),
    zoomed ? h("span", `${written(app.data.span.from)} to ${written(app.data.span.until)}`, " ", h("a", { href: app.link({ from: null, until: null, at: null }) }, "Reset"))
      : h("span.hint", "Hover or use the arrow keys for a moment, click to keep it, drag to zoom"));
}

/** The chart as a table: the minutes in which something changed, the latest first. */
function asTable({ data: { history }, link }) {
  const columns = [["needed", "Needed"], ["expected", "Expected"], ...SOURCES.map((each) => [each, each[0].toUpperCase() + each.slice(1)]), ...STEPS.map(([column, name]) => [column, name]), ["ready", "Ready"]];
  const changed = (i) => !i || ["desired", "ready", "highest"].some((column) => history[column]?.[i] !== history[column]?.[i - 1]);
  const rows = history.times.map((_, i) => i).filter(changed).reverse().slice(0, 60);
  const row = (i) => h("tr", h("th", { scope: "row" }, h("a", { href: link({ at: history.times[i] }) }, written(history.times[i]))),
    columns.map(([column]) => h("td", column === "needed" || column === "expected" ? amount(history[column]?.[i]) : count(history[column]?.[i]))));
  return h("details.astable", h("summary", "The chart as a table"),
    wide("The chart as a table", h("table", h("caption", `Replicas at the last ${rows.length} changes of this span`),
      heading(["Minute", ...columns.map(([, name]) => `#${name}`)]), h("tbody", rows.map(row)))));
}

function keptSince({ data: { view }, overview }) {
  if (!view.recorded) return h("p.note", "Nothing is recorded yet.");
  return h("p.note", `Recorded since ${written(view.recorded.from)} (${zone()}). ${sentenceOf(overview.memory)}`);
}

const card = (title, ...content) => h("section.card", { "data-key": title }, h("h2", title), ...content);

function proposals({ view: { decision, amounts } }) {
  if (!decision?.proposals?.length) return null;
  const row = (each) => {
    const { value, target } = amounts.find((one) => one.source === each.source && one.name === each.name) ?? {};
    return h("tr", h("th", { scope: "row" }, source(each.source), h("small", each.name)), h("td", value ?? "–", target && h("small", `target ${target}`)), h("td", h("code", each.reason ?? "")), h("td.num", count(each.replicas)));
  };
  return card("Proposals now", wide("Proposals now", cards(["Source", "Value", "Reason", "#Replicas"], h("tbody", decision.proposals.map(row)))));
}

function model({ view }, app) {
  const forecasts = (view.decision?.proposals ?? []).filter((proposal) => proposal.source === "forecast");
  if (!forecasts.length) return card("Forecast", h("p", "No prediction is configured: counts follow metrics and cron windows alone."));
  const of = ({ name }) => view.amounts.find((one) => one.source === "forecast" && one.name === name) ?? {};
  return card("Forecast", forecasts.map((proposal) => forecast(proposal, of(proposal), app)));
}

function forecast({ name, reason, query, forecast: made }, { peak, raise, hold }, app) {
  const asked = ["Query", query && h("code", query)];
  if (!made) return h("div", { "data-key": name }, h("h3", name), h("p", "There is no forecast: ", h("code", reason ?? "Pending")), listed([asked]));
  const now = app.now();
  const facts = [
    ["Algorithm", made.algorithm],
    ["Covered", made.coverage && `${percent(made.coverage)} of the time, should be ${percent(made.quantile)}`],
    ["Skill", made.skill && `${percent(made.skill)} closer than the current demand, repeated`],
    ["Lead time", made.leadTimeSeconds && `${duration(made.leadTimeSeconds)}, ${{ measured: "measured from its pods", spec: "from its spec", default: "the default" }[made.leadTimeSource] ?? made.leadTimeSource}`],
    ["Looks ahead", made.windowSeconds && duration(made.windowSeconds)],
    ["Peak in it", peak],
    ["Count", raise && `raised for ${raise}, the peak when a new replica is ready; lowered for ${hold}, the peak until then`],
    ["Learned from", made.learntFrom && `${duration(now - seconds(made.learntFrom))} of history`],
    ["Resolution", made.minuteReadings && resolution(Number(made.minuteReadings))],
    ["Data until", made.knownUntil && (seconds(made.knownUntil) < now ? `${time(seconds(made.knownUntil), now)}, ${relative(seconds(made.knownUntil), now)}` : time(seconds(made.knownUntil), now))],
    asked,
  ];
  return h("div", { "data-key": name }, h("h3", name), h("p.verdict", appraisal(made)), made.message && h("p", h("code", made.remark), " ", made.message), listed(facts));
}

const listed = (facts) => h("dl", facts.filter(([, value]) => value).map(([name, value]) => [h("dt", name), h("dd", value)]));

const resolution = (share) => (share < 0.5 ? "learned from the query's own means; its minutes may vary more" : `learned from one-minute readings (${percent(share)})`);

/** Whether a forecast is any good, in a sentence. */
function appraisal({ coverage, quantile, skill }) {
  if (coverage === undefined || skill === undefined) return "Too young to be judged.";
  const useful = Number(skill) >= 0.3 ? "Good: better" : Number(skill) > 0 ? "Of some use: slightly better" : "Of no use: not better";
  const gap = Number(coverage) - Number(quantile);
  const covers = gap < -0.05 ? "less than it should" : gap > 0.08 ? "more than it should, which costs replicas" : "what it should";
  return `${useful} than repeating the current demand, and it covers ${covers}.`;
}

function value(app) {
  const { row } = app.data.view;
  const trial = row.resource !== "federatedhpas" && h("p.actions", h("a.button", { href: `#/lab?pick=${encodeURIComponent(`${row.resource}/${row.namespace}/${row.name}`)}` }, "Try other settings in the Lab"));
  const data = worth.data;
  if (!data) return card("Worth", h("p.note", "Computing…"));
  if (data.error) return card("Worth", h("p.note", `${data.error}.`), trial);
  return card("Worth", h("p.verdict", sentenceOf(data.verdict)), data.autoscalers > 0 && comparison(data), trial);
}

function windows({ view: { windows: all } }, app) {
  if (!all.length) return null;
  const now = app.now();
  const row = (each) => h("li", h("b", each.name), " ", each.active ? h("span.source.cron", "open") : "closed", h("small", each.nextTransition ? `${each.active ? "closes" : "opens"} ${relative(seconds(each.nextTransition), now)}, ${time(seconds(each.nextTransition), now)}` : "never again"));
  return card("Cron windows", h("ul.list", all.map(row)));
}

function changesOf({ view: { changes: all, mode, row: { resource, strategy } } }, app) {
  const now = app.now();
  const members = resource === "federatedhpas" && mode === "Delegated";
  const by = ({ to, message }) => {
    if (strategy === "Preview") return "changed by what scales it now; decided";
    return members && !message.startsWith(`${to} `) ? "changed by the members within their bounds; decided" : "decided";
  };
  const row = (each) => h("li", { "data-key": each.time }, h("a", { href: app.link({ at: Math.floor(seconds(each.time) / 60) * 60 }) }, time(seconds(each.time), now)), step(each.from, each.to), h("small", `${by(each)} ${inZone(each.message, seconds(each.time))}`));
  return card("Last changes", all.length ? h("ol.list.changes", all.map(row)) : h("p.note", "The count has not changed."));
}

function conditions({ view }) {
  const good = view.conditions.filter((condition) => condition.healthy);
  if (!good.length) return null;
  const row = (each) => h("li", { "data-key": each.type }, h("b", each.type), h("code", each.reason), h("small", each.message), remedy(each.remedy));
  return h("details.card", { "data-key": "conditions" }, h("summary", h("h2", `${plural(good.length, "condition")} as they should be`)), h("ul.list", good.map(row)));
}

/** Members, in groups of rows that may have a head. */
export function members(first, groups, now) {
  const moved = (at) => at && h("small", `last moved ${time(seconds(at), now)}`);
  const row = ({ key, name, status: each, lost }) => h(lost ? "tr.lost" : "tr", { "data-key": key },
    h("th", { scope: "row" }, name), h("td.num", count(each.ready)), h("td.num", count(each.current)),
    h("td.num", each.pending ? h("b.bad", count(each.pending)) : count(each.pending)), h("td.num", count(each.floor)), h("td.num", spent(each) && h("span.badge.capped", "used up"), " ", `${count(each.min)} to ${count(each.max)}`),
    h("td.num", full(each) && h("span.badge.capped", "full"), " ", count(each.capacity)), h("td.num", !known(each.utilization) ? "–" : `${each.utilization} %`), h("td.why", each.reason, moved(each.lastTransfer)));
  const group = ({ title, rows }) => h("tbody", title && h("tr.group", h("th", { scope: "rowgroup", colspan: 9 }, title)), rows.map(row));
  return wide("Members", cards([first, "#Ready", "#Current", "#Pending", "#Floor", "#Budget", "#Capacity", "#Load, of its target", "Moves"], groups.map(group)));
}

/** Whether a cluster can run no more. */
export const full = ({ capacity, current, pending }) => Boolean(pending) || (known(capacity) && (current ?? 0) >= capacity);

/** Whether a cluster runs as many as it may. */
export const spent = ({ current, max }) => known(max) && (current ?? 0) >= max;

// === the moment ===

function tip(app, moment) {
  const { values } = moment;
  const lines = [
    known(values.needed) && ["observed", "needed", amount(values.needed)],
    known(values.expected) && ["forecast", "expected", `${amount(values.expected)}${known(values.expectedUpper) ? ` to ${amount(values.expectedUpper)}` : ""}`],
    ...SOURCES.filter((source) => source !== "observed" && source !== "forecast").map((source) => known(values[source]) && [source, `${source} asks for`, count(values[source])]),
    known(values.desired) && ["desired", "desired", count(values.desired)],
    known(values.ready) && ["ready", "ready", count(values.ready)],
  ].filter(Boolean);
  return [h("b", named(moment, app.now())), ...lines.map(([role, name, text]) => h("div", h(`i.key.${role}`), h("span", name), h("b", text)))];
}

/** Draws what depends on the moment only. */
function show(app) {
  const at = hover ?? pinned(app.route);
  const moment = momentOf(app.data, at);
  morph(document.getElementById("why"), h("section", why(app, moment)));
  plot?.show(at, at === null ? [] : tip(app, moment), spoken(moment));
}

let frame = null;

export const workload = {
  title: ({ path }) => (path ? path[3] : "Autoscaler"),
  watches: (route) => keyOf(route),
  load,

  /** Minutes of days need not be asked for every two seconds. */
  pace(app) {
    const { from, until } = app.data?.span ?? { from: 0, until: 0 };
    return until - from > 2 * 86400 ? 30 : until - from > 43200 ? 10 : 2;
  },

  /** Only the moment differs, and is in the chart. */
  stays(before, after, data) {
    if (!data || (pinned(after) && outside(pinned(after), data.span))) return false;
    const rest = ({ query }) => {
      const others = new URLSearchParams(query);
      others.delete("at");
      return others.toString();
    };
    return rest(before) === rest(after);
  },

  skeleton: ({ path }) => [
    h("nav.crumbs", h("a", { href: "#/fleet" }, "Fleet"), h("a", { href: `#/fleet?search=${encodeURIComponent(path[2])}` }, path[2]), h("span", KINDS[path[1]]?.[0] ?? "")),
    h("div.head", h("div", h("h1", path[3]), h("p.meta", "Loading…"))),
    h("div.panel.waiting", h("div.ghost.tall"), h("div.chartbox")),
  ],

  draw(app) {
    const { data } = app;
    return [
      head(app),
      h("div.panel", h("section", { id: "why", "data-own": true }), toolbar(app), h("div.chartbox", { "data-own": true }), keptSince(app), asTable(app)),
      data.view.clusters.length > 0 && card("Clusters", members("Cluster", [{ rows: data.view.clusters.map((status) => ({ key: status.name, name: status.name, status })) }], app.now())),
      h("div.two", h("div", changesOf(data, app), windows(data, app)), h("div", model(data, app), value(app), proposals(data))),
      conditions(data),
    ];
  },

  drawn(app, main) {
    const host = main.querySelector(".chartbox");
    if (plot?.host !== host) {
      plot = Object.assign(new Plot(host, {
        now: () => Math.floor(app.now() / 60) * 60,
        hover(at) {
          if (at === hover) return;
          hover = at;
          frame ??= requestAnimationFrame(() => {
            frame = null;
            if (app.data && plot?.host.isConnected) show(app);
          });
        },
        pin: (at) => app.go({ at: at === null ? null : String(at) }, true),
        zoom: (from, until) => app.go({ from: String(Math.round(from)), until: String(Math.round(until)), span: null }),
      }), { host });
      hover = null;
    }
    plot.draw(app.data.chart, `Demand and replicas of ${app.route.path[3]}; the table below has the numbers`);
    plot.pick(app.route.query.get("show"));
    show(app);
  },

  acts: {
    /** A minute that is typed, with the hours around it unless it is in the chart. */
    goto(input, _, app) {
      const at = Math.floor(fromLocalTime(input.value) / 60) * 60;
      if (!at) return;
      const { from, until } = app.data.span;
      app.go({ at: String(at), ...(at < from || at > until ? { from: String(at - 10800), until: String(at + 10800), span: null } : {}) });
    },
    pick(button, _, app) {
      const { layer } = button.dataset;
      app.go({ show: app.route.query.get("show") === layer ? null : layer }, true);
    },
  },
};
