// Databases that are taken, and such that are not; and the pages where users see to that.

import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { until } from "../support/chromium.js";
import { maker, sealed } from "../support/sealed.js";
import { Stage } from "../support/stage.js";

const DAY = 86_400;
const NOW = Math.floor(Date.now() / 1000);

describe("databases", () => {
  /** @type {Stage} */
  let stage;
  before(async () => (stage = await Stage.build()));
  after(() => stage.end());

  /** What is in use. */
  const held = async () => ({
    about: (await stage.state()).database,
    rules: await stage.call("chrome.declarativeNetRequest.getDynamicRules()"),
  });

  /** @param {string} to */
  const leading = (to) => ({
    redirects: [/** @type {[string, string]} */ (["https://old.test/", to])],
  });

  test("what is not good leaves what is in use as it is", async () => {
    await stage.load({ created: NOW - DAY, ...leading("https://new.test/") });
    const before = await held();
    assert.deepEqual([before.about.redirects, before.rules.length], [1, 1]);

    const other = leading("https://evil.test/");
    await assert.rejects(stage.load({ version: 2, ...other }), /version 2, not 1/);
    await assert.rejects(stage.load({ unsigned: true, ...other }), /not signed/);
    await assert.rejects(
      stage.load({ created: NOW - 2 * DAY, ...other }),
      /older than the one in use/,
    );
    await assert.rejects(stage.load({ created: NOW + 3 * DAY, ...other }), /future/);
    await assert.rejects(stage.fetch(maker().pem), /unknown key/);
    await assert.rejects(stage.fetch("nonsense"), /public key/);
    const file = sealed(stage.by, { created: NOW, ...other });
    stage.web.pages["db.test/pages.hsdx"] = { body: file.with(-1, (file.at(-1) ?? 0) ^ 1) };
    await assert.rejects(stage.fetch(), /checksum/);
    stage.web.pages["db.test/pages.hsdx"] = { body: "<p>Sign in to this network</p>" };
    await assert.rejects(stage.fetch(), /not a page database/);
    stage.web.pages["db.test/pages.hsdx"] = {
      status: 302,
      headers: { location: "https://db.test/other" },
    };
    await assert.rejects(stage.fetch(), /cannot fetch/);
    stage.web.pages["db.test/pages.hsdx"] = { status: 500 };
    await assert.rejects(stage.fetch(), /status 500/);
    // A stale one of another maker, whose dates have nothing to do with those of the one in use.
    const stranger = maker();
    stage.web.pages["db.test/pages.hsdx"] = {
      body: sealed(stranger, { created: NOW - 100 * DAY, ...other }),
    };
    await assert.rejects(stage.fetch(stranger.pem), /stale/);
    assert.deepEqual(await held(), before);
  });

  test("nothing is sent with a fetch that tells users apart", async () => {
    /** @type {import("node:http").IncomingHttpHeaders} */
    let headers = {};
    const body = sealed(stage.by, { created: NOW - DAY + 1, ...leading("https://new.test/") });
    stage.web.pages["db.test/pages.hsdx"] = (request) => {
      headers = request.headers;
      return { body, headers: { "set-cookie": "user=1; Secure; SameSite=None", etag: '"user-1"' } };
    };
    for (const isNew of [true, false]) {
      assert.equal((await stage.fetch()).isNew, isNew);
      assert.deepEqual(
        [headers.cookie, headers["if-none-match"], headers.referer],
        [undefined, undefined, undefined],
      );
    }
  });

  test("one that has become stale while it was held is not used any more", async () => {
    assert.equal((await held()).rules.length, 1);
    const age = `new Promise((resolve) => {
      const request = indexedDB.open("headstart");
      request.onsuccess = () => {
        const store = request.result.transaction("about", "readwrite").objectStore("about");
        store.get("database").onsuccess = ({ target }) => {
          const old = { ...target.result, created: ${NOW - 91 * DAY} };
          store.put(old, "database").onsuccess = () => {
            request.result.close();
            resolve();
          };
        };
      };
    })`;
    await stage.call(age);
    const options = await stage.open("options.html");
    assert.match(
      await options.evaluate("document.getElementById('made').innerText"),
      /too old to be used/,
    );
    // What the alarm does, and the start of the browser.
    await stage.call("chrome.alarms.create('update', { when: Date.now() })");
    await until(async () => (await held()).rules.length === 0);
    await options.close();
  });

  test("the options load a file, say what is wrong with another, fetch and remove", async () => {
    const folder = await mkdtemp(join(tmpdir(), "headstart-options-"));
    const options = await stage.open("options.html");
    try {
      const by = maker();
      const [good, bad] = [join(folder, "good.hsdx"), join(folder, "bad.hsdx")];
      const pages = { "https://new.test/": ["https://a.test", "https://b.test"] };
      const file = sealed(by, { created: NOW - DAY, pages, ...leading("https://new.test/") });
      await writeFile(good, file);
      await writeFile(bad, file.with(-1, (file.at(-1) ?? 0) ^ 1));
      /** @param {string} id */
      const text = (id) => options.evaluate(`document.getElementById("${id}").innerText`);
      await options.evaluate(`document.getElementById("key").value = ${JSON.stringify(by.pem)}`);
      await options.choose("#file", good);
      await until(async () => /file's database is in use/.test(await text("result")));
      assert.match(await text("pages"), /^1, with 2 connections/);
      await options.choose("#file", bad);
      await until(async () => /Not taken: its checksum is wrong/.test(await text("result")));
      assert.equal((await held()).rules.length, 1);

      stage.web.pages["db.test/pages.hsdx"] = { body: sealed(by, { created: NOW, pages }) };
      await options.evaluate('document.getElementById("url").value = "https://db.test/pages.hsdx"');
      await options.evaluate('document.getElementById("source").requestSubmit()');
      await until(async () => /a newer database was taken/.test(await text("result")));
      assert.match(await text("redirects"), /^0$/);
      const alarm = await stage.call("chrome.alarms.get('update')");
      assert.ok(alarm.scheduledTime > Date.now());

      await options.evaluate('document.getElementById("remove").click()');
      await until(async () => (await held()).about === undefined);
      assert.match(await text("none"), /None is loaded/);
    } finally {
      await Promise.all([options.close(), rm(folder, { recursive: true })]);
    }
  });
});
