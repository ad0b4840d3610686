// What was done for the page in this tab.

import * as database from "../src/database.js";
import { saved, timing } from "../src/estimate.js";
import { ask, element, host, item } from "./page.js";
import * as settings from "../src/settings.js";
import { siteOf } from "../src/site.js";

/** @typedef {import("../src/visit.js").Visit} Visit */

/** The tab that this is about: the one that is looked at, or the one that is named. */
async function tab() {
  const named = Number(new URLSearchParams(location.search).get("tab"));
  if (named) return chrome.tabs.get(named);
  const [active] = await chrome.tabs.query({ active: true, currentWindow: true });
  return active;
}

async function show() {
  const of = await tab();
  const { visit, held, isUsed } = await ask("page", { tab: of?.id });
  const isPage = /^https?:/.test(of?.url ?? "");
  const off = await settings.off();
  const site = isPage ? siteOf(of?.url ?? "") : "";
  await showSwitch(site, off, of?.incognito === true);
  const nothing = !held
    ? "No database is there yet. The options have a place for one."
    : !isUsed
      ? "The database is too old to be used. The options say where it comes from."
      : !isPage
        ? "There is nothing to do on this page."
        : off.includes(site)
          ? "Turned off for this site."
          : !visit ||
              host(visit.url) !== host(of?.url ?? "") ||
              (visit.redirects.length === 0 && visit.opened.length === 0)
            ? "The database says nothing of this page."
            : undefined;
  element("nothing").hidden = nothing === undefined;
  element("something").hidden = nothing !== undefined;
  element("nothing").textContent = nothing ?? "";
  if (nothing === undefined && of?.id !== undefined) await showVisit(of.id, visit);
}

/**
 * @param {number} tab
 * @param {Visit} visit
 */
async function showVisit(tab, visit) {
  const [measured] = await chrome.scripting
    .executeScript({ target: { tabId: tab }, func: timing })
    .catch(() => []);
  const times = saved(visit, measured?.result ?? { connect: 0, responseStart: 0, first: {} });
  showRedirect(visit);
  showConnections(visit, times.used);
  const sum = [times.redirects ?? 0, ...Object.values(times.used).map((ms) => ms ?? 0)].reduce(
    (sum, ms) => sum + ms,
    0,
  );
  element("time").textContent = times.handshake === undefined ? "?" : `${Math.round(sum)} ms`;
  element("when").textContent =
    times.handshake === undefined
      ? "saved: the page's own connection was there before, which leaves nothing to estimate by"
      : "saved, by estimate";
  element("how").hidden = false;
}

/** @param {Visit} visit */
function showRedirect({ redirects }) {
  const [first] = redirects;
  element("redirect").hidden = first === undefined;
  if (!first) return;
  element("from").textContent = shortened(first.from);
  const isOutdated = redirects.some(({ state }) => state === "outdated");
  const to = shortened(redirects.at(-1)?.to ?? "");
  element("to").textContent = isOutdated
    ? `${to} (which is out of date: it will not be used again)`
    : to;
}

/**
 * @param {Visit} visit
 * @param {Record<string, number | undefined>} used
 */
function showConnections({ opened }, used) {
  element("connections").hidden = opened.length === 0;
  const count = Object.keys(used).length;
  element("opened").textContent =
    `${opened.length} connection${opened.length === 1 ? "" : "s"} opened early, ${count} used`;
  const items = opened.map(({ origin }) => {
    const isUsed = origin in used;
    const ms = used[origin];
    return item(
      host(origin),
      isUsed ? (ms === undefined ? "used" : `${Math.round(ms)} ms`) : "not used yet",
    );
  });
  element("servers").replaceChildren(...items);
}

/** @param {string} url */
function shortened(url) {
  const { protocol, host, pathname } = new URL(url);
  return `${protocol === "http:" ? "http://" : ""}${host}${pathname.length > 1 ? pathname : ""}`;
}

/**
 * @param {string} site
 * @param {string[]} off
 * @param {boolean} isPrivate
 */
async function showSwitch(site, off, isPrivate) {
  const box = /** @type {HTMLInputElement} */ (element("on"));
  box.checked = site !== "" && !off.includes(site);
  // It would be remembered.
  box.disabled = site === "" || isPrivate;
  element("on-text").textContent =
    site === ""
      ? "Not for pages like this"
      : isPrivate
        ? `On for ${site}; sites are not turned off from private windows`
        : box.checked
          ? `On for ${site}`
          : `Off for ${site}`;
  box.onchange = async () => {
    await settings.setOff(box.checked ? off.filter((of) => of !== site) : [...off, site]);
    await database.refresh();
    await show();
  };
}

element("undo").onclick = async () => {
  await ask("undo", { tab: (await tab())?.id });
  close();
};
element("options").onclick = (event) => {
  event.preventDefault();
  void chrome.runtime.openOptionsPage();
};

window.addEventListener("unhandledrejection", ({ reason }) => {
  element("problem").hidden = false;
  element("problem").textContent = String(reason?.message ?? reason);
});

await show();
document.body.dataset.ready = "";
