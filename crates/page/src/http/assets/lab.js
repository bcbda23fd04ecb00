// Back-tests: a manifest and its history, with other settings, beside a plain HPA. Computed where the reader is.

import { drawnWidth, figure } from "./calendar.js";
import { cards, h, heading, wide } from "./dom.js";
import { amount, count, duration, fromLocalTime, moment, pathTo, percent, plural, seconds, zone } from "./format.js";
import { signed } from "./worth.js";

const RUNS = "lab/v1/experiments";
const FLEETS = "federatedhpas";

/** What is chosen, and the runs so far; they last as long as the page. */
const state = { manifests: [], histories: [], runs: [], picked: null, problem: "" };

/** Fields that change the manifest, and those of the back-test itself. */
const FIELDS = [
  ["quantile", "Quantile", { min: 0.5, max: 0.999, step: "any" }, "Higher is safer and costs more"],
  ["leadTimeSeconds", "Lead time, in seconds", { min: 30, max: 1200, step: 1 }, "From adding a pod until it serves"],
  ["minReplicas", "minReplicas", { min: 0, max: 100000, step: 1 }],
  ["maxReplicas", "maxReplicas", { min: 1, max: 100000, step: 1 }],
];
/** What messages call by the flags of `foretide backtest`, in the words of the form. */
const WORDS = [
  [/add the workload's manifest with -f, or set --request (\S+)/, "add the workload's manifest to the files, or write $1 into “Request of a pod”"],
  [/use --csv METRIC=FILE, where METRIC is/, "name the files METRIC.csv, where METRIC is"],
  [/--csv FILE or --prometheus URL is required: the history of/, "a history is missing, of"],
  [/--request/g, "“Request of a pod”"], [/--warm-up/g, "“Learn from the first”"], [/--from/g, "“Evaluate from”"], [/--until/g, "“Evaluate until”"],
  [/--csv/g, "“History”"], [/--sweep/g, "“Also compare quantiles”"],
];
const SWEEP = [0.5, 0.7, 0.8, 0.9, 0.94, 0.99];

// === inputs ===

/** Files that are dropped or chosen: CSV and JSON are histories, all else is YAML. One of the same name is replaced. */
async function take(files, app) {
  for (const file of files) {
    const metric = file.name.match(/^((?:resource|pods|object|external|containerResource)\.[\w.-]+?)\.(?:csv|json)$/)?.[1];
    const into = /\.(csv|json)$/i.test(file.name) ? "histories" : "manifests";
    const kept = state[into].filter(({ name }) => name !== file.name);
    state[into] = [...kept, { name: file.name, text: await file.text(), ...(into === "histories" && metric ? { metric } : {}) }];
  }
  app.redraw();
}

/** The object and the recorded history of an autoscaler of this page. */
async function pick(key, app) {
  state.problem = "";
  const [resource, namespace, name] = key.split("/");
  if (resource === FLEETS) {
    state.problem = "A FederatedHPA cannot be back-tested: its decisions need the state of its members.";
    return;
  }
  const base = pathTo({ resource, namespace, name });
  try {
    const [manifest, csv] = await Promise.all([app.get(`${base}/manifest.yaml`), app.get(`${base}/history.csv`)]);
    state.manifests = [{ name: `${namespace}/${name}`, text: manifest }];
    state.histories = [{ name: `the recorded history of ${name}`, text: csv }];
  } catch (error) {
    state.problem = `${error.message}.`;
  }
  app.redraw();
}

/** What the Lab computes: the manifest and its history, and what is different from the manifest. */
function experiment(form) {
  const { elements } = form;
  const changes = Object.fromEntries(FIELDS.map(([name]) => [name, elements[name].valueAsNumber]).filter(([, value]) => !Number.isNaN(value)));
  return {
    manifests: state.manifests,
    histories: state.histories,
    shownIn: zone(),
    changes,
    requests: elements.request.value.split(/[\s,]+/).filter(Boolean),
    sweep: elements.sweep.checked ? SWEEP : [],
    ...(elements.warmUp.value && { warmUp: elements.warmUp.value.trim() }),
    ...(elements.from.value && { from: instant(elements.from.value) }),
    ...(elements.until.value && { until: instant(elements.until.value) }),
  };
}

const instant = (text) => new Date(fromLocalTime(text) * 1000).toISOString();

// === runs ===

async function post(body) {
  const answer = await fetch(RUNS, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const json = await answer.json();
  if (!answer.ok) throw new Error(json.error);
  return json.id;
}

async function run(form, app) {
  const body = experiment(form);
  const one = { name: body.manifests[0].name, changes: body.changes, fraction: 0, state: "running" };
  state.runs.push(one);
  app.redraw();
  try {
    one.id = await post(body);
    await follow(one, app);
    const drawing = new URLSearchParams({ width: drawnWidth() });
    one.report = await app.get(`${RUNS}/${one.id}`);
    one.chart = await app.get(`${RUNS}/${one.id}/chart.svg?${drawing}`).catch(() => null);
    one.sweep = one.report.sweep?.length ? await app.get(`${RUNS}/${one.id}/sweep.svg?width=${Math.min(640, drawnWidth())}`).catch(() => null) : null;
    one.state = "finished";
    app.say("The back-test is finished");
  } catch (error) {
    one.state = one.state === "cancelled" ? "cancelled" : "failed";
    one.problem = WORDS.reduce((text, [flag, words]) => text.replace(flag, words), error.message);
  }
  if (app.route.path[0] === "lab") app.redraw();
}

function follow(one, app) {
  return new Promise((resolve, reject) => {
    const events = new EventSource(`${RUNS}/${one.id}/events`);
    const end = (settle, value) => {
      events.close();
      settle(value);
    };
    const progress = (event) => {
      const { done, total, fraction } = JSON.parse(event.data);
      one.fraction = fraction ?? (total ? done / total : 0);
      if (app.route.path[0] === "lab") app.redraw();
    };
    events.onmessage = progress;
    events.addEventListener("progress", progress);
    events.addEventListener("finished", (event) => {
      const { error, notes } = event.data ? JSON.parse(event.data) : {};
      one.notes = notes ?? [];
      if (error) end(reject, new Error(error));
      else end(resolve);
    });
    events.onerror = () => events.readyState === EventSource.CLOSED && end(reject, new Error("the progress ended early"));
  });
}

function cancel(one) {
  one.state = "cancelled";
  return fetch(`${RUNS}/${one.id}`, { method: "DELETE" }).catch(() => {});
}

// === drawing ===

function inputs(app) {
  const chosen = app.route.query.get("pick") ?? "";
  const file = (name, accept, label, multiple) => h("label.file", label, h("input", { type: "file", "data-change": name, accept, multiple }));
  const given = [...state.manifests.map(({ name }) => ["manifests", name, "manifest"]), ...state.histories.map(({ name, text }) => ["histories", name, plural(text.trimEnd().split("\n").length, "line")])];
  const line = ([list, name, note]) => h("li", { "data-key": `${list}/${name}` }, h("b", name), h("button.quiet", { type: "button", "data-act": "remove", "data-list": list, "data-name": name, "aria-label": `Remove ${name}` }, "Remove"), h("small", note));
  const option = (row) => {
    const key = `${row.resource}/${row.namespace}/${row.name}`;
    return h("option", { value: key, selected: key === chosen }, `${row.namespace}/${row.name}`);
  };
  return h("section.card.inputs", { "data-drop": "drop" },
    h("h2", "1. What"),
    h("label", "An autoscaler of this page", h("select", { "data-change": "pick" }, h("option", { value: "" }, "Choose…"), (app.data.rows ?? []).filter(({ resource }) => resource !== FLEETS).map(option))),
    h("p.note", "or drop files here: manifests (YAML) of an autoscaler and its workload, and a history (CSV of timestamp,value) of each metric"),
    h("div.actions", file("files", ".yaml,.yml", "Manifests", true), file("files", ".csv,.json", "History", true), given.length > 0 && h("button", { type: "button", "data-act": "clear" }, "Clear")),
    given.length > 0 && h("ul.list", given.map(line)),
    state.problem && h("p.bad", { role: "alert" }, state.problem));
}

function settings() {
  const field = ([name, label, values, note]) => h("label", label, h("input", { name, type: "number", placeholder: "as in the manifest", ...values }), note && h("small", note));
  const ready = state.manifests.length && state.histories.length;
  const when = (name, label, note) => h("label", label, h("input", { name, type: "datetime-local", step: 60 }), h("small", note));
  return h("section.card", h("h2", "2. Settings"),
    h("form", { "data-submit": "run" }, h("div.fields", FIELDS.map(field), h("label", "Request of a pod", h("input", { name: "request", placeholder: "cpu=200m" }), h("small", "If no manifest says it")),
        h("label", "Learn from the first", h("input", { name: "warmUp", placeholder: "2d" }), h("small", "Then evaluate the rest")),
        when("from", "Evaluate from", `In ${zone()}; instead of the field before`), when("until", "Evaluate until", "By default to the end of the history"),
        h("label.check", h("input", { type: "checkbox", name: "sweep" }), "Also compare quantiles", h("small", SWEEP.join(", ")))),
      h("div.actions", h("button.primary", { type: "submit", disabled: !ready }, "Run the back-test"), !ready && h("span.note", "Choose an autoscaler, or a manifest and a history, first."))));
}

const described = ({ changes }) => Object.entries(changes).map(([name, value]) => `${name} ${value}`).join(", ") || "as in the manifest";

function sides({ report }) {
  const [ours, plain] = report.candidates;
  return { ours, plain };
}

function comparison(runs) {
  const names = ["Run", "Settings", "#Too few replicas", "#Plain HPA", "#Replica-hours", "#Plain HPA", "#Changes", "Download"];
  const row = (one, i) => {
    const { ours, plain } = sides(one);
    const cost = plain && plain.replicaHours ? signed((100 * ours.replicaHours) / plain.replicaHours - 100) : null;
    return h("tr", { "data-key": one.id }, h("th", { scope: "row" }, `${i + 1}. ${one.name}`), h("td", described(one)),
      h("td.num", h("b", `${count(ours.underProvisionedMinutes)} min`)), h("td.num", plain ? `${count(plain.underProvisionedMinutes)} min` : "–"),
      h("td.num", h("b", amount(ours.replicaHours)), cost && h("small", cost)), h("td.num", plain ? amount(plain.replicaHours) : "–"), h("td.num", count(ours.scaleActions)),
      h("td", h("a", { href: `${RUNS}/${one.id}/report.html`, download: `${one.name.replace(/\W+/g, "-")}.html` }, "Report"), " · ", h("a", { href: `${RUNS}/${one.id}/manifest.yaml`, download: `${one.name.replace(/\W+/g, "-")}.yaml` }, "Manifest")));
  };
  return h("section.card", h("h2", "Runs side by side"), wide("Runs side by side", cards(names, h("tbody", runs.map(row)))));
}

function progress(one, i) {
  return h("section.card", { "data-key": `run-${i}` }, h("h2", one.name, " ", h("small", described(one))),
    one.state === "running" ? [h("progress", { value: one.fraction, max: 1, "aria-label": "Progress" }), h("div.actions", h("span.note", `${percent(one.fraction)} done`), one.id && h("button", { type: "button", "data-act": "cancel", "data-run": i }, "Cancel"))]
      : h("p", { class: one.state === "failed" ? "bad" : "note", role: "alert" }, one.state === "failed" ? `${one.problem}.`.replace("..", ".") : "Cancelled."));
}

/** What a higher quantile costs. */
function sweep({ report, sweep: drawing }) {
  if (!report.sweep?.length) return null;
  const row = (each) => h("tr", h("th", { scope: "row" }, percent(each.quantile)), h("td.num", `${count(each.underProvisionedMinutes)} min`), h("td.num", amount(each.replicaHours)), h("td.num", each.replicaHoursPercent === null ? "–" : signed(each.replicaHoursPercent)));
  return [h("h3", "What a higher quantile costs"), h("div.sweep", figure(drawing, "Quantiles, drawn"),
    wide("Quantiles", h("table.narrow", heading(["Quantile", "#Too few replicas", "#Replica-hours", "#Beside a plain HPA"]), h("tbody", report.sweep.map(row)))))];
}

function result(one, i) {
  const { report } = one;
  return h("section.panel", { "data-key": `run-${i}` }, h("h2", `${i + 1}. ${one.name}`, " ", h("small", described(one))),
    h("p.verdict.large", report.difference?.message ?? ""),
    h("p.meta", h("span", `${moment(seconds(report.from))} to ${moment(seconds(report.until))}`), h("span", `a pod serves after ${duration(report.startUpSeconds)}`)),
    figure(one.chart, "Both runs, drawn"),
    sweep(one),
    h("details", h("summary", "Assumed"), h("ul", (report.assumptions ?? []).map((text) => h("li", text)))),
    one.notes.length > 0 && h("details", { open: true }, h("summary", "Doubtful in the histories"), h("ul", one.notes.map((text) => h("li", text)))));
}

export const lab = {
  title: () => "Lab",
  watches: () => null,

  async load(app, signal) {
    const overview = await app.get("api/v1/overview", signal);
    if (!overview.lab) return {};
    const chosen = app.route.query.get("pick");
    if (chosen && state.picked !== chosen) {
      state.picked = chosen;
      pick(chosen, app);
    }
    return app.get("api/v1/autoscalers?limit=200&sort=name", signal);
  },

  skeleton: () => h("div.waiting", h("h1", "Lab"), h("div.ghost.tall")),

  draw(app) {
    const head = h("div.head", h("div", h("h1", "Lab"), h("p.meta", "Back-test an autoscaler on its own history, beside a plain HPA, before you change it")));
    if (!app.overview.lab) {
      return [head, h("div.empty", h("h2", "The Lab runs on your machine"), h("p", "It computes beside you, never in the controller. Start it with this command; it opens the same page, with your own rights:"),
        h("div.copy", h("pre", { tabindex: 0 }, h("code", "foretide ui")), h("button", { type: "button", "data-act": "copy" }, "Copy")))];
    }
    const finished = state.runs.filter((one) => one.state === "finished");
    return [
      head,
      h("div.two", inputs(app), settings()),
      finished.length > 0 && comparison(finished),
      state.runs.map((one, i) => (one.state === "finished" ? result(one, i) : progress(one, i))).reverse(),
    ];
  },

  acts: {
    files(input, _, app) {
      take([...input.files], app);
      input.value = "";
    },
    pick: (select, _, app) => app.go({ pick: select.value || null }),
    run: (form, _, app) => run(form, app),
    cancel(button, _, app) {
      cancel(state.runs[Number(button.dataset.run)]);
      app.redraw();
    },
    clear(_, __, app) {
      Object.assign(state, { manifests: [], histories: [], picked: null, problem: "" });
      app.go({ pick: null });
      app.redraw();
    },
    remove({ dataset: { list, name } }, _, app) {
      state[list] = state[list].filter((one) => one.name !== name);
      app.redraw();
    },
    drop: (_, event, app) => take([...event.dataTransfer.files], app),
  },
};
