// What was done for the page in each tab: in memory, until the tab goes elsewhere.

import { REDIRECTS_PER_VISIT } from "./limits.js";

/**
 * @typedef {import("./file.js").Redirect & { state: "used" | "outdated" }} Followed
 * @typedef {{
 *   request: string,
 *   url: string,
 *   isPrivate: boolean,
 *   redirects: Followed[],
 *   offered: import("./file.js").Server[],
 *   opened: import("./file.js").Server[],
 *   skipped: number,
 * }} Visit `offered` connections were asked for; `opened` once the answer came with them
 *
 * @typedef {{ redirects: number, connections: number, pages: number, undone: number, retired:
 * number }} Totals
 */

/** @type {Totals} */
const NONE = { redirects: 0, connections: 0, pages: 0, undone: 0, retired: 0 };

/** @param {number} tab */
const name = (tab) => `tab ${tab}`;

/** @param {number} tab @returns {Promise<Visit | undefined>} */
export async function of(tab) {
  const { [name(tab)]: visit } = await chrome.storage.session.get(name(tab));
  return /** @type {Visit | undefined} */ (visit);
}

/**
 * The visit that a request belongs to; redirected requests keep theirs.
 * @param {number} tab
 * @param {string} request
 * @param {string} url
 * @returns {Promise<Visit>}
 */
export async function begun(tab, request, url) {
  const visit = await of(tab);
  if (visit?.request === request) return { ...visit, url, offered: [], opened: [], skipped: 0 };
  const isPrivate = (await chrome.tabs.get(tab).catch(() => undefined))?.incognito === true;
  return { request, url, isPrivate, redirects: [], offered: [], opened: [], skipped: 0 };
}

/** @param {number} tab @param {Visit} visit */
export function keep(tab, visit) {
  const redirects = visit.redirects.slice(0, REDIRECTS_PER_VISIT);
  return chrome.storage.session.set({ [name(tab)]: { ...visit, redirects } });
}

/** @param {number} tab */
export function forget(tab) {
  return chrome.storage.session.remove(name(tab));
}

/** Counts since the browser started. @returns {Promise<Totals>} */
export async function totals() {
  const { totals } = await chrome.storage.session.get("totals");
  return { ...NONE, .../** @type {Partial<Totals> | undefined} */ (totals) };
}

/** One after another: each reads what the one before it wrote. @type {Promise<unknown>} */
let counting = Promise.resolve();

/** @param {Partial<Totals>} more */
export function count(more) {
  counting = counting.then(async () => {
    const sums = await totals();
    for (const key of /** @type {(keyof Totals)[]} */ (Object.keys(more)))
      sums[key] += more[key] ?? 0;
    await chrome.storage.session.set({ totals: sums });
  });
  return counting;
}
