// The page as a person meets it: every view, what it says beside what the API says, and what the keyboard and the mouse do.

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { AXE, FORETIDE, ROOT, check, holds, run, same, until } from "./harness.mjs";

const LARGEST_PAGE = 100 * 1024;
const MOST_ELEMENTS = 40;
const LARGEST_PICTURE = 150 * 1024;
const VIEWS = ["fleet", "worth", "calendar", "clusters", "health", "lab"];

const link = ({ resource, namespace, name }) => `#/autoscalers/${resource}/${namespace}/${name}`;
const api = ({ resource, namespace, name }) => `api/v1/autoscalers/${resource}/${namespace}/${name}`;

async function rows(browser, query = "") {
  return (await browser.api(`api/v1/autoscalers?limit=200${query}`)).rows;
}

/** An autoscaler whose forecast is in use. */
async function predicted(browser) {
  for (const row of await rows(browser)) {
    const { decision } = await browser.api(api(row));
    if (row.resource.startsWith("effective") && decision?.proposals?.some((proposal) => proposal.forecast && proposal.replicas)) return row;
  }
  throw new Error("no autoscaler of the demo has a forecast");
}

/** Every view with its fragment, the worst, a predicted autoscaler and a fleet among them. */
async function everywhere(browser) {
  const all = await rows(browser);
  const fleet = all.find((row) => row.resource === "federatedhpas");
  const shown = [all[0], await predicted(browser), fleet].filter(Boolean);
  return [...VIEWS.map((view) => `#/${view}`), ...new Set(shown.map(link))];
}

/** A text of the API with its times of day as the page writes them for Berlin, in winter, when the demo plays. */
const inBerlin = (text) => text.replace(/(\d\d)(:\d\d) UTC/g, (_, hour, minute) => `${String((Number(hour) + 1) % 24).padStart(2, "0")}${minute}`);

async function serious(page) {
  await page.evaluate(readFileSync(AXE, "utf8"));
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.filter(({ impact }) => ["serious", "critical"].includes(impact)).map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => node.target).join(", ")}`);
}

// === every view ===

for (const theme of ["light", "dark"]) {
  for (const [name, width] of [["a desktop", 1280], ["a phone", 360]]) {
    check(`every view is accessible and fits ${name}, ${theme}`, async (browser) => {
      for (const fragment of await everywhere(browser)) {
        const page = await browser.open(fragment, { theme, width, height: 800 });
        same(await serious(page), [], `${fragment}: what axe finds`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        holds(wide <= width, `${fragment}: ${wide} px wide, in a window of ${width}`);
        await page.close();
      }
    });
  }
}

check("the whole page is small, and a row has few elements", async (browser) => {
  const page = await browser.open("#/fleet");
  for (const view of VIEWS) {
    await page.evaluate((to) => (location.hash = `#/${to}`), view);
    await browser.drawn(page);
  }
  const files = await page.evaluate(() => [...performance.getEntriesByType("resource"), ...performance.getEntriesByType("navigation")].filter(({ name }) => !/\/(api|lab)\//.test(name)).map(({ name, encodedBodySize }) => [name, encodedBodySize]));
  const sum = files.reduce((total, [, size]) => total + size, 0);
  holds(files.length > 10 && files.every(([, size]) => size > 0), `sizes are not known: ${JSON.stringify(files)}`);
  holds(sum < LARGEST_PAGE, `the page has ${sum} bytes`);
  await page.goto(`${browser.base}/#/fleet`);
  await page.waitForSelector("table.fleet tbody tr");
  const elements = await page.$$eval("table.fleet tbody tr", (all) => Math.max(...all.map((row) => row.querySelectorAll("*").length + 1)));
  holds(elements <= MOST_ELEMENTS, `a row has ${elements} elements`);
  console.log(`        ${(sum / 1024).toFixed(1)} KiB in ${files.length} files; at most ${elements} elements a row`);
});

check("a foreign Host is refused", async ({ base }) => {
  const status = (host) => new Promise((resolve, reject) => request(`${base}/api/v1/overview`, { headers: { host } }, (answer) => resolve(answer.resume().statusCode)).on("error", reject).end());
  same(await status("localhost:1"), 200, "status of localhost");
  const refused = await status("page.example");
  holds(refused >= 400 && refused < 500, `the Host page.example is answered with ${refused}`);
});

// === fleet ===

check("counts filter, the search is the server's, and columns sort", async (browser) => {
  const all = await rows(browser);
  const page = await browser.open("#/fleet");
  const names = () => page.$$eval("table.fleet tbody th.name a", (links) => links.map((each) => each.textContent));
  same(await names(), all.map(({ name }) => name), "rows, worst first");

  const { word } = all[0];
  await page.click(`.filter.${word}`);
  await page.waitForURL(`**/#/fleet?word=${word}`);
  await page.waitForFunction((wanted) => [...document.querySelectorAll("td.state")].every((cell) => cell.textContent === wanted), word);
  same(await names(), all.filter((row) => row.word === word).map(({ name }) => name), `rows that are ${word}`);

  await page.goto(`${browser.base}/#/fleet`);
  await page.waitForFunction((n) => document.querySelectorAll("table.fleet tbody tr").length === n, all.length);
  const wanted = all.at(-1).name;
  await page.keyboard.press("/");
  await page.keyboard.type(wanted.toUpperCase());
  const found = await rows(browser, `&search=${wanted}`);
  await page.waitForFunction((n) => document.querySelectorAll("table.fleet tbody tr").length === n, found.length);
  same(await names(), found.map(({ name }) => name), `rows found by ${wanted}`);

  await page.goto(`${browser.base}/#/fleet?sort=name`);
  await page.waitForSelector("th[aria-sort=ascending] >> text=Autoscaler");
  same(await names(), (await rows(browser, "&sort=name")).map(({ name }) => name), "rows by name");

  await page.goto(`${browser.base}/#/fleet?offset=3`);
  await page.waitForSelector("nav.pages >> text=4 to");
  same((await names()).length, all.length - 3, "rows after the first three");
  await page.click("text=Previous");
  await page.waitForFunction((n) => document.querySelectorAll("table.fleet tbody tr").length === n, all.length);
});

check("the page follows what changes, and loads nothing while it is hidden", async (browser) => {
  const page = await browser.open(link(await predicted(browser)));
  await page.waitForSelector(".age[data-live=yes]");
  const end = () => page.$eval(".chartbox svg", (svg) => Number(svg.dataset.until));
  const before = await end();
  await page.waitForFunction((old) => Number(document.querySelector(".chartbox svg").dataset.until) > old, before);

  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  const hidden = await end();
  const time = async () => Date.parse((await browser.api("api/v1/overview")).now);
  const later = (await time()) + 360_000;
  await until("six minutes have passed", async () => (await time()) >= later);
  holds((await end()) <= hidden + 120, "a hidden page goes on loading");
  await page.evaluate(() => {
    delete document.hidden;
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await page.waitForFunction((old) => Number(document.querySelector(".chartbox svg").dataset.until) > old + 240, hidden);
});

// === one autoscaler ===

check("the tree, the sentence and the chart show the decision that the API has", async (browser) => {
  const row = await predicted(browser);
  const page = await browser.open(link(row));
  const answers = [];
  page.on("response", async (answer) => {
    if (answer.url().endsWith(api(row))) answers.push(await answer.json().catch(() => null));
  });
  const text = (count) => (count === undefined ? "–" : String(count));
  const nodes = ({ sources, ...steps }) => ({
    observed: text(sources.observed), forecast: text(sources.forecast), cron: text(sources.cron),
    highest: text(steps.maximum), stabilized: text(steps.stabilized), limited: text(steps.limited), desired: text(steps.desired),
  });
  // What is shown first came before the answers were listened to.
  await until("the tree shows an answer of the API", async () => {
    const shown = await page.evaluate(() => ({
      sentence: document.querySelector("#why .sentence").firstChild.textContent,
      nodes: Object.fromEntries([...document.querySelectorAll(".node")].map((node) => [node.dataset.layer, node.querySelector("b").textContent])),
    }));
    const told = answers.filter((answer) => answer && inBerlin(answer.decision.message) === shown.sentence).map(({ decision }) => nodes(decision));
    return told.some((one) => JSON.stringify(one) === JSON.stringify(shown.nodes));
  });
});

/** The values of a layer at instants, read off the drawing. */
function drawn(svg, layer) {
  const read = (element, name) => Number(element.getAttribute(name));
  const path = svg.querySelector(`[data-panel=replicas] [data-layer=${layer}]`);
  const panel = path.closest("[data-panel]");
  const plot = panel.querySelector("rect.plot");
  const { from, until } = svg.dataset;
  const points = [];
  let x = 0;
  let y = 0;
  for (const [, command, text] of path.getAttribute("d").matchAll(/([a-z])([^a-z]*)/gi)) {
    const numbers = (text.match(/-?(\d+\.?\d*|\.\d+)/g) ?? []).map(Number);
    const relative = command === command.toLowerCase();
    const wide = "hHmMlL".includes(command);
    const high = "vVmMlL".includes(command);
    while (numbers.length) {
      if (wide) x = numbers.shift() + (relative ? x : 0);
      if (high) y = numbers.shift() + (relative ? y : 0);
      points.push([x, y]);
    }
  }
  const time = (at) => Number(from) + ((at - read(plot, "x")) / read(plot, "width")) * (until - from);
  const value = (at) => ((read(plot, "y") + read(plot, "height") - at) / read(plot, "height")) * Number(panel.dataset.top);
  return points.map(([at, height]) => [time(at), value(height)]);
}

check("the chart draws the history that the API has", async (browser) => {
  const row = await predicted(browser);
  const { recorded } = await browser.api(api(row));
  const [from, until] = [recorded.until - 21600, recorded.until - 600];
  const history = await browser.api(`${api(row)}/history?from=${from}&until=${until}`);
  const page = await browser.open(`${link(row)}?from=${from}&until=${until}`);
  const points = await page.$eval(".chartbox svg", drawn, "desired");
  const known = history.desired.filter((count) => count !== null);
  const values = points.map(([, value]) => value);
  const near = (one, other) => Math.abs(one - other) < 0.15;
  holds(near(Math.max(...values), Math.max(...known)), `the highest desired is drawn at ${Math.max(...values)}, recorded ${Math.max(...known)}`);
  holds(near(Math.min(...values), Math.min(...known)), `the lowest desired is drawn at ${Math.min(...values)}, recorded ${Math.min(...known)}`);
  holds(near(values.at(-1), known.at(-1)), `the last desired is drawn at ${values.at(-1)}, recorded ${known.at(-1)}`);
});

check("the keyboard moves the moment, and the URL keeps it", async (browser) => {
  const row = await predicted(browser);
  const page = await browser.open(link(row));
  const at = () => page.evaluate(() => Number(new URLSearchParams(location.hash.split("?")[1]).get("at")) || null);
  await page.focus(".cursor");
  await page.keyboard.press("Shift+ArrowLeft");
  const first = await at();
  holds(first !== null, "an arrow key chooses no moment");
  await page.keyboard.press("ArrowLeft");
  holds((await at()) < first, "the left arrow does not go back in time");

  const kept = await at();
  const history = await browser.api(`${api(row)}/history?from=${kept - 60}&until=${kept + 60}`);
  const index = history.times.findLastIndex((time) => time <= kept);
  const node = (layer) => page.$eval(`.node.${layer} b`, (each) => each.textContent);
  same(await node("desired"), String(history.desired[index]), "desired of that minute");
  const sentence = await page.$eval("#why .sentence", (each) => each.firstChild.textContent);
  same(sentence, inBerlin(history.sentences.findLast((each) => each.at <= kept + 59).text), "sentence of that minute");
  holds((await page.getAttribute(".cursor", "aria-valuetext")).includes(sentence), "a screen reader does not hear the sentence");

  await page.reload();
  await browser.drawn(page);
  same(await at(), kept, "moment after a reload");
  same(await page.$eval("#why .sentence", (each) => each.firstChild.textContent), sentence, "sentence after a reload");
  await page.focus(".cursor");
  await page.keyboard.press("Escape");
  same(await at(), null, "moment after Escape");
});

check("a link to a minute shows it, wherever it is", async (browser) => {
  const row = await predicted(browser);
  const { recorded } = await browser.api(api(row));
  const at = recorded.from + 7200 - (recorded.from % 60);
  const history = await browser.api(`${api(row)}/history?from=${at - 60}&until=${at + 60}`);
  const page = await browser.open(`${link(row)}?at=${at}`);
  const sentence = () => page.$eval("#why .sentence", (each) => each.firstChild.textContent);
  const told = inBerlin(history.sentences.findLast((each) => each.at <= at + 59).text);
  same(await sentence(), told, "sentence of that minute");
  const [from, until] = await page.$eval(".chartbox svg", ({ dataset }) => [Number(dataset.from), Number(dataset.until)]);
  holds(from < at && at < until, `the chart covers ${from} to ${until}, and not ${at}`);

  await page.click("text=Back to now");
  await page.waitForFunction((old) => Number(document.querySelector(".chartbox svg").dataset.from) > old, until);
  await page.goto(`${browser.base}/${link(row)}?at=${at}`);
  await page.waitForFunction((text) => document.querySelector("#why .sentence")?.firstChild.textContent === text, told);
});

check("a refused stream says why, and is not asked for again and again", async (browser) => {
  const page = await browser.open("#/health");
  let asked = 0;
  await page.route("**/api/v1/stream?*", (route) => {
    asked += 1;
    return route.fulfill({ status: 404, contentType: "application/json", body: JSON.stringify({ error: "there is no autoscaler shop/gone" }) });
  });
  await page.evaluate((to) => (location.hash = to), link(await predicted(browser)));
  await page.waitForSelector(".notice >> text=There is no autoscaler shop/gone.");
  same(await page.locator(".notice >> text=connection").count(), 0, "notices of a lost connection");
  holds(asked <= 2, `a refused stream is asked for ${asked} times`);
  browser.complaints = browser.complaints.filter((text) => !text.includes("404"));
});

check("a drag zooms, the back button returns, and a node draws its series", async (browser) => {
  const page = await browser.open(link(await predicted(browser)));
  await page.locator(".cursor").scrollIntoViewIfNeeded();
  const box = await page.locator(".cursor").boundingBox();
  const y = box.y + box.height / 3;
  await page.mouse.move(box.x + box.width * 0.3, y);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.4, y, { steps: 4 });
  await page.mouse.move(box.x + box.width * 0.5, y, { steps: 4 });
  await page.mouse.up();
  await page.waitForURL(/from=\d+&until=\d+/);
  const zoomed = await page.evaluate(() => Object.fromEntries(new URLSearchParams(location.hash.split("?")[1])));
  await page.waitForFunction((from) => document.querySelector(".chartbox svg").dataset.from === from, zoomed.from);
  holds(zoomed.until - zoomed.from < 9 * 3600, "a drag does not shorten the span");
  await page.goBack();
  await page.waitForFunction((from) => document.querySelector(".chartbox svg").dataset.from !== from, zoomed.from);

  await page.click(".node.stabilized");
  await page.waitForURL(/show=stabilized/);
  await page.waitForSelector(".chartbox [data-layer=stabilized].picked");
  same(await page.getAttribute(".node.stabilized", "aria-pressed"), "true", "whether the node is pressed");
});

check("a remedy is copied as the API has it", async (browser) => {
  for (const row of await rows(browser)) {
    const { conditions } = await browser.api(api(row));
    const remedy = conditions.find((condition) => !condition.healthy && condition.remedy?.copy)?.remedy;
    if (!remedy) continue;
    const page = await browser.open(link(row));
    await page.click(".trouble .copy button");
    await page.waitForSelector("text=Copied");
    same(await page.evaluate(() => navigator.clipboard.readText()), remedy.copy, `copied of ${row.name}`);
    return;
  }
  throw new Error("no autoscaler of the demo has a remedy to copy");
});

/** Changes the JSON of a path before a page gets it. */
const amended = (page, pattern, change) => page.route(pattern, async (route) => {
  const answer = await route.fetch();
  await route.fulfill({ response: answer, json: change(await answer.json()) });
});

check("a sentence has its times in the zone of the page", async (browser) => {
  const row = await predicted(browser);
  const page = await browser.open("#/health");
  const sentence = "9 replicas: held by the scale-down window until 23:28 UTC";
  await amended(page, "**/api/v1/autoscalers?*", (fleet) => ({ ...fleet, rows: [{ ...row, sentence }] }));
  await amended(page, `**/${api(row)}`, (view) => ({ ...view, decision: { ...view.decision, message: sentence }, changes: [{ time: view.now, from: 10, to: 9, message: sentence }] }));
  for (const [fragment, places] of [["#/fleet", ["td.why span"]], [link(row), ["#why .sentence", ".changes small"]]]) {
    await page.evaluate((to) => (location.hash = to), fragment);
    for (const [time, other] of [["00:28", "Local"], ["23:28", "UTC"]]) {
      await page.waitForSelector(`#zone:text-is("${other}")`);
      for (const place of places) await page.waitForSelector(`${place}:has-text("until ${time}"):not(:has-text("UTC"))`);
      await page.click("#zone");
    }
  }
});

check("what happens next is said also without a forecast and windows", async (browser) => {
  const row = await predicted(browser);
  const page = await browser.open("#/health");
  await amended(page, `**/${api(row)}`, ({ row: { nextWindow, ...shown }, decision, ...view }) => ({ ...view, row: { ...shown, strategy: "Auto", word: "fine" }, decision: { ...decision, maximum: 7, stabilized: 7, desired: 7 } }));
  await amended(page, `**/${api(row)}/history?*`, (history) => ({ ...history, ahead: { times: [], expected: [], upper: [] } }));
  await page.evaluate((to) => (location.hash = to), link(row));
  same(await page.textContent("#why .sentence small"), "Next: when a metric asks for it; no forecast or cron window is ahead.", "what is next");
});

check("members without room are named, and why", async (browser) => {
  const page = await browser.open("#/health");
  await amended(page, "**/api/v1/clusters", ({ clusters: [one, other, ...rest] }) => {
    const having = (cluster, change) => ({ ...cluster, shares: cluster.shares.map((share) => ({ ...share, status: { ...share.status, ...change } })) });
    return { clusters: [having(one, { current: 9, max: 9, capacity: 12, pending: 0 }), having(other, { pending: 2 }), ...rest.map((each) => having(each, { current: 1, max: 9, pending: 0 }))].map((each, i) => ({ ...each, name: `member-${i}` })) };
  });
  await page.evaluate(() => (location.hash = "#/clusters"));
  await page.waitForSelector("table tbody");
  const facts = await page.$$eval(".head .meta span", (all) => all.map((each) => each.textContent));
  same(facts.slice(-2), ["full: member-1", "budget used up: member-0"], "what is said of the members");
  same(await page.$$eval("td .badge.capped", (all) => all.map((each) => each.textContent)), ["used up", "full"], "marks in the table");
});

check("text of users is shown as text", async (browser) => {
  const row = await predicted(browser);
  const hostile = "<img src=x onerror=alert(1)><script>alert(2)</script>";
  const page = await browser.open("#/health");
  const changed = (pattern, change) => page.route(pattern, async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, body: change(await answer.text()) });
  });
  await changed("**/api/v1/autoscalers?*", (text) => JSON.stringify({ ...JSON.parse(text), rows: [{ ...row, namespace: hostile, sentence: hostile, target: hostile }] }));
  await changed(`**/${api(row)}`, (text) => JSON.stringify(JSON.parse(text), (key, value) => (["message", "sentence", "target", "reason"].includes(key) ? hostile : value)));
  await changed("**/chart.svg?*", (text) => text.replace("</svg>", `<script>alert(3)</script><image href="x"/><a href="javascript:alert(4)"><text>x</text></a></svg>`));
  for (const fragment of ["#/fleet", link(row)]) {
    await page.evaluate((to) => (location.hash = to), fragment);
    await page.waitForSelector(`main :text("${hostile}")`);
    await page.waitForFunction(() => !document.querySelector("main[aria-busy]"));
    same(await page.locator("main :is(script, img, image, foreignObject, a[href^=javascript])").count(), 0, `${fragment}: elements of hostile text`);
  }
  same(await page.locator(".chartbox svg").count(), 1, "charts");
});

// === lab ===

check("the Lab gives the figures of backtest", async (browser) => {
  const row = await predicted(browser);
  const page = await browser.open(`#/lab?pick=${row.resource}/${row.namespace}/${row.name}`);
  await page.waitForSelector("text=the recorded history of");
  await page.fill("[name=quantile]", "0.8");
  await page.click("text=Run the back-test");
  await page.waitForSelector("text=Runs side by side");
  same(await page.$eval(".figure svg text.time[text-anchor=end]", (zone) => zone.textContent), "CET", "zone of the chart");
  const shown = await page.$$eval("table tbody tr td.num", (cells) => cells.map((cell) => cell.firstChild.textContent));

  const folder = mkdtempSync(join(tmpdir(), "foretide-lab-"));
  const [download] = await Promise.all([page.waitForEvent("download"), page.click("a:text-is('Manifest')")]);
  await download.saveAs(join(folder, "manifest.yaml"));
  const [report] = await Promise.all([page.waitForEvent("download"), page.click("a:text-is('Report')")]);
  await report.saveAs(join(folder, "report.html"));
  const id = await page.getAttribute("a:text-is('Report')", "href").then((href) => href.split("/").at(-2));
  const computed = await browser.api(`lab/v1/experiments/${id}`);
  writeFileSync(join(folder, "history.csv"), await browser.api(`${api(row)}/history.csv?until=${Date.parse(computed.until) / 1000}`));
  const [, workload] = (await browser.api(`${api(row)}/manifest.yaml`)).split(/^---$/m);
  writeFileSync(join(folder, "workload.yaml"), workload);
  const told = JSON.parse(execFileSync(FORETIDE, ["backtest", "-f", join(folder, "manifest.yaml"), "-f", join(folder, "workload.yaml"), "--csv", join(folder, "history.csv"), "-o", "json"], { encoding: "utf8" }));
  rmSync(folder, { recursive: true });
  same(computed.candidates, told.candidates, "figures of the Lab");
  const [ours, plain] = told.candidates;
  same(shown.slice(0, 2), [ours, plain].map((run) => `${run.underProvisionedMinutes.toLocaleString("en-US")} min`), "short minutes on the page");
});

/** Drops files as a person drags them. */
async function drop(page, files) {
  const named = files.map((file) => [file.split("/").at(-1), readFileSync(join(ROOT, file), "utf8")]);
  const dataTransfer = await page.evaluateHandle((all) => {
    const dragged = new DataTransfer();
    for (const [name, text] of all) dragged.items.add(new File([text], name));
    return dragged;
  }, named);
  await page.dispatchEvent("[data-drop]", "drop", { dataTransfer });
}

check("the Lab takes dropped files, compares quantiles, and stops when told", async (browser) => {
  const files = ["examples/php-apache.yaml", "examples/php-apache-deployment.yaml", "examples/history/php-apache-cpu.csv"];
  const page = await browser.open("#/lab");
  await drop(page, files);
  await page.waitForFunction(() => document.querySelectorAll(".inputs li").length === 3);
  same(await page.$$eval(".inputs li b", (names) => names.map((each) => each.textContent)), files.map((file) => file.split("/").at(-1)), "files");

  await page.check("[name=sweep]");
  await page.click("text=Run the back-test");
  await page.click("text=Cancel");
  await page.waitForSelector("text=Cancelled.");
  await page.click("text=Run the back-test");
  await page.waitForSelector("text=What a higher quantile costs");
  const shown = await page.$$eval(".sweep tbody tr", (all) => all.map((row) => row.cells[1].textContent));
  const [manifest, deployment, history] = files.map((file) => join(ROOT, file));
  const told = JSON.parse(execFileSync(FORETIDE, ["backtest", "-f", manifest, "-f", deployment, "--csv", history, "--sweep=0.5,0.7,0.8,0.9,0.94,0.99", "-o", "json"], { encoding: "utf8" }));
  same(shown, told.sweep.map((each) => `${each.underProvisionedMinutes.toLocaleString("en-US")} min`), "short minutes of each quantile");

  await page.click("[aria-label='Remove php-apache-deployment.yaml']");
  await page.uncheck("[name=sweep]");
  await page.click("text=Run the back-test");
  await page.waitForSelector(".bad >> text=“Request of a pod”");
});

// === pictures of the docs ===

if (process.env.UPDATE === "1") {
  check("the pictures of the docs are small", async (browser) => {
    const folder = join(ROOT, "docs/pictures");
    await until("the demo shows most of its states", async () => Object.keys((await browser.api("api/v1/autoscalers")).counts).length >= 4);
    mkdirSync(folder, { recursive: true });
    const web = (await rows(browser)).find(({ namespace, name }) => `${namespace}/${name}` === "shop/web") ?? (await predicted(browser));
    const pictures = [
      ["fleet", "#/fleet", "table.fleet tbody tr", 780], ["workload", `${link(web)}?span=24h`, ".drawing", 1200],
      ["worth", "#/worth", ".verdict.large, .pair, ul, tbody tr", 780], ["clusters", "#/clusters", ".figure, tbody tr", 780], ["calendar", "#/calendar", ".figure", 1000],
    ];
    for (const [name, fragment, whole, height] of pictures) {
      const page = await browser.open(fragment, { width: 1120, height });
      await page.waitForSelector(".age[data-live=yes]");
      const bottom = await page.$$eval(whole, (all, most) => Math.max(...all.map((each) => each.getBoundingClientRect().bottom).filter((end) => end < most)), height);
      const picture = await page.screenshot({ animations: "disabled", clip: { x: 0, y: 0, width: 1120, height: Math.round(bottom) } });
      holds(picture.length < LARGEST_PICTURE, `page-${name}.png has ${picture.length} bytes`);
      writeFileSync(join(folder, `page-${name}.png`), picture);
      await page.close();
    }
  });
}

await run();
