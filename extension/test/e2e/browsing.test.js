// What the extension does for pages, seen where their servers are.

import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { until } from "../support/chromium.js";
import { Stage } from "../support/stage.js";

const PAGE = "https://www.site.test/";

/** A page that asks for something of other servers once it is told to. */
const ASKS = `<!doctype html><title>page</title><link rel="icon" href="data:,"><script>
  function ask() {
    new Image().src = "https://img.site.test/1.png";
    new Image().src = "https://ads.other.test/2.png";
    void fetch("https://fonts.other.test/3.json", { credentials: "omit" });
  }
</script>`;

const SERVERS = {
  [PAGE]: [
    "https://img.site.test",
    "https://ads.other.test",
    /** @type {[string]} */ (["https://fonts.other.test"]),
  ],
};

const CORS = { headers: { "access-control-allow-origin": "*" } };
const ICON = '<link rel="icon" href="data:,">';

/** @param {Stage} stage */
function serve(stage) {
  stage.web.pages = {
    "www.site.test/": { body: ASKS },
    "img.site.test/1.png": {},
    "ads.other.test/2.png": {},
    "fonts.other.test/3.json": { ...CORS, body: "{}" },
    "new.test/": { body: `${ICON}new` },
    "old.test/": { status: 301, headers: { location: "https://new.test/" } },
    "up.test/": { body: `${ICON}up` },
    "moved.test/": { status: 302, headers: { location: "https://new.test/" } },
    "round.test/": { status: 302, headers: { location: "https://circle.test/" } },
    "circle.test/": { body: `${ICON}circle` },
    "gone-from.test/": { body: `${ICON}here` },
  };
}

/**
 * Goes to the page, which asks for all once as many connections as expected are there.
 * @param {Stage} stage
 * @param {number} early
 */
async function visit(stage, early) {
  const tab = await stage.browser.tab();
  await (early > 0 ? stage.goKnown(tab, PAGE) : tab.go(PAGE));
  await until(() => others(stage).length === early);
  await tab.evaluate("ask()");
  await until(() => stage.web.asked.length === 4);
  return tab;
}

/** Names of the connections that the page needs besides its own. @param {Stage} stage */
function others(stage) {
  return stage.web.connections.filter((name) => name !== "www.site.test").sort();
}

describe("with third-party cookies", () => {
  /** @type {Stage} */
  let stage;
  before(async () => (stage = await Stage.build()));
  after(() => stage.end());
  beforeEach(() => {
    serve(stage);
    return stage.web.forget();
  });

  test("connections are opened before the page asks, and its requests use them", async () => {
    const plain = await visit(stage, 0);
    const without = others(stage);
    await plain.close();
    // The browser said meanwhile that it sends cookies to other sites.
    await until(
      async () => (await stage.call("chrome.storage.local.get()")).thirdPartyBlocked === false,
    );

    const made = await stage.load({ pages: SERVERS });
    assert.deepEqual([made.pages, made.servers, made.redirects], [1, 3, 0]);
    await stage.web.forget();
    const tab = await visit(stage, 3);
    // As many connections as without, each with the one request that it was opened for, and all
    // there before any of these.
    assert.deepEqual([without.length, others(stage)], [3, without]);
    const asked = stage.web.asked.filter(({ host }) => host !== "www.site.test");
    assert.deepEqual(
      asked.map(({ connection }) => stage.web.connections[connection]),
      asked.map(({ host }) => host),
    );
    assert.deepEqual(
      asked.map(({ opened }) => opened),
      Array(3).fill(stage.web.connections.length),
    );
    const state = await stage.state(tab);
    assert.deepEqual([state.pages, state.connections, state.tab.opened.length], [1, 3, 3]);
    await tab.close();
  });

  test("between pages of a site they are opened before the answer comes", async () => {
    await stage.load({ pages: SERVERS }, { thirdPartyCookies: true });
    stage.web.pages["www.site.test/first"] = { body: ICON };
    const tab = await stage.browser.tab();
    await tab.go(`${PAGE}first`);
    await stage.web.forget();
    /** @type {() => void} */
    let release = () => {};
    const answer = new Promise((resolve) => (release = () => resolve(undefined)));
    stage.web.pages["www.site.test/"] = { body: ASKS, wait: answer };
    const loaded = tab.go(PAGE);
    await until(() => others(stage).length === 3);
    assert.deepEqual(stage.asked("www.site.test"), ["/"]);
    release();
    await loaded;
    await tab.evaluate("ask()");
    await until(() => stage.web.asked.length === 4);
    assert.equal(others(stage).length, 3);
    await tab.close();
  });

  test("a page of another origin does not see where it is left for", async () => {
    await stage.load({ pages: SERVERS }, { thirdPartyCookies: true });
    stage.web.pages["img.site.test/"] = {
      body: `${ICON}<script>
        const see = ({ addedNodes }) =>
          addedNodes.forEach((node) => node.rel === "preconnect" && fetch("/seen"));
        const observer = new MutationObserver((all) => all.forEach(see));
        observer.observe(document, { childList: true, subtree: true });
      </script>`,
    };
    const tab = await stage.browser.tab();
    await tab.go("https://img.site.test/");
    /** @type {() => void} */
    let release = () => {};
    const answer = new Promise((resolve) => (release = () => resolve(undefined)));
    stage.web.pages["www.site.test/"] = { body: ASKS, wait: answer };
    const loaded = tab.go(PAGE);
    await until(
      async () => (await stage.call("chrome.declarativeNetRequest.getSessionRules()")).length > 0,
    );
    // What would be put there comes right after the rule.
    await stage.call("new Promise((resolve) => setTimeout(resolve, 300))");
    release();
    await loaded;
    assert.deepEqual(stage.asked("img.site.test"), ["/"]);
    // The page itself is told all the same.
    await until(async () => (await stage.state(tab)).tab.opened.length === 3);
    await tab.close();
  });

  test("a redirect is followed at once", async () => {
    await stage.load({
      redirects: [
        ["https://old.test/", "https://new.test/"],
        ["http://up.test/", "https://up.test/"],
      ],
    });
    const tab = await stage.browser.tab();
    await tab.go("https://old.test/");
    assert.equal(await tab.evaluate("location.href"), "https://new.test/");
    assert.deepEqual([stage.asked("old.test"), stage.asked("new.test")], [[], ["/"]]);
    assert.deepEqual((await stage.state(tab)).tab.redirects, [
      { from: "https://old.test/", to: "https://new.test/", state: "used" },
    ]);
    // Nobody listens on port 80.
    await tab.go("http://up.test/");
    assert.deepEqual(stage.asked("up.test"), ["/"]);
    // Other URLs of the same server are asked for.
    await assert.rejects(tab.go("https://old.test/?x"), /ERR_HTTP_RESPONSE_CODE_FAILURE/);
    assert.deepEqual(stage.asked("old.test"), ["/?x"]);
    await tab.close();
  });

  test("undo goes back to where it began, until the browser ends", async () => {
    await stage.load({ redirects: [["https://old.test/", "https://new.test/"]] });
    const tab = await stage.browser.tab();
    await tab.go("https://old.test/");
    const popup = await stage.popup(tab);
    assert.match(
      await popup.evaluate("document.querySelector('main').innerText"),
      /Went to new.test at once, without asking old.test/,
    );
    await popup.evaluate("document.getElementById('undo').click()");
    await until(() => stage.asked("old.test").length === 1);
    await tab.go("https://old.test/");
    assert.equal(stage.asked("old.test").length, 2);
    assert.equal((await stage.state()).undone, 1);
    await tab.close();
  });

  test("a site is turned off and on", async () => {
    await stage.load({
      redirects: [["https://old.test/", "https://new.test/"]],
      pages: { "https://new.test/": ["https://ads.other.test"] },
    });
    const tab = await stage.browser.tab();
    await tab.go("https://new.test/");
    const popup = await stage.popup(tab);
    const toggle = "document.getElementById('on').click()";
    await popup.evaluate(toggle);
    await until(
      async () => (await stage.call("chrome.declarativeNetRequest.getDynamicRules()")).length === 0,
    );
    const { connections } = await stage.state();
    await tab.go("https://old.test/");
    assert.deepEqual(stage.asked("old.test"), ["/"]);
    assert.equal((await stage.state()).connections, connections);
    await popup.evaluate(toggle);
    await until(
      async () => (await stage.call("chrome.declarativeNetRequest.getDynamicRules()")).length === 1,
    );
    await tab.go("https://old.test/");
    assert.equal(stage.asked("old.test").length, 1);
    await Promise.all([tab.close(), popup.close()]);
  });

  test("redirects that lead nowhere or elsewhere now are counted and retired", async () => {
    await stage.load({
      redirects: [
        ["https://gone-from.test/", "https://gone.test/"],
        ["https://old.test/", "https://moved.test/"],
        ["https://circle.test/", "https://round.test/"],
      ],
    });
    const before = (await stage.state()).retired;
    const tab = await stage.browser.tab();
    await assert.rejects(tab.go("https://gone-from.test/"), /ERR_HTTP_RESPONSE_CODE_FAILURE/);
    await until(async () => (await stage.state()).retired === before + 1);
    await tab.go("https://gone-from.test/");
    assert.equal(await tab.evaluate("document.body.innerText"), "here");

    await tab.go("https://old.test/");
    await until(async () => (await stage.state()).retired === before + 2);
    await tab.go("https://old.test/");
    assert.deepEqual([stage.asked("moved.test").length, stage.asked("old.test").length], [1, 1]);

    // What would go round for ever ends by itself.
    await tab.go("https://circle.test/");
    assert.equal(await tab.evaluate("document.body.innerText"), "circle");
    await until(async () => (await stage.state()).retired === before + 3);
    // Nothing of it is on disk.
    const kept = JSON.stringify(await stage.call("chrome.storage.local.get()"));
    assert.doesNotMatch(kept, /test/);
    await tab.close();
  });

  test("a worker that was ended goes on", async () => {
    await stage.load({
      redirects: [["https://old.test/", "https://new.test/"]],
      pages: { "https://new.test/": ["https://ads.other.test"] },
    });
    const { connections } = await stage.state();
    await stage.endWorker();
    const tab = await stage.browser.tab();
    await stage.goKnown(tab, "https://old.test/", "new.test/");
    assert.deepEqual(stage.asked("old.test"), []);
    await until(async () => (await stage.state()).connections === connections + 1);
    await tab.close();
  });

  test("private windows are left alone, until the user allows it", async () => {
    await stage.load({ redirects: [["https://old.test/", "https://new.test/"]], pages: SERVERS });
    const { redirects } = await stage.state();
    /** @param {string} url */
    const privately = async (url) => {
      await stage.call(
        `chrome.windows.create({ url: ${JSON.stringify(url)}, incognito: true }).then(() => {})`,
      );
    };
    await privately("https://old.test/");
    await until(() => stage.asked("new.test").length === 1);
    assert.deepEqual(
      [stage.asked("old.test"), (await stage.state()).redirects],
      [["/"], redirects],
    );

    await stage.allowPrivate();
    await stage.load({ redirects: [["https://old.test/", "https://new.test/"]], pages: SERVERS });
    await privately("https://old.test/");
    await until(() => stage.asked("new.test").length === 2);
    // It counts from when the extension was started anew.
    await until(async () => (await stage.state()).redirects === 1);
    assert.equal(stage.asked("old.test").length, 1);
    // What was done there is not known any more once the window is closed, and none of it was
    // written down.
    const known =
      "chrome.storage.session.get().then((all) => Object.values(all).some((of) => of.isPrivate))";
    assert.equal(await stage.call(known), true);
    await stage.call(
      `chrome.windows.getAll().then((all) => {
        for (const one of all) if (one.incognito) chrome.windows.remove(one.id);
      })`,
    );
    await until(async () => (await stage.call(known)) === false);
    assert.doesNotMatch(JSON.stringify(await stage.call("chrome.storage.local.get()")), /test/);
  });
});

describe("without third-party cookies", () => {
  test("no connection is opened that no request could use, with HTTP/1.1", async () => {
    const stage = await Stage.build({ blocked: true, http1: true });
    try {
      serve(stage);
      await stage.load({ pages: SERVERS });
      await stage.web.forget();
      const tab = await visit(stage, 2);
      assert.equal(others(stage).length, 3);
      const state = await stage.state(tab);
      assert.deepEqual([state.tab.opened.length, state.tab.skipped], [2, 1]);
      // The one that no request could have used was opened last, by the request.
      assert.equal(stage.web.connections.at(-1), "ads.other.test");
      await until(
        async () => (await stage.call("chrome.storage.local.get()")).thirdPartyBlocked === true,
      );
    } finally {
      await stage.end();
    }
  });
});
