// Chromium, driven over the pipe of its DevTools protocol: a hundred lines instead of a library of
// eighty packages.

import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Longest that a command, a load or anything else may take: where much else runs, half a minute was
 * not far off.
 */
const PATIENCE_MS = 120_000;

const ARGUMENTS = [
  "--headless",
  "--remote-debugging-pipe",
  "--enable-unsafe-extension-debugging",
  "--no-first-run",
  "--no-default-browser-check",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-crash-reporter",
  "--disable-default-apps",
  "--disable-sync",
  // The surface of the address field is made of pages, too.
  "--disable-features=MediaRouter,OptimizationHints,PreloadTopChromeWebUI,Translate," +
    "WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,WebUIOmniboxPopup",
];

/**
 * @typedef {{ id?: number, method?: string, params?: any, result?: any, error?: { message: string
 * }, sessionId?: string }} Message
 */

export class Chromium {
  /** @type {Map<number, { resolve: (result: any) => void, reject: (error: Error) => void }>} */
  #waiting = new Map();
  /** @type {Set<(message: Message) => void>} */
  #listeners = new Set();
  #next = 1;
  #rest = "";
  #stderr = "";

  /**
   * @param {import("node:child_process").ChildProcess} child
   * @param {string} profile
   */
  constructor(child, profile) {
    this.child = child;
    this.profile = profile;
    this.ended = new Promise((resolve) => child.once("exit", resolve));
    const [, , errors, , input] = child.stdio;
    // A character may lie across two reads.
    /** @type {import("node:stream").Readable | null | undefined} */ (input)?.setEncoding("utf8");
    input?.on("data", (/** @type {string} */ text) => this.#read(text));
    input?.on("error", () => {});
    child.stdio[3]?.on("error", () => {});
    errors?.on("data", (/** @type {Buffer} */ bytes) => {
      this.#stderr = (this.#stderr + bytes).slice(-4000);
    });
    child.once("exit", () => {
      for (const { reject } of this.#waiting.values())
        reject(new Error(`Chromium ended: ${this.#stderr}`));
    });
  }

  /**
   * @param {string[]} [more] arguments
   * @param {object} [preferences] of the profile
   */
  static async start(more = [], preferences = {}) {
    const profile = await mkdtemp(join(tmpdir(), "headstart-extension-"));
    await mkdir(join(profile, "Default"));
    await writeFile(join(profile, "Default", "Preferences"), JSON.stringify(preferences));
    const sandbox = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    const program = process.env.CHROMIUM ?? "chromium";
    const child = spawn(
      program,
      [...ARGUMENTS, ...sandbox, `--user-data-dir=${profile}`, ...more, "about:blank"],
      {
        stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"],
        detached: true,
      },
    );
    const browser = new Chromium(child, profile);
    await browser.send("Target.setDiscoverTargets", { discover: true });
    return browser;
  }

  /** Ends the browser, and all that it started. */
  async end() {
    await Promise.race([this.send("Browser.close").catch(() => {}), this.ended]);
    await Promise.race([this.ended, new Promise((resolve) => setTimeout(resolve, 10_000).unref())]);
    try {
      process.kill(-(this.child.pid ?? 0), "SIGKILL");
    } catch {
      // All of them have ended.
    }
    await rm(this.profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }

  /**
   * @param {string} method
   * @param {object} [params]
   * @param {string} [sessionId]
   * @returns {Promise<any>}
   */
  send(method, params = {}, sessionId) {
    const id = this.#next++;
    const pipe = /** @type {import("node:stream").Writable} */ (this.child.stdio[3]);
    pipe.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(`${method}: no answer`)), PATIENCE_MS);
      late.unref();
      this.#waiting.set(id, {
        resolve: (result) => (clearTimeout(late), resolve(result)),
        reject: (error) => (clearTimeout(late), reject(error)),
      });
    });
  }

  /** @param {(message: Message) => void} listener */
  listen(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /**
   * @param {string} path of an unpacked extension
   * @returns {Promise<string>} its id
   */
  async loadExtension(path) {
    return (await this.send("Extensions.loadUnpacked", { path })).id;
  }

  /**
   * The first target that is as wanted, also one that comes later.
   * @param {(target: any) => boolean} is
   */
  async target(is) {
    return until(async () => (await this.send("Target.getTargets")).targetInfos.find(is));
  }

  /**
   * Attaches to a target.
   * @param {string} targetId
   */
  async attach(targetId) {
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    return new Session(this, sessionId, targetId);
  }

  /** A new tab. @param {string} [url] */
  async tab(url = "about:blank") {
    const { targetId } = await this.send("Target.createTarget", { url });
    const session = await this.attach(targetId);
    await session.send("Page.enable");
    return session;
  }

  /** The service worker of an extension. @param {string} id */
  async worker(id) {
    const target = await this.target(
      (/** @type {any} */ of) => of.type === "service_worker" && of.url.includes(id),
    );
    return this.attach(target.targetId);
  }

  /** @param {string} text */
  #read(text) {
    const parts = (this.#rest + text).split("\0");
    this.#rest = parts.pop() ?? "";
    for (const part of parts) this.#handle(JSON.parse(part));
  }

  /** @param {Message} message */
  #handle(message) {
    if (message.id === undefined) {
      for (const listener of this.#listeners) listener(message);
      return;
    }
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) waiting?.reject(new Error(message.error.message));
    else waiting?.resolve(message.result);
  }
}

export class Session {
  /**
   * @param {Chromium} browser
   * @param {string} id
   * @param {string} targetId
   */
  constructor(browser, id, targetId) {
    this.browser = browser;
    this.id = id;
    this.targetId = targetId;
  }

  /** @param {string} method @param {object} [params] */
  send(method, params) {
    return this.browser.send(method, params, this.id);
  }

  /**
   * The value of an expression; promises are awaited.
   * @param {string} expression
   * @returns {Promise<any>}
   */
  async evaluate(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
      userGesture: true,
    });
    if (exceptionDetails)
      throw new Error(
        exceptionDetails.exception?.description ??
          exceptionDetails.exception?.value ??
          exceptionDetails.text,
      );
    return result.value;
  }

  /**
   * Goes to a URL, and waits for its load event.
   * @param {string} url
   */
  async go(url) {
    const loaded = this.event("Page.loadEventFired");
    const { errorText } = await this.send("Page.navigate", { url });
    // Chromium's own page has the event, too.
    await loaded;
    if (errorText) throw new Error(`${url}: ${errorText}`);
  }

  /**
   * Chooses a file, as users do.
   * @param {string} selector
   * @param {string} file
   */
  async choose(selector, file) {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", { nodeId: root.nodeId, selector });
    await this.send("DOM.setFileInputFiles", { nodeId, files: [file] });
  }

  /**
   * By host: the first answer's times, as the browser has them. Where a connection was there before
   * the request, `connectStart` is -1.
   */
  async connections() {
    await this.send("Network.enable");
    /** @type {Map<string, any>} */
    const connections = new Map();
    const stop = this.browser.listen(({ method, params, sessionId }) => {
      if (method !== "Network.responseReceived" || sessionId !== this.id) return;
      const { url, timing, connectionId, connectionReused } = params.response;
      const { host } = new URL(url);
      if (!connections.has(host))
        connections.set(host, {
          connectionId,
          connectionReused,
          connectStart: timing?.connectStart,
        });
    });
    return { connections, stop };
  }

  /** The next event of this name. @param {string} method @returns {Promise<any>} */
  event(method) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => (off(), reject(new Error(`no ${method}`))), PATIENCE_MS);
      late.unref();
      const off = this.browser.listen((message) => {
        if (message.method !== method || message.sessionId !== this.id) return;
        clearTimeout(late);
        off();
        resolve(message.params);
      });
    });
  }

  detach() {
    return this.browser.send("Target.detachFromTarget", { sessionId: this.id });
  }

  close() {
    return this.browser.send("Target.closeTarget", { targetId: this.targetId });
  }
}

/**
 * What a question gives once it gives something.
 * @template T
 * @param {() => Promise<T | undefined | null | false> | T | undefined | null | false} ask
 * @returns {Promise<T>}
 */
export async function until(ask) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const value = await ask();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not in ${PATIENCE_MS} ms: ${ask}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}
