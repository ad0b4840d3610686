// The database, where it comes from, and the sites that are turned off.

import * as database from "../src/database.js";
import { publicKey } from "../src/file.js";
import { ask, element, item } from "./page.js";
import * as settings from "../src/settings.js";
import * as store from "../src/store.js";
import * as visits from "../src/visit.js";

const url = /** @type {HTMLInputElement} */ (element("url"));
const key = /** @type {HTMLTextAreaElement} */ (element("key"));
const file = /** @type {HTMLInputElement} */ (element("file"));

async function show() {
  const held = await store.about();
  element("held").hidden = element("remove").hidden = held === undefined;
  element("none").hidden = held !== undefined;
  const checked = await settings.checked();
  if (held) {
    const days = Math.floor((database.now() - held.created) / 86_400);
    const isUsed = (await database.inUse()) !== undefined;
    element("made").textContent =
      `${date(held.created)}, ${age(days)}${isUsed ? "" : ": too old to be used"}`;
    element("made").classList.toggle("bad", !isUsed);
    element("key-name").textContent = held.key;
    const leftOut =
      held.leftOut > 0 ? `, ${count(held.leftOut)} more than rules can say or Chromium takes` : "";
    element("redirects").textContent = count(held.redirects) + leftOut;
    element("pages").textContent = `${count(held.pages)}, with ${count(held.servers)} connections`;
    element("checked").textContent = checked ? `${date(checked.at)}: ${checked.said}` : "not yet";
    const sums = await visits.totals();
    element("used").textContent =
      `since the browser started: redirects ${count(sums.redirects)}, ` +
      `of which undone ${count(sums.undone)}, out of date ${count(sums.retired)}; ` +
      `connections ${count(sums.connections)}, pages ${count(sums.pages)}`;
    element("checked").classList.toggle("bad", checked?.isGood === false);
  }
  await showSites();
}

async function showSites() {
  const off = await settings.off();
  element("no-sites").hidden = off.length > 0;
  const lines = off.map((site) => {
    const button = document.createElement("button");
    button.textContent = "Turn on";
    button.setAttribute("aria-label", `Turn on for ${site}`);
    button.onclick = async () => {
      await settings.setOff(off.filter((of) => of !== site));
      await database.refresh();
      await showSites();
    };
    return item(site, button);
  });
  element("sites").replaceChildren(...lines);
}

/** @param {number} number */
const count = (number) => number.toLocaleString("en");

/** @param {number} seconds */
const date = (seconds) =>
  new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC";

/** @param {number} days */
const age = (days) => (days === 0 ? "today" : days === 1 ? "a day old" : `${days} days old`);

/**
 * Does what a button is for, and says how it went.
 * @param {() => Promise<string>} work
 */
async function tell(work) {
  const result = element("result");
  result.textContent = "…";
  const said = await work().then(
    (text) => ({ text, className: "" }),
    (error) => ({
      text: `Not taken: ${error instanceof Error ? error.message : error}`,
      className: "bad",
    }),
  );
  await show();
  result.textContent = said.text;
  result.className = said.className;
}

element("source").onsubmit = (event) => {
  event.preventDefault();
  void tell(async () => {
    if (url.value === "") {
      await settings.setSource(undefined);
      return "Nothing is fetched any more.";
    }
    publicKey(key.value);
    await settings.setSource({ url: url.value, key: key.value });
    await ask("update");
    const checked = await settings.checked();
    if (!checked?.isGood) throw new Error(checked?.said);
    return `Done: ${checked.said}.`;
  });
};

element("load").onclick = () => file.click();
file.onchange = () => {
  const [chosen] = file.files ?? [];
  if (!chosen) return;
  void tell(async () => {
    publicKey(key.value);
    const { isNew } = await database.take(new Uint8Array(await chosen.arrayBuffer()), key.value);
    return isNew ? "Done: the file's database is in use." : "It is the database that is in use.";
  });
  file.value = "";
};

element("remove").onclick = () =>
  tell(async () => {
    await database.remove();
    return "The database is removed.";
  });

const source = await settings.source();
url.value = source?.url ?? "";
key.value = source?.key ?? "";
await show();
document.body.dataset.ready = "";
