// Runs the checks one after the other, each on pages of one browser, against one `foretide demo --web`.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const require = createRequire(join(process.env.PACKAGES, "package.json"));
const { chromium } = require("playwright-core");
export const AXE = require.resolve("axe-core/axe.min.js");
export const ROOT = new URL("../..", import.meta.url).pathname;
export const FORETIDE = join(process.env.CARGO_TARGET_DIR ?? join(ROOT, "target"), "debug/foretide");

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];
const DEADLINE = 60_000;

const checks = [];

/** Registers a check. */
export const check = (name, body) => checks.push({ name, body });

/** Fails with both values unless they are the same. */
export function same(got, expected, what) {
  const [one, other] = [JSON.stringify(got), JSON.stringify(expected)];
  if (one !== other) throw new Error(`${what}: expected ${other}, got ${one}`);
}

/** Fails with the message unless it holds. */
export function holds(condition, message) {
  if (!condition) throw new Error(message);
}

/** The page of a demo: its address, once it says so. */
function demo() {
  const child = spawn(FORETIDE, ["demo", "--web", "--listen", "127.0.0.1:0"], { stdio: ["ignore", "pipe", "pipe"] });
  const address = new Promise((resolve, reject) => {
    const lines = [];
    for (const stream of [child.stdout, child.stderr]) {
      createInterface({ input: stream }).on("line", (line) => {
        lines.push(line);
        const found = line.match(/http:\/\/127\.0\.0\.1:\d+/);
        if (found) resolve(found[0]);
      });
    }
    child.on("exit", () => reject(new Error(`foretide demo --web exited: ${lines.join("\n")}`)));
    setTimeout(() => reject(new Error(`foretide demo --web names no address: ${lines.join("\n")}`)), DEADLINE).unref();
  });
  return { child, address };
}

/** Waits until the demo has played its last days and compared every autoscaler. */
async function replayed(base) {
  await until("the demo has compared its autoscalers", async () => {
    const [{ speed }, { autoscalers, leftOut }, { rows }] = await Promise.all(["overview", "worth", "autoscalers"].map(async (path) => (await fetch(`${base}/api/v1/${path}`)).json()));
    const others = rows.filter(({ strategy, word }) => strategy === "Preview" || word === "conflict");
    return speed > 0 && autoscalers > 0 && leftOut <= others.length;
  });
}

/** Waits for a condition outside of the browser. */
export async function until(what, holdsNow) {
  const end = Date.now() + DEADLINE;
  while (!(await holdsNow())) {
    if (Date.now() > end) throw new Error(`waited ${DEADLINE / 1000} s in vain until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** What a check may use. */
class Browser {
  constructor(context, base) {
    Object.assign(this, { context, base, complaints: [] });
  }

  /** A page of the demo that has drawn its view. */
  async open(fragment, { theme = "light", width = 1280, height = 900 } = {}) {
    const page = await this.context.newPage();
    page.setDefaultTimeout(DEADLINE / 2);
    await page.setViewportSize({ width, height });
    await page.emulateMedia({ colorScheme: theme });
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && this.complaints.push(`${fragment}: ${message.text()}`));
    page.on("pageerror", (error) => this.complaints.push(`${fragment}: ${error.stack}`));
    await page.goto(`${this.base}/${fragment}`);
    await this.drawn(page);
    return page;
  }

  async drawn(page) {
    await page.waitForFunction(() => document.querySelector("main h1") && !document.querySelector("main[aria-busy]"));
  }

  /** An answer of the API. */
  async api(path) {
    const answer = await fetch(`${this.base}/${path}`);
    holds(answer.ok, `${path}: HTTP ${answer.status}`);
    return answer.headers.get("content-type").includes("json") ? answer.json() : answer.text();
  }
}

/** Runs all checks whose names contain a word of the command line, and exits. */
export async function run() {
  const wanted = process.argv.slice(2);
  const chosen = checks.filter(({ name }) => wanted.every((word) => name.includes(word)));
  const profile = mkdtempSync(join(tmpdir(), "foretide-browser-"));
  const { child, address } = demo();
  let failed = 0;
  let context;
  try {
    const base = await address;
    await replayed(base);
    context = await chromium.launchPersistentContext(profile, {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS, timezoneId: "Europe/Berlin", acceptDownloads: true,
      permissions: ["clipboard-read", "clipboard-write"],
    });
    for (const { name, body } of chosen) {
      const browser = new Browser(context, base);
      try {
        await body(browser);
        holds(!browser.complaints.length, `the browser complains: ${browser.complaints[0]}`);
        console.log(`ok      ${name}`);
      } catch (error) {
        failed += 1;
        console.log(`FAILED  ${name}\n        ${error.stack.split("\n").slice(0, 4).join("\n        ")}`);
      }
      for (const page of context.pages().slice(1)) await page.close();
    }
  } finally {
    await context?.close();
    child.removeAllListeners("exit");
    child.kill();
    rmSync(profile, { recursive: true, force: true });
  }
  console.log(`${chosen.length - failed} passed, ${failed} failed`);
  process.exit(failed ? 1 : 0);
}
