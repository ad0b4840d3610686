// What the user chose, kept until it is changed. Nothing here comes from what is visited but the
// sites that the user turned off.

/** @typedef {{ url: string, key: string }} Source where databases come from, and who signs them */
/**
 * @typedef {{ at: number, said: string, isGood: boolean }} Checked the last update, in seconds
 * since 1970
 */

/** @template T @param {string} name @param {T} otherwise @returns {Promise<T>} */
async function get(name, otherwise) {
  const { [name]: value } = await chrome.storage.local.get(name);
  return /** @type {T} */ (value ?? otherwise);
}

/** @returns {Promise<Source | undefined>} */
export const source = () => get("source", undefined);

/** @param {Source | undefined} source */
export async function setSource(source) {
  if (source) await chrome.storage.local.set({ source });
  else await chrome.storage.local.remove("source");
}

/** @returns {Promise<Checked | undefined>} */
export const checked = () => get("checked", undefined);

/** @param {Checked} checked */
export const setChecked = (checked) => chrome.storage.local.set({ checked });

/** Sites that are turned off. @returns {Promise<string[]>} */
export const off = () => get("off", []);

/** @param {string[]} off */
export const setOff = (off) => chrome.storage.local.set({ off });

/**
 * Whether this browser blocks third-party cookies, as its own requests said; blocked until one said
 * so. Private windows block them. @returns {Promise<boolean>}
 */
export const thirdPartyBlocked = () => get("thirdPartyBlocked", true);

/** @param {boolean} thirdPartyBlocked */
export const setThirdPartyBlocked = (thirdPartyBlocked) =>
  chrome.storage.local.set({ thirdPartyBlocked });

/** Random bytes that decide when to fetch; drawn once. @returns {Promise<number[]>} */
export async function seed() {
  const drawn = Array.from(crypto.getRandomValues(new Uint8Array(32)));
  const seed = await get("seed", drawn);
  if (seed === drawn) await chrome.storage.local.set({ seed });
  return seed;
}
