// The frame around the views: the route in the URL, loading, live updates, and the reader's settings.
//
//   URL fragment --route--> view.load --data--> view.draw --elements--> morph
//   stream "changed" ------> view.load                        clicks on [data-act] --> view.acts

import { h, morph } from "./dom.js";
import { clock, duration, moment, seconds, sentenceOf, toggleZone, zone } from "./format.js";
import { calendar } from "./calendar.js";
import { clusters } from "./clusters.js";
import { fleet } from "./fleet.js";
import { health } from "./health.js";
import { lab } from "./lab.js";
import { workload } from "./workload.js";
import { worth } from "./worth.js";

const VIEWS = { fleet, worth, calendar, clusters, health, lab, autoscalers: workload };
const main = document.getElementById("main");
const notice = document.getElementById("notice");

/** What the views may use. */
const app = {
  route: null,
  data: null,
  overview: null,
  /** The answer to a GET as JSON, or as text. */
  get,
  /** Seconds since 1970 where Foretide runs; in a demo, of its simulation. */
  now() {
    if (!app.overview) return Date.now() / 1000;
    return clockAt + ((performance.now() - clockRead) / 1000) * app.overview.speed;
  },
  /** Changes parameters of the fragment; those that are `null` are removed. */
  go(changes, replace = false) {
    const hash = app.link(changes);
    if (hash === location.hash) return;
    if (replace) history.replaceState(null, "", hash);
    else history.pushState(null, "", hash);
    navigate();
  },
  /** The same without drawing again. */
  amend(changes) {
    history.replaceState(null, "", app.link(changes));
    app.route.query = parse(location.hash).query;
  },
  /** The fragment with other parameters. */
  link(changes) {
    const query = new URLSearchParams(app.route.query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    return `#/${app.route.path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
  },
  /** Draws again from the data at hand. */
  redraw,
  /** Loads and draws. */
  refresh,
  /** Says something for a few seconds, also to screen readers. */
  say(text) {
    show(text, "said");
    setTimeout(() => notice.textContent === text && show(""), 4000);
  },
};

// === routes ===

function parse(hash) {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  let parts;
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = [];
  }
  const known = parts[0] && Object.hasOwn(VIEWS, parts[0]) && (parts[0] !== "autoscalers" || parts.length === 4);
  return { path: known ? parts : ["fleet"], query: new URLSearchParams(query) };
}

const view = () => VIEWS[app.route.path[0]];

async function navigate() {
  const before = app.route;
  app.route = parse(location.hash);
  if (before && before.path.join("/") === app.route.path.join("/")) {
    if (view().stays?.(before, app.route, app.data)) return redraw();
    return refresh();
  }
  app.data = null;
  tabs();
  document.title = `${view().title(app.route)} · Foretide`;
  main.replaceChildren(...[view().skeleton(app.route)].flat());
  main.setAttribute("aria-busy", "true");
  if (before) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
  listen();
  await refresh();
}

function tabs() {
  const current = app.route.path[0] === "autoscalers" ? "fleet" : app.route.path[0];
  const tab = (name) => h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, VIEWS[name].title({}));
  const nav = h("nav", ["fleet", "worth", "calendar", "clusters", "health", "lab"].map(tab));
  morph(document.getElementById("views"), nav);
}

// === loading ===

let loading = null;
let again = false;
let changedAt = null;
let clockAt = 0;
let clockRead = 0;

async function get(path, signal) {
  const answer = await fetch(path, { signal, headers: { accept: "application/json" } }).catch((error) => {
    throw error.name === "AbortError" ? error : new Error("Foretide does not answer");
  });
  const json = answer.headers.get("content-type")?.startsWith("application/json");
  const body = json ? await answer.json() : await answer.text();
  if (!answer.ok) throw Object.assign(new Error(body.error || `${path}: HTTP ${answer.status}`), { status: answer.status });
  return body;
}

async function refresh() {
  loading?.abort();
  const mine = (loading = new AbortController());
  const { route } = app;
  try {
    const [overview, data] = await Promise.all([get("api/v1/overview", mine.signal), view().load(app, mine.signal)]);
    if (mine.signal.aborted || route !== app.route) return;
    app.overview = overview;
    clockAt = Date.parse(overview.now) / 1000;
    clockRead = changedAt = performance.now();
    app.data = data;
    if (notice.dataset.kind === "trouble") show("");
    redraw();
  } catch (error) {
    if (error.name !== "AbortError" && loading === mine) trouble(error);
  } finally {
    if (loading === mine) loading = null;
  }
  if (again && !loading) {
    again = false;
    later();
  }
}

function redraw() {
  if (!app.data) return;
  const focused = document.activeElement;
  morph(main, h("main", view().draw(app)));
  main.removeAttribute("aria-busy");
  view().drawn?.(app, main);
  if (focused !== document.activeElement && main.contains(focused)) focused.focus({ preventScroll: true });
  document.title = `${view().title(app.route)} · Foretide`;
  foot();
  age();
}

function trouble(error) {
  main.removeAttribute("aria-busy");
  if (app.data && error.status !== 404) return show(`${error.message}. What you see is older.`, "trouble");
  const list = h("a", { href: "#/fleet" }, "All autoscalers");
  const retry = h("button", { type: "button", "data-act": "retry" }, "Try again");
  main.replaceChildren(h("div.empty", h("h1", "This cannot be shown"), h("p", `${error.message}.`), h("p.actions", retry, list)));
}

function show(text, kind = "") {
  notice.textContent = text;
  notice.hidden = !text;
  notice.dataset.kind = kind;
}

// === live updates ===

let stream = null;
let timer = null;
let lost = false;
let loadedAt = 0;

/** Opens the stream of what is looked at. Nothing is asked for while the page is hidden. */
function listen() {
  stream?.close();
  stream = null;
  if (document.hidden || !app.route) return;
  const which = view().watches?.(app.route);
  if (which === null) return;
  const path = `api/v1/stream?${new URLSearchParams(which || {})}`;
  const mine = (stream = new EventSource(path));
  let greeted = false;
  stream.addEventListener("changed", () => {
    // The first one says how things stand; they are being loaded already.
    if (greeted) later();
    greeted = true;
  });
  stream.onopen = () => {
    greeted = false;
    if (lost) {
      lost = false;
      show("");
      refresh();
    }
    age();
  };
  stream.onerror = async () => {
    lost = true;
    age();
    // The browser reopens a stream that broke, but not one that was refused.
    const why = mine.readyState === EventSource.CLOSED ? await refusal(path) : null;
    if (mine !== stream) return;
    if (!why) show("The connection is lost. Connecting again…", "offline");
    else show(`${sentenceOf(why.text)} What you see does not follow.`, "offline");
    if (mine.readyState === EventSource.CLOSED && (!why || why.passes)) setTimeout(() => mine === stream && listen(), why ? 30000 : 5000);
  };
}

/** Why a stream is refused, which only another request tells, and whether that passes by itself; `null` if nobody answers. */
async function refusal(path) {
  const asked = new AbortController();
  try {
    const answer = await fetch(path, { signal: asked.signal });
    if (answer.ok || answer.status >= 500) return null;
    const { error } = await answer.json().catch(() => ({}));
    return { text: error ?? `Live updates are refused: HTTP ${answer.status}`, passes: answer.status === 429 };
  } catch {
    return null;
  } finally {
    asked.abort();
  }
}

/** Loads soon, but leaves the server time proportional to what is asked for. */
function later() {
  if (loading) {
    again = true;
    return;
  }
  timer ??= setTimeout(async () => {
    timer = null;
    if (document.hidden) return;
    loadedAt = performance.now();
    await refresh();
  }, Math.max(0, loadedAt + (view().pace?.(app) ?? 2) * 1000 - performance.now()));
}

document.addEventListener("visibilitychange", () => {
  listen();
  if (!document.hidden) refresh();
});

// Charts are as wide as the page.
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => app.data && refresh(), 250);
});

/** Whether the page follows, and how old what it shows is. */
function age() {
  const element = document.getElementById("age");
  if (!app.overview || changedAt === null) return;
  const old = (performance.now() - changedAt) / 1000;
  const live = stream?.readyState === EventSource.OPEN;
  const demo = app.overview.source === "demo";
  const changed = old < 2 ? "changed just now" : `changed ${duration(old)} ago`;
  const state = live ? ["Live", changed] : lost ? ["Not live", `${duration(old)} old`] : ["Connecting", ""];
  element.dataset.live = live ? "yes" : lost ? "no" : "soon";
  const { speed } = app.overview;
  element.title = demo ? (speed ? `Simulated time, ${speed} times as fast` : "The last days are replayed") : "";
  const parts = [stream && h("b", state[0]), stream && h("i", state[1]), demo && h("span", speed ? `demo ${clock(app.now())}` : `replay ${moment(app.now())}`)];
  morph(element, h("span", parts));
}
setInterval(age, 1000);

// === the frame ===

function foot() {
  const { version, leads, leader, reader, namespaces, recordedSince, memory, source } = app.overview;
  const leading = leads ? (source === "demo" ? "simulated" : `leader${leader ? `: ${leader}` : ""}`) : `standby; ${leader ?? "nobody"} leads`;
  const parts = [
    `Foretide ${version}`,
    leading,
    reader && `you are ${reader}`,
    namespaces && `you see ${namespaces.join(", ") || "no namespace"}`,
    recordedSince && `recorded since ${moment(seconds(recordedSince))}`,
    sentenceOf(memory),
  ];
  morph(document.getElementById("foot"), h("footer", parts.filter(Boolean).map((part) => h("span", part))));
}

const THEMES = { auto: "Theme: as the system", dark: "Theme: dark", light: "Theme: light" };

function settings() {
  const { theme } = document.documentElement.dataset;
  const button = document.getElementById("theme");
  button.title = THEMES[theme];
  button.setAttribute("aria-label", THEMES[theme]);
  const times = document.getElementById("zone");
  times.textContent = zone() === "UTC" ? "UTC" : "Local";
  times.title = `Times are in ${zone()}`;
  times.setAttribute("aria-label", `${times.textContent}: times are in ${zone()}`);
}

const ACTS = {
  skip(_, event) {
    event.preventDefault();
    main.focus();
  },
  zone() {
    toggleZone();
    settings();
    refresh();
  },
  theme() {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    localStorage.setItem("theme", next);
    document.documentElement.dataset.theme = next;
    settings();
  },
  retry: refresh,
  async copy(button) {
    const code = button.parentElement.querySelector("code");
    await copy(code);
    button.textContent = "Copied";
    app.say("Copied");
    setTimeout(() => (button.textContent = "Copy"), 2000);
  },
};

/** The clipboard of the browser is there only on https and on loopback; elsewhere the text is selected and copied. */
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
  }
}

// An element names what happens: `data-act` for clicks, `data-input` for input, and so on.
for (const type of ["click", "input", "change", "submit", "dragover", "drop"]) {
  document.addEventListener(type, (event) => {
    const attribute = type === "click" ? "act" : type === "dragover" ? "drop" : type;
    const element = event.target.closest?.(`[data-${attribute}]`);
    if (!element) return;
    if (attribute === "submit" || attribute === "drop") event.preventDefault();
    if (type === "dragover") return;
    const name = element.dataset[attribute];
    (view().acts?.[name] ?? ACTS[name])?.(element, event, app);
  });
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input,textarea,select")) return;
  const search = main.querySelector("input[type=search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
});

addEventListener("hashchange", navigate);
addEventListener("popstate", navigate);
settings();
navigate();
