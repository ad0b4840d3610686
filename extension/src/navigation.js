// What happens as a tab goes somewhere.

import * as database from "./database.js";
import { connections, isOffRule, linkField, linkRule, offRule } from "./rules.js";
import * as settings from "./settings.js";
import { siteOf } from "./site.js";
import * as store from "./store.js";
import * as visits from "./visit.js";

const rules = chrome.declarativeNetRequest;

/** Gone, for certain: other errors pass. */
const GONE = [404, 410];

/**
 * The page's servers are looked up while its request is under way, and stand in a Link field of the
 * answer: what the page itself is told to open is in the partition that its requests use. A
 * document of the same origin, which is left, has the same partition, and can open them at once.
 * @param {{ tabId: number, requestId: string, url: string }} request
 */
export async function onRequest({ tabId, requestId, url }) {
  const visit = await visits.begun(tabId, requestId, url);
  const { open, skipped } = await known(url, visit.isPrivate);
  await visits.keep(tabId, { ...visit, offered: open, skipped });
  const addRules = open.length > 0 ? [linkRule(tabId, url, linkField(open))] : [];
  await rules.updateSessionRules({ removeRuleIds: [tabId], addRules });
  if (open.length > 0) await openNow(tabId, url, open);
}

/**
 * The document that is left sees what is put into it, and where it goes by that: only one whose
 * server is told of it anyway. Others of the site have the partition, too, but not all that
 * browsers take for one site has one owner. @param {number} tabId @param {string} url where it goes
 * @param {import("./file.js").Server[]} servers
 */
async function openNow(tabId, url, servers) {
  const { origin } = new URL(url);
  const { url: left = "" } = await chrome.tabs.get(tabId);
  if (!left.startsWith(`${origin}/`)) return;
  const { scripting } = chrome;
  // Some documents take no scripts, and this one may be gone already.
  await scripting
    .executeScript({
      target: { tabId },
      injectImmediately: true,
      func: preconnect,
      args: [origin, servers],
    })
    .catch(() => {});
}

/**
 * Runs in the document that is left, or in what has come after it.
 * @param {string} own
 * @param {import("./file.js").Server[]} servers
 */
function preconnect(own, servers) {
  if (location.origin !== own) return;
  for (const { origin, anonymous } of servers) {
    const link = document.createElement("link");
    link.rel = "preconnect";
    link.href = origin;
    if (anonymous) link.crossOrigin = "anonymous";
    document.head?.append(link);
    link.remove();
  }
}

/**
 * @param {string} url
 * @param {boolean} isPrivate
 */
async function known(url, isPrivate) {
  const [page] = url.split("#");
  const servers = await store.page(page ?? url);
  const isUsed =
    servers && (await database.inUse()) && !(await settings.off()).includes(siteOf(url));
  if (!isUsed) return { open: [], skipped: 0 };
  return connections(url, servers, isPrivate || (await settings.thirdPartyBlocked()));
}

/**
 * A redirect: one of ours, or one of a server's. If one of ours led here, it is out of date.
 * @param {{
 *   tabId: number, requestId: string, url: string, redirectUrl: string, ip?: string,
 *   responseHeaders?: chrome.webRequest.HttpHeader[],
 * }} request
 */
export async function onRedirect({ tabId, requestId, url, redirectUrl, ip, responseHeaders = [] }) {
  const visit = await visits.begun(tabId, requestId, url);
  // Chromium redirects to https by itself, too (HSTS), and says why in the answer that it makes up.
  const isByRule = responseHeaders.some(
    ({ name, value }) => name === "Non-Authoritative-Reason" && value === "WebRequest API",
  );
  if (isByRule && (await store.leads(url)) === redirectUrl) {
    const redirects = [
      ...visit.redirects,
      { from: url, to: redirectUrl, state: /** @type {const} */ ("used") },
    ];
    await visits.keep(tabId, { ...visit, redirects });
    await visits.count({ redirects: 1 });
  } else if (ip !== undefined) {
    await retire(tabId, visit, url);
  }
}

/**
 * The head of the answer. @param {{ tabId: number, requestId: string, url: string, statusCode:
 * number, responseHeaders?: chrome.webRequest.HttpHeader[] }} response
 */
export async function onResponse({ tabId, requestId, url, statusCode, responseHeaders = [] }) {
  const visit = await visits.of(tabId);
  await rules.updateSessionRules({ removeRuleIds: [tabId] });
  if (visit?.request !== requestId) return;
  if (GONE.includes(statusCode)) await retire(tabId, visit, url);
  const field = linkField(visit.offered);
  const isThere = responseHeaders.some(
    ({ name, value }) => name.toLowerCase() === "link" && value?.includes(field),
  );
  if (visit.offered.length === 0 || !isThere) return;
  await visits.keep(tabId, { ...visit, opened: visit.offered });
  await visits.count({ pages: 1, connections: visit.offered.length });
}

/**
 * Nothing comes any more.
 * @param {{ tabId: number }} request
 */
export async function onFailure({ tabId }) {
  await rules.updateSessionRules({ removeRuleIds: [tabId] });
}

/**
 * The user wants to go to where the redirects of this page began, and see where they lead today.
 * @param {number} tab
 */
export async function undo(tab) {
  const visit = await visits.of(tab);
  const first = visit?.redirects[0];
  if (!visit || !first) throw new Error("nothing was redirected here");
  for (const { from } of visit.redirects) await turnOff(from, tab, visit.isPrivate);
  await visits.count({ undone: 1 });
  await chrome.tabs.update(tab, { url: first.from });
}

/**
 * A redirect that led to this URL is out of date: it is not used again until the browser ends, or a
 * newer database comes. What is out of date is kept in memory only: on disk it would say what was
 * visited. @param {number} tab @param {import("./visit.js").Visit} visit @param {string} url
 */
async function retire(tab, visit, url) {
  const outdated = visit.redirects.filter((of) => of.to === url && of.state === "used");
  for (const of of outdated) {
    await turnOff(of.from, tab, visit.isPrivate);
    of.state = "outdated";
  }
  if (outdated.length === 0) return;
  await visits.keep(tab, visit);
  await visits.count({ retired: outdated.length });
}

/**
 * @param {string} from
 * @param {number} tab
 * @param {boolean} isPrivate what happens in a private window has no effect in others
 */
async function turnOff(from, tab, isPrivate) {
  const there = (await rules.getSessionRules()).filter(isOffRule);
  const taken = new Set(there.map((rule) => rule.id));
  let number = 0;
  while (taken.has(offRule(from, number).id)) number += 1;
  await rules.updateSessionRules({
    addRules: [offRule(from, number, isPrivate ? tab : undefined)],
  });
}

/**
 * A tab is gone, and all that was known of it.
 * @param {number} tab
 */
export async function onClosed(tab) {
  const own = (await rules.getSessionRules()).filter((rule) =>
    rule.condition.tabIds?.includes(tab),
  );
  await rules.updateSessionRules({ removeRuleIds: own.map((rule) => rule.id) });
  await visits.forget(tab);
}
