// The cron windows of all autoscalers over some weeks.

import { h, parseSvg, wide } from "./dom.js";
import { clock, day, duration, linkTo, plural, zone } from "./format.js";

const WEEKS = [1, 2, 4, 8];

/** A drawing of the server, which stays as it is until its text differs. */
export function figure(text, label) {
  const svg = text && parseSvg(text, label);
  return svg && wide(label, h("div.figure", svg));
}

/** The same in a panel. */
export function drawing(text, label) {
  const shown = figure(text, label);
  return shown && h("section.panel", shown);
}

/** How wide a drawing in a panel is. */
export const drawnWidth = () => Math.max(280, Math.min(1320, document.getElementById("main").clientWidth - (innerWidth > 760 ? 82 : 58)));

function toolbar(app, span) {
  const weeks = Number(app.route.query.get("weeks")) || 2;
  const week = 7 * 86400;
  const to = (from, text) => h("a.button", { href: app.link({ from }) }, text);
  const length = (n) => h("a", { href: app.link({ weeks: n === 2 ? null : n }), "aria-current": n === weeks ? "true" : null }, plural(n, "week"));
  return h("div.toolbar.plain",
    to(String(span.from - weeks * week), "Earlier"), to(null, "Today"), to(String(span.from + weeks * week), "Later"),
    h("nav.spans", { "aria-label": "Weeks" }, WEEKS.map(length)));
}

function agenda({ windows, clockChanges, zone: days }, namespace) {
  const entries = [...windows.map((each) => ({ at: each.from, window: each })), ...clockChanges.map((change) => ({ at: change.at, change }))].sort((a, b) => a.at - b.at);
  const byDay = new Map();
  for (const entry of entries) byDay.set(day(entry.at), [...(byDay.get(day(entry.at)) ?? []), entry]);
  const line = ({ at, window, change }) => change
    ? h("li.clocks", h("b", clock(at)), h("span", `The clocks of ${change.zone} go ${change.forward > 0 ? "forward" : "back"} by ${duration(Math.abs(change.forward))}.`))
    : h("li", h("b", `${clock(at)} – ${clock(window.until)}`), h("span", h("a", { href: linkTo(window.autoscaler) }, `${namespace ? "" : `${window.autoscaler.namespace}/`}${window.autoscaler.name}`), " ", window.name,
      h("small", ` at least ${plural(window.replicas, "replica")}${window.zone === days ? "" : `, written in ${window.zone}`}`)));
  return [...byDay].map(([name, lines]) => h("section.day", { "data-key": name }, h("h3", name), h("ul.list", lines.map(line))));
}

export const calendar = {
  title: () => "Calendar",
  pace: () => 30,

  load(app, signal) {
    const { query } = app.route;
    const asked = new URLSearchParams({ zone: zone(), weeks: query.get("weeks") ?? 2, width: drawnWidth() });
    for (const name of ["from", "namespace"]) if (query.get(name)) asked.set(name, query.get(name));
    return app.get(`api/v1/calendar?${asked}`, signal);
  },

  skeleton: () => h("div.waiting", h("h1", "Calendar"), h("div.ghost.tall"), h("div.ghost.tall")),

  draw(app) {
    const { data } = app;
    const namespace = app.route.query.get("namespace");
    const spaces = [...new Set(data.windows.map((each) => each.autoscaler.namespace))].sort();
    const choice = h("select", { "data-change": "namespace", "aria-label": "Namespace" }, h("option", { value: "", selected: !namespace }, "All namespaces"),
      (namespace ? [namespace] : spaces).map((name) => h("option", { value: name, selected: name === namespace }, name)));
    return [
      h("div.head", h("div", h("h1", "Calendar"), h("p.meta", h("span", `${plural(data.windows.length, "opening")} of cron windows`), h("span", `${day(data.span.from)} to ${day(data.span.until - 1)}`), h("span", `times in ${data.zone}`))), choice),
      toolbar(app, data.span),
      data.windows.length ? drawing(data.svg, "The weeks, drawn") : h("div.empty", h("h2", "No cron window opens in these weeks"), h("p", "Windows come from spec.crons of the autoscalers.")),
      data.truncated && h("p.note", "There are more windows than are listed here; choose a namespace or fewer weeks."),
      data.windows.length > 0 && h("details", { open: data.windows.length <= 60 }, h("summary", "The windows as a list"), h("div.days", agenda(data, namespace))),
    ];
  },

  acts: { namespace: (select, _, app) => app.go({ namespace: select.value || null }) },
};
