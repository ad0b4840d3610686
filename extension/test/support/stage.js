// A web, a browser with the extension in it, and a maker of databases.

import { fileURLToPath } from "node:url";
import { Chromium, until } from "./chromium.js";
import { maker, sealed } from "./sealed.js";
import { Web } from "./web.js";

const EXTENSION = fileURLToPath(new URL("../..", import.meta.url));

/** What Chromium has by default; Debian's blocks third-party cookies. */
export const COOKIES_ALLOWED = {
  profile: { block_third_party_cookies: false, cookie_controls_mode: 0 },
};

export class Stage {
  by = maker();
  #created = Math.floor(Date.now() / 1000) - 86_400;

  /**
   * @param {Web} web
   * @param {Chromium} browser
   * @param {string} id
   */
  constructor(web, browser, id) {
    this.web = web;
    this.browser = browser;
    this.id = id;
  }

  /**
   * @param {{ blocked?: boolean, http1?: boolean }} [how] third-party cookies blocked; HTTP/1.1
   * alone
   */
  static async build({ blocked = false, http1 = false } = {}) {
    const web = await Web.start(http1);
    return Stage.of(web, web.arguments, blocked ? {} : COOKIES_ALLOWED);
  }

  /**
   * @param {Web} web
   * @param {string[]} more what Chromium is to be told
   * @param {object} [preferences]
   */
  static async of(web, more, preferences = COOKIES_ALLOWED) {
    const browser = await Chromium.start(more, preferences);
    const stage = new Stage(web, browser, await browser.loadExtension(EXTENSION));
    await until(() => stage.call("!!self.headstart"));
    return stage;
  }

  async end() {
    await this.browser.end();
    await this.web.end();
  }

  /** What the worker says; it may have been started anew. @param {string} expression */
  async call(expression) {
    const worker = await this.browser.worker(this.id);
    try {
      return await worker.evaluate(expression);
    } finally {
      await worker.detach();
    }
  }

  /**
   * Loads a database into the extension.
   * @param {Parameters<typeof sealed>[1]} of
   * @param {object} [more] to tell `load`
   */
  load(of, more = {}) {
    // Each a second later than the one before it: else it would be the same.
    this.#created += 1;
    this.web.pages["db.test/pages.hsdx"] = {
      body: sealed(this.by, { created: this.#created, ...of }),
    };
    return this.fetch(this.by.pem, more);
  }

  /** Takes what the server has. @param {string} [key] @param {object} [more] */
  fetch(key = this.by.pem, more = {}) {
    return this.call(
      `headstart.load(${JSON.stringify({ url: "https://db.test/pages.hsdx", key, ...more })})`,
    );
  }

  /** Counts, and what was done for a tab. @param {import("./chromium.js").Session} [tab] */
  async state(tab) {
    return this.call(`headstart.state(${tab ? await this.number(tab) : ""})`);
  }

  /**
   * The number of a tab as extensions know it.
   * @param {import("./chromium.js").Session} tab
   * @returns {Promise<number>}
   */
  async number(tab) {
    const url = await tab.evaluate("location.href");
    return this.call(
      `chrome.tabs.query({}).then(
        (tabs) => tabs.filter(({ url }) => url === ${JSON.stringify(url)}).at(-1)?.id,
      )`,
    );
  }

  /**
   * Goes to a page that the database knows: however slow this machine is, the answer comes after
   * the worker looked it up. @param {import("./chromium.js").Session} tab @param {string} url
   * @param {string} [page] that answers, by host and path
   */
  async goKnown(tab, url, page = url.replace("https://", "")) {
    const isRule =
      "chrome.declarativeNetRequest.getSessionRules().then(" +
      "(all) => all.some((one) => one.action.type === 'modifyHeaders'))";
    // A worker that is just starting has no such function yet.
    const wait = until(() => this.call(isRule).catch(() => false));
    this.web.pages[page] = {
      .../** @type {import("./web.js").Answer} */ (this.web.pages[page]),
      wait,
    };
    await tab.go(url);
  }

  /** What Chromium does with a worker to which nothing happens for half a minute. */
  async endWorker() {
    const is = (/** @type {any} */ of) => of.type === "service_worker" && of.url.includes(this.id);
    const { targetId } = await this.browser.target(is);
    await this.browser.send("Target.closeTarget", { targetId });
    await until(async () => !(await this.browser.send("Target.getTargets")).targetInfos.some(is));
  }

  /** What the user does on chrome://extensions. The extension is started anew by it. */
  async allowPrivate() {
    const tab = await this.browser.tab("chrome://extensions/");
    await until(() => tab.evaluate("!!chrome.developerPrivate").catch(() => false));
    // Without it, extensions from folders are not started again.
    await tab.evaluate(
      "chrome.developerPrivate.updateProfileConfiguration({ inDeveloperMode: true })",
    );
    const allowed = JSON.stringify({ extensionId: this.id, incognitoAccess: true });
    await tab.evaluate(`chrome.developerPrivate.updateExtensionConfiguration(${allowed})`);
    // The popup asks the worker, which is there then; it cannot be opened before the extension is
    // there again.
    const popup = await this.browser.tab();
    await until(() =>
      popup.go(this.url("popup.html")).then(
        () => true,
        () => false,
      ),
    );
    await until(() =>
      this.call("!!self.headstart && chrome.extension.isAllowedIncognitoAccess()").catch(
        () => false,
      ),
    );
    await Promise.all([tab.close(), popup.close()]);
  }

  /** A page of the extension. @param {string} page */
  async open(page) {
    const tab = await this.browser.tab(this.url(page));
    await until(() => tab.evaluate("document.body?.dataset.ready === ''").catch(() => false));
    return tab;
  }

  /** @param {string} page */
  url(page) {
    return `chrome-extension://${this.id}/pages/${page}`;
  }

  /** The popup, as it is for a tab. @param {import("./chromium.js").Session} tab */
  async popup(tab) {
    return this.open(`popup.html?tab=${await this.number(tab)}`);
  }

  /** Paths that a host was asked for. @param {string} host */
  asked(host) {
    return this.web.asked.filter((of) => of.host === host).map(({ path }) => path);
  }
}
