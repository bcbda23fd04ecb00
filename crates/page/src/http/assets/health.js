// What Foretide reads, and whether it is current; who leads; who is in the way.

import { h, heading, wide } from "./dom.js";
import { badge } from "./fleet.js";
import { count, duration, linkTo, moment, seconds, sentenceOf } from "./format.js";

function sources(list) {
  const row = (each) => h("tr", { "data-key": each.name }, h("td.state", h(`span.badge.${each.healthy ? "fine" : "short"}`, each.healthy ? "current" : "failing")),
    h("th", { scope: "row" }, each.name), h("td.num", each.ageSeconds === undefined ? "–" : `${duration(each.ageSeconds)} ago`), h("td.num", count(each.errors)), h("td.why", each.problem || "–"));
  return h("section.card", h("h2", "What it reads"), list.length ? wide("What it reads", h("table", heading(["State", "Source", "#Last answer", "#Failures", "Problem"]), h("tbody", list.map(row)))) : h("p.note", "Nothing is read here."));
}

function conflicts(rows) {
  if (!rows.length) return null;
  const line = (row) => h("li", { "data-key": linkTo(row) }, h("a", { href: linkTo(row) }, `${row.namespace}/${row.name}`), " ", badge(row.word), h("small", row.sentence));
  return h("section.card", h("h2", "Conflicts"), h("ul.list", rows.map(line)));
}

const fact = (name, value, note) => h("div.fact", h("span", name), h("b", value), note && h("small", note));

const STATES = { unready: "not ready", short: "failing", conflict: "conflicts", fine: "healthy" };

export const health = {
  title: () => "Health",
  load: (app, signal) => app.get("api/v1/health", signal),
  skeleton: () => h("div.waiting", h("h1", "Health"), h("div.ghost.tall"), h("div.ghost.tall")),

  draw({ data, overview }) {
    const failing = data.sources.filter((source) => !source.healthy);
    const word = data.unready ? "unready" : failing.length ? "short" : data.conflicts.length ? "conflict" : "fine";
    const text = data.unready ?? (failing.length ? `${failing.map((source) => source.name).join(", ")}: not current` : data.conflicts.length ? "Everything is read; some autoscalers are in conflict" : "Everything is read and decided in time");
    return [
      h("div.head", h("div", h("h1", "Health"), h("p.meta", h("span", `Foretide ${overview.version}`)))),
      h(`section.trouble.${word}`, { "aria-label": "Summary" }, h("p.sentence", h(`span.badge.${word}`, STATES[word]), text)),
      h("section.facts",
        fact("Leader", overview.leads ? (overview.leader ?? "this process") : (overview.leader ?? "nobody"), overview.leads ? "decides here" : "this process stands by"),
        fact("Behind by", data.lagSeconds < 1 ? "less than 1 s" : duration(data.lagSeconds), "the most overdue autoscaler"),
        fact("Recorded since", overview.recordedSince ? moment(seconds(overview.recordedSince)) : "–", sentenceOf(overview.memory))),
      sources(data.sources),
      conflicts(data.conflicts),
    ];
  },
};
