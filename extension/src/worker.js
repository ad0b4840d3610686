// The service worker: which event leads where. Chromium ends it when nothing happens; all listeners
// stand at the top level, and what has to outlive it is in storage.

import * as database from "./database.js";
import * as navigation from "./navigation.js";
import { isMissed, next } from "./schedule.js";
import * as settings from "./settings.js";
import * as store from "./store.js";
import * as visits from "./visit.js";

/** Documents in tabs, and what becomes of them. @type {chrome.webRequest.RequestFilter} */
const DOCUMENTS = { urls: ["http://*/*", "https://*/*"], types: ["main_frame"] };

/**
 * Requests that say whether third-party cookies are blocked.
 * @type {chrome.webRequest.RequestFilter}
 */
const PARTS = { urls: DOCUMENTS.urls, types: ["image", "script", "sub_frame"] };

/** Events of one tab are handled in their order. @type {Map<number, Promise<void>>} */
const tabs = new Map();

/**
 * @param {{ tabId: number, documentLifecycle?: string }} of
 * @param {() => Promise<void>} work
 */
function inOrder({ tabId: tab, documentLifecycle }, work) {
  // What is prerendered may never be looked at, and the tab's page is another.
  if (tab < 0 || documentLifecycle === "prerender") return;
  const done = (tabs.get(tab) ?? Promise.resolve())
    .then(work)
    .catch((error) => console.warn(error));
  tabs.set(tab, done);
  void done.then(() => tabs.get(tab) === done && tabs.delete(tab));
}

const { webRequest } = chrome;
webRequest.onBeforeRequest.addListener(
  (of) => void inOrder(of, () => navigation.onRequest(of)),
  DOCUMENTS,
);
webRequest.onBeforeRedirect.addListener(
  (of) => inOrder(of, () => navigation.onRedirect(of)),
  DOCUMENTS,
  ["responseHeaders"],
);
webRequest.onResponseStarted.addListener(
  (of) => inOrder(of, () => navigation.onResponse(of)),
  DOCUMENTS,
  ["responseHeaders"],
);
webRequest.onErrorOccurred.addListener(
  (of) => inOrder(of, () => navigation.onFailure(of)),
  DOCUMENTS,
);
chrome.tabs.onRemoved.addListener((tabId) => inOrder({ tabId }, () => navigation.onClosed(tabId)));

/**
 * Requests with credentials to other sites say whether cookies went with them
 * (Sec-Fetch-Storage-Access). @param {{ tabId: number, requestHeaders?:
 * chrome.webRequest.HttpHeader[] }} request
 */
function learn({ tabId, requestHeaders = [] }) {
  const access = requestHeaders.find(
    ({ name }) => name.toLowerCase() === "sec-fetch-storage-access",
  )?.value;
  if (access === undefined || tabId < 0) return;
  webRequest.onSendHeaders.removeListener(learn);
  void (async () => {
    // Of private windows it is known.
    const tab = await chrome.tabs.get(tabId).catch(() => undefined);
    if (tab && !tab.incognito) await settings.setThirdPartyBlocked(access !== "active");
  })();
}
webRequest.onSendHeaders.addListener(learn, PARTS, ["requestHeaders", "extraHeaders"]);

/** Sets the alarm for the next fetch. */
async function schedule() {
  const checked = await settings.checked();
  const fetched = checked?.isGood ? checked.at : undefined;
  const at = await next(await settings.seed(), database.now(), fetched);
  await chrome.alarms.create("update", { when: at * 1000 });
}

/** Fetches from where the user said. */
async function update() {
  const source = await settings.source();
  if (!source) return;
  const said = await database.load(source).then(
    ({ isNew }) => ({
      isGood: true,
      said: isNew ? "a newer database was taken" : "there is no newer database",
    }),
    (error) => ({ isGood: false, said: String(error.message) }),
  );
  await settings.setChecked({ at: database.now(), ...said });
}

async function start() {
  await database.refresh();
  await schedule();
}

chrome.runtime.onInstalled.addListener(() => void start());
chrome.runtime.onStartup.addListener(() => void start());
chrome.alarms.onAlarm.addListener(async ({ scheduledTime }) => {
  if (!isMissed(scheduledTime / 1000, database.now())) await update();
  await start();
});

/**
 * What the pages of the extension ask for.
 * @type {Record<string, (message: any) => Promise<unknown>>}
 */
const ASKED = {
  page: async ({ tab }) => ({
    visit: await visits.of(tab),
    held: await store.about(),
    isUsed: !!(await database.inUse()),
  }),
  undo: ({ tab }) => navigation.undo(tab),
  update,
};

/** Where the pages of the extension are. */
const OWN = new URL(chrome.runtime.getURL("")).origin;

chrome.runtime.onMessage.addListener((message, sender, respond) => {
  // Functions of the extension run in web pages as well: the process of a page that has broken out
  // of its sandbox can send what these could.
  const isOwn = sender.id === chrome.runtime.id && sender.origin === OWN;
  const ask = isOwn && Object.hasOwn(ASKED, message?.ask) ? ASKED[message.ask] : undefined;
  if (!ask) return false;
  ask(message).then(
    (value) => respond({ value }),
    (error) => respond({ error: String(error.message) }),
  );
  return true;
});

/** For measurements and tests: no page can reach it. */
Object.assign(self, {
  headstart: {
    /**
     * Fetches, verifies and applies a database; rejects with the reason. A browser that has loaded
     * no page yet does not know whether third-party cookies are allowed, so that it may be told.
     * @param {import("./settings.js").Source & { thirdPartyCookies?: boolean }} source
     */
    load: async ({ url, key, thirdPartyCookies }) => {
      if (thirdPartyCookies !== undefined) await settings.setThirdPartyBlocked(!thirdPartyCookies);
      return database.load({ url, key });
    },
    /** What was done since the browser started, and for the page of a tab. @param {number} [tab] */
    state: async (tab) => ({
      database: await store.about(),
      ...(await visits.totals()),
      tab: tab === undefined ? undefined : await visits.of(tab),
    }),
  },
});
