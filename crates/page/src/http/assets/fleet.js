// Every autoscaler, worst first: what it comes to, why, and where it goes.

import { h, s, wide } from "./dom.js";
import { KINDS, WORDS, count, inZone, linkTo, plural, relative, seconds, time } from "./format.js";

const PAGE = 50;

/** What a state is called, with a mark that is not only a color. */
export const badge = (word) => h(`span.badge.${word}`, { title: WORDS[word] }, word);

/** `12 → 14`, or one number. */
export function step(current, desired) {
  if (current === undefined || desired === undefined) return h("span.none", "–");
  if (current === desired) return h("b", count(current));
  return h("span.step", count(current), h("span", { class: desired > current ? "up" : "down", "aria-label": "to" }, "→"), h("b", count(desired)));
}

/** The source that decides. */
export const source = (name) => (name ? h(`span.source.${name}`, name) : h("span.none", "–"));

function sparkline(line) {
  if (!line) return null;
  return s("svg", { viewBox: "0 0 120 24", class: "spark", role: "img", "aria-label": line.label, preserveAspectRatio: "none" },
    s("path", { class: "past", d: line.past }), s("path", { class: "ahead", d: line.ahead }));
}

function nextWindow(next, now) {
  if (!next) return h("span.none", "–");
  const at = seconds(next.at);
  return [h("span", { title: time(at, now) }, `${next.opens ? "opens" : "closes"} ${relative(at, now)}`), h("small", next.name)];
}

function row(each, now) {
  const key = `${each.resource}/${each.namespace}/${each.name}`;
  const why = inZone(each.sentence, now);
  return h("tr", { "data-key": key, "data-word": each.word },
    h("td.state", badge(each.word)),
    h("th.name", { scope: "row" }, h("a", { href: linkTo(each) }, each.name),
      h("small", each.namespace, " · ", each.target.replace(` ${each.name}`, ""), each.strategy === "Preview" && " · Preview")),
    h("td.why", { title: why }, h("span", why)),
    h("td.count", step(each.current, each.desired), h("small", `${each.min} to ${each.max}`)),
    h("td.winner", source(each.winner)),
    h("td.trend", sparkline(each.sparkline)),
    h("td.window", nextWindow(each.nextWindow, now)));
}

const COLUMNS = [
  ["word", "State"],
  ["name", "Autoscaler"],
  [null, "Why"],
  ["desired", "Replicas"],
  [null, "Decided by"],
  [null, "Last 6 h, and ahead"],
  ["window", "Next window"],
];

function head(app) {
  const sort = app.route.query.get("sort") || "word";
  const cell = ([name, title]) => {
    if (!name) return h("th", { scope: "col" }, title);
    const up = sort === name;
    const down = sort === `-${name}`;
    const href = app.link({ sort: up ? `-${name}` : name === "word" ? null : name, offset: null });
    return h("th", { scope: "col", "aria-sort": up ? "ascending" : down ? "descending" : null }, h("a", { href }, title));
  };
  return h("thead", h("tr", COLUMNS.map(cell)));
}

function filters(app, counts) {
  const chosen = app.route.query.get("word");
  const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
  const filter = (word, n) => h("a", {
    class: `filter ${word ?? "all"}`, href: app.link({ word, offset: null }), "data-key": word ?? "all",
    "aria-current": (chosen ?? null) === word ? "true" : null, title: word && WORDS[word],
  }, h("b", count(n)), " ", word ?? "all");
  const words = Object.keys(WORDS).filter((word) => counts[word] || word === chosen);
  return h("nav.filters", { "aria-label": "States" }, filter(null, total), words.map((word) => filter(word, counts[word] ?? 0)), share(counts, total));
}

/** The states as parts of one bar. */
function share(counts, total) {
  let x = 0;
  const part = (word) => {
    const width = total ? (100 * (counts[word] ?? 0)) / total : 0;
    x += width;
    return s("rect", { class: word, x: `${x - width}%`, width: `${width}%`, height: "100%" });
  };
  return s("svg", { class: "share", "aria-hidden": "true" }, ...Object.keys(WORDS).map(part));
}

function pages(app, matching) {
  const offset = Number(app.route.query.get("offset")) || 0;
  if (matching <= PAGE && !offset) return null;
  const to = (start, text) => h("a.button", { href: start < 0 || start >= matching ? null : app.link({ offset: start || null }) }, text);
  return h("nav.pages", { "aria-label": "Pages" },
    to(offset > 0 ? Math.max(0, offset - PAGE) : -1, "Previous"),
    h("span", `${count(offset + 1)} to ${count(Math.min(offset + PAGE, matching))} of ${count(matching)}`),
    to(offset + PAGE, "Next"));
}

function table(app, { rows, now, matching }) {
  if (!rows.length) return nothing(app);
  return [wide("Autoscalers", h("table.fleet", head(app), h("tbody", rows.map((each) => row(each, seconds(now)))))), pages(app, matching)];
}

function nothing(app) {
  if (app.data.matching) return h("div.empty", h("h2", "There are no more autoscalers"), h("p", h("a", { href: app.link({ offset: null }) }, "To the first")));
  const filtered = app.route.query.get("search") || app.route.query.get("word");
  if (filtered) return h("div.empty", h("h2", "No autoscaler matches"), h("p", h("a", { href: "#/fleet" }, "Show all")));
  const standby = !app.overview.leads;
  return h("div.empty",
    h("h2", standby ? "This process does not lead" : "There is no autoscaler yet"),
    h("p", standby ? `${app.overview.leader ?? "Another one"} decides; its page has the autoscalers.`
      : `An autoscaler appears here after its first decision: an ${KINDS.effectivehorizontalpodautoscalers[1]} or a ${KINDS.federatedhpas[1]}.`));
}

/** What the reader may see, and the controller could not ask about. */
const hidden = ({ unreviewedNamespaces: n }) => n > 0 && h("p.note", `The rights in ${plural(n, "namespace")} could not be reviewed in time; they may be missing here.`);

let typing;

export const fleet = {
  title: () => "Fleet",

  load(app, signal) {
    const { query } = app.route;
    const asked = new URLSearchParams({ limit: PAGE });
    for (const name of ["word", "search", "sort", "offset"]) if (query.get(name) && (name !== "word" || Object.hasOwn(WORDS, query.get(name)))) asked.set(name, query.get(name));
    return app.get(`api/v1/autoscalers?${asked}`, signal);
  },

  skeleton: () => h("div.waiting", h("h1", "Fleet"), h("div.filters"), Array.from({ length: 9 }, () => h("div.ghost"))),

  draw(app) {
    const { counts, current, desired } = app.data;
    const total = Object.values(counts).reduce((sum, n) => sum + n, 0);
    const sums = `${plural(total, "autoscaler")}, ${plural(current, "replica")} now, ${count(desired)} decided`;
    const search = h("input", {
      type: "search", "data-input": "search", placeholder: "Search name, namespace or target", "aria-label": "Search name, namespace or target",
      value: app.route.query.get("search") ?? "", spellcheck: "false", autocomplete: "off",
    });
    return [
      h("div.head", h("div", h("h1", "Fleet"), h("p.meta", sums), hidden(app.overview)), h("form", { role: "search", "data-submit": "none" }, search, h("kbd", { "aria-hidden": "true" }, "/"))),
      filters(app, counts),
      table(app, app.data),
    ];
  },

  acts: {
    search(input, _, app) {
      clearTimeout(typing);
      typing = setTimeout(() => app.go({ search: input.value.trim(), offset: null }, true), 200);
    },
  },
};
