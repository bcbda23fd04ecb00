// What Foretide was worth beside a plain HPA with the same demand.

import { cards, h, s, wide } from "./dom.js";
import { amount, count, duration, linkTo, moment, plural, sentenceOf } from "./format.js";

const hours = (value) => `${amount(value)} replica-hours`;
/** `+2 %` more, or less, than a plain HPA. */
export function signed(value) {
  const shown = amount(Math.round(value * 10) / 10 || 0);
  return `${value > 0 && shown !== "0" ? "+" : ""}${shown} %`;
}
const short = (minutes) => (minutes ? duration(minutes * 60) : "0 min");

/** Both sides as bars, for each of the two costs. */
export function comparison({ actual, plain }) {
  const pair = (title, of, text) => {
    const most = Math.max(of(actual), of(plain)) || 1;
    const bar = (name, side, role) => h("div.measure", h("span", name), s("svg", { class: `meter ${role}`, "aria-hidden": "true" }, s("rect", { width: "100%", height: "100%", class: "ground" }), s("rect", { width: `${(100 * of(side)) / most}%`, height: "100%" })), h("b", text(of(side))));
    return h("div.pair", h("h3", title), bar("Foretide", actual, "ours"), bar("plain HPA", plain, "plain"));
  };
  return [
    pair("Too few replicas", (side) => side.shortMinutes, short),
    pair("Paid for", (side) => side.replicaHours, hours),
    h("p.note", `${plural(actual.actions, "change")} of the count, by a plain HPA ${count(plain.actions)}.`),
  ];
}

function each(rows) {
  if (!rows?.length) return null;
  const percent = ({ actual, plain }) => (plain.replicaHours ? signed((100 * actual.replicaHours) / plain.replicaHours - 100) : "–");
  const row = (one) => h("tr", { "data-key": linkTo(one.autoscaler) }, h("th", { scope: "row" }, h("a", { href: linkTo(one.autoscaler) }, one.autoscaler.name), h("small", one.autoscaler.namespace)),
    h("td.num", short(one.actual.shortMinutes)), h("td.num", short(one.plain.shortMinutes)), h("td.num", percent(one)), h("td.why", sentenceOf(one.verdict)));
  return h("section.card", h("h2", "By autoscaler"), wide("By autoscaler", cards(["Autoscaler", "#Short", "#Short, plain HPA", "#Replica-hours", "Verdict"], h("tbody", rows.map(row)))));
}

export const worth = {
  title: () => "Worth",
  pace: () => 30,
  load: (app, signal) => app.get("api/v1/worth", signal),
  skeleton: () => h("div.waiting", h("h1", "Worth"), h("div.ghost.tall"), h("div.ghost.tall")),

  draw({ data }) {
    const counted = `${plural(data.autoscalers, "autoscaler")}${data.leftOut ? `, ${count(data.leftOut)} not compared` : ""}`;
    const span = data.span && `${moment(data.span.from)} to ${moment(data.span.until)}`;
    const facts = [counted, span].filter(Boolean).map((fact) => h("span", fact));
    const head = h("div.head", h("div", h("h1", "Worth"), h("p.meta", facts)));
    if (!data.autoscalers) return [head, h("div.empty", h("h2", "Nothing to compare yet"), h("p", sentenceOf(data.verdict || "some hours must be recorded first")))];
    return [
      head,
      h("section.panel", h("p.verdict.large", sentenceOf(data.verdict)), h("div.sides", comparison(data)), h("h3", "Assumed"), h("ul", data.assumptions.map((text) => h("li", text)))),
      each(data.each),
    ];
  },
};
