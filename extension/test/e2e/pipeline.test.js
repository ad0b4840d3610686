// From recordings to a page that loads: the commands that make a database, the extension, and a
// site of the lab.

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { until } from "../support/chromium.js";
import { Stage } from "../support/stage.js";
import { Web } from "../support/web.js";

const HEADSTART = process.env.HEADSTART_BINARY;
const SHOP = "https://bazaar.test/";
const FRONT = "https://www.bazaar.test/en/welcome";
/** Of servers that scripts of scripts ask. */
const PARTS = [
  "https://pay.wallet.test/wallet.js",
  "https://chat.help.test/chat.js",
  "https://ads.retarget.test/retarget.js",
];

/** A recording of the shop on one day. @param {number} day */
function recording(day) {
  let at = 0;
  /** @param {string} url @param {number} status @param {string} to @param {string} mimeType */
  const entry = (url, status, to, mimeType) => ({
    pageref: "page",
    startedDateTime: `2026-11-0${day}T10:00:00.${100 + 30 * at++}Z`,
    time: 20,
    request: {
      method: "GET",
      url,
      httpVersion: "h2",
      headers: [],
      cookies: [],
      queryString: [],
      headersSize: 100,
      bodySize: 0,
    },
    response: {
      status,
      statusText: "",
      httpVersion: "h2",
      headers: [],
      cookies: [],
      redirectURL: to,
      headersSize: 100,
      bodySize: 1000,
      content: { size: 1000, mimeType },
    },
    cache: {},
    timings: { send: 0, wait: 15, receive: 5 },
  });
  const steps = [SHOP, "https://www.bazaar.test/", "https://www.bazaar.test/en/", FRONT];
  const redirects = steps
    .slice(0, -1)
    .map((url, step) => entry(url, step === 0 ? 301 : 302, steps[step + 1] ?? "", "text/html"));
  const parts = PARTS.map((url) => entry(url, 200, "", "text/javascript"));
  return JSON.stringify({
    log: {
      version: "1.2",
      creator: { name: "test", version: "1" },
      pages: [
        {
          startedDateTime: `2026-11-0${day}T10:00:00.000Z`,
          id: "page",
          title: "shop",
          pageTimings: { onLoad: 200 },
        },
      ],
      entries: [...redirects, entry(FRONT, 200, "", "text/html"), ...parts],
    },
  });
}

test(
  "recordings become a database that a browser uses",
  { skip: HEADSTART ? false : "HEADSTART_BINARY is not set" },
  async () => {
    const folder = await mkdtemp(join(tmpdir(), "headstart-pipeline-"));
    const command = HEADSTART ?? "";
    /** @param {string[]} words */
    const db = (...words) =>
      promisify(execFile)(command, ["pageload", "db", ...words], { cwd: folder });
    await Promise.all(
      [1, 2, 3].map((day) => writeFile(join(folder, `${day}.har`), recording(day))),
    );
    await db("keygen", "maker.key");
    await db("build", "1.har", "2.har", "3.har", "--out", "pages.hsdb");
    await db(
      "export",
      "pages.hsdb",
      "--format",
      "extension",
      "--temporary",
      "--sign",
      "maker.key",
      "--out",
      "pages.hsdx",
    );
    const key = await readFile(join(folder, "maker.key.pub"), "utf8");

    const site = spawn(
      command,
      ["lab", "site", "shop", "--listen", "127.0.0.1:0", "--think", "400ms", "--json"],
      {
        stdio: ["ignore", "pipe", "inherit"],
      },
    );
    /** @type {Buffer} */
    const said = await new Promise((resolve) => site.stdout.once("data", resolve));
    const { address, fingerprint } = JSON.parse(said.toString());
    const rules = `--host-resolver-rules=MAP *.test:443 ${address}, MAP * ~NOTFOUND`;
    const stage = await Stage.of(await Web.start(), [
      rules,
      `--ignore-certificate-errors-spki-list=${fingerprint}`,
    ]);
    try {
      const options = await stage.open("options.html");
      await options.evaluate(`document.getElementById("key").value = ${JSON.stringify(key)}`);
      await options.choose("#file", join(folder, "pages.hsdx"));
      await until(async () => (await stage.state()).database?.redirects === 1);
      await stage.call("chrome.storage.local.set({ thirdPartyBlocked: false })");

      const tab = await stage.browser.tab();
      const { connections, stop } = await tab.connections();
      await tab.go(SHOP);
      stop();
      assert.equal(await tab.evaluate("location.href"), FRONT);
      const state = await stage.state(tab);
      assert.deepEqual(state.tab.redirects, [{ from: SHOP, to: FRONT, state: "used" }]);
      assert.deepEqual(
        state.tab.opened.map((/** @type {any} */ of) => of.origin).sort(),
        PARTS.map((url) => new URL(url).origin).sort(),
      );
      // The server on the way was not asked; of those that were known all had connections before
      // they were.
      assert.ok(!connections.has("bazaar.test"));
      const connecting = PARTS.map((url) => connections.get(new URL(url).host)?.connectStart);
      assert.deepEqual(
        connecting,
        PARTS.map(() => -1),
      );
    } finally {
      await stage.end();
      site.kill();
      await rm(folder, { recursive: true });
    }
  },
);
