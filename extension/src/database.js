// The database in use: fetched, judged, put in place, taken away. One at a time, also with an
// options page open.

import * as file from "./file.js";
import { isStale, judge } from "./judge.js";
import { FETCH_MS, FILE_BYTES } from "./limits.js";
import { isOffRule, redirectRules } from "./rules.js";
import * as settings from "./settings.js";
import * as store from "./store.js";

const { declarativeNetRequest } = chrome;

/** @typedef {import("./store.js").About & { isNew: boolean }} Loaded */

/** Seconds since 1970. */
export const now = () => Math.floor(Date.now() / 1000);

/**
 * Fetches, verifies and applies a database.
 * @param {import("./settings.js").Source} source
 * @returns {Promise<Loaded>}
 */
export async function load({ url, key }) {
  file.publicKey(key);
  return take(await fetched(url), key);
}

/**
 * Verifies and applies a database that is there.
 * @param {Uint8Array<ArrayBuffer>} bytes
 * @param {string} key
 * @returns {Promise<Loaded>}
 */
export async function take(bytes, key) {
  const database = await file.read(bytes, key);
  return alone(async () => {
    const held = await store.about();
    if (judge(database, held, now()) === "same" && held) return { ...held, isNew: false };
    return { ...(await put(database)), isNew: true };
  });
}

/** Forgets the database. */
export function remove() {
  return alone(async () => {
    await setRules([]);
    await store.remove();
  });
}

/**
 * Makes the rules again of what is held: after sites were turned off or on, when the browser
 * starts, and when the database has become stale.
 */
export function refresh() {
  return alone(async () => {
    const held = await store.about();
    const isUsed = held && !isStale(held.created, now());
    await setRules(isUsed ? (await made(await store.redirects())).rules : []);
  });
}

/** What is held, if it may be used. */
export async function inUse() {
  const held = await store.about();
  return held && !isStale(held.created, now()) ? held : undefined;
}

/** @param {import("./file.js").Database} database */
async function put(database) {
  const before = await declarativeNetRequest.getDynamicRules();
  const { rules, leftOut } = await made(database.redirects);
  // Chromium takes all rules or none, and so does the store: what either objects to changes
  // nothing.
  await setRules(rules);
  try {
    return await store.replace({ ...database, leftOut: database.leftOut + leftOut });
  } catch (error) {
    await setRules(before);
    throw error;
  } finally {
    await forgetOffRules();
  }
}

/** @param {import("./file.js").Redirect[]} redirects */
async function made(redirects) {
  const off = new Set(await settings.off());
  const { MAX_NUMBER_OF_DYNAMIC_RULES: all, MAX_NUMBER_OF_UNSAFE_DYNAMIC_RULES: unsafe } =
    declarativeNetRequest;
  return redirectRules(redirects, { all, unsafe }, (site) => off.has(site));
}

/** @param {chrome.declarativeNetRequest.Rule[]} addRules */
async function setRules(addRules) {
  const removeRuleIds = (await declarativeNetRequest.getDynamicRules()).map((rule) => rule.id);
  await declarativeNetRequest.updateDynamicRules({ removeRuleIds, addRules });
}

/** A newer database knows better which redirects still are. */
async function forgetOffRules() {
  const rules = (await declarativeNetRequest.getSessionRules()).filter(isOffRule);
  await declarativeNetRequest.updateSessionRules({ removeRuleIds: rules.map((rule) => rule.id) });
}

/**
 * Without anything that tells one user from another, and not from a cache of this browser's.
 * @param {string} url
 */
async function fetched(url) {
  const response = await fetch(url, {
    cache: "no-store",
    credentials: "omit",
    redirect: "error",
    referrerPolicy: "no-referrer",
    signal: AbortSignal.timeout(FETCH_MS),
  }).catch((error) => {
    throw new file.Refused(`cannot fetch ${url}: ${error.message}`);
  });
  if (!response.ok || !response.body) throw new file.Refused(`${url}: status ${response.status}`);
  return bounded(response.body);
}

/** @param {ReadableStream<Uint8Array<ArrayBuffer>>} stream */
async function bounded(stream) {
  const parts = [];
  let bytes = 0;
  for (const reader = stream.getReader(); ;) {
    const { done, value } = await reader.read();
    if (done) break;
    bytes += value.length;
    if (bytes > FILE_BYTES) {
      await reader.cancel();
      throw new file.Refused(`more than ${FILE_BYTES} bytes`);
    }
    parts.push(value);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/**
 * @template T
 * @param {() => Promise<T>} work
 * @returns {Promise<T>}
 */
function alone(work) {
  return /** @type {Promise<T>} */ (navigator.locks.request("database", work));
}
