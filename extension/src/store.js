// The database, in IndexedDB: a navigation looks up one page, not a file of megabytes. Nothing is
// ever written here but a whole database.

/**
 * @typedef {{ created: number, key: string, redirects: number, pages: number, servers: number,
 * leftOut: number }} About
 */

const STORES = ["about", "pages", "redirects"];

/** @type {Promise<IDBDatabase> | undefined} */
let opened;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("headstart", 1);
    request.onupgradeneeded = () =>
      STORES.forEach((name) => request.result.createObjectStore(name));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  return opened;
}

/**
 * @template T
 * @param {string} store
 * @param {(store: IDBObjectStore) => IDBRequest<T>} ask
 * @returns {Promise<T>}
 */
async function read(store, ask) {
  const database = await open();
  return new Promise((resolve, reject) => {
    const request = ask(database.transaction(store).objectStore(store));
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** What is held. @returns {Promise<About | undefined>} */
export function about() {
  return read("about", (store) => store.get("database"));
}

/**
 * Connections of a page.
 * @param {string} url
 * @returns {Promise<import("./file.js").Server[] | undefined>}
 */
export function page(url) {
  return read("pages", (store) => store.get(url));
}

/** Where a URL leads. @param {string} from @returns {Promise<string | undefined>} */
export function leads(from) {
  return read("redirects", (store) => store.get(from));
}

/** All redirects, in the order of the file. @returns {Promise<import("./file.js").Redirect[]>} */
export async function redirects() {
  return (await read("about", (store) => store.get("redirects"))) ?? [];
}

/**
 * Puts a database in the place of the one that is held: all of it, or nothing.
 * @param {import("./file.js").Database} database
 * @returns {Promise<About>}
 */
export async function replace(database) {
  const servers = Array.from(database.pages.values(), (of) => of.length).reduce(
    (sum, count) => sum + count,
    0,
  );
  const { created, key, redirects, pages, leftOut } = database;
  const about = { created, key, leftOut, servers, redirects: redirects.length, pages: pages.size };
  await write((store) => {
    store("about").put(about, "database");
    store("about").put(redirects, "redirects");
    for (const { from, to } of redirects) store("redirects").put(to, from);
    for (const [url, of] of pages) store("pages").put(of, url);
  });
  return about;
}

/** Forgets the database. */
export function remove() {
  return write(() => {});
}

/** @param {(store: (name: string) => IDBObjectStore) => void} put */
async function write(put) {
  const database = await open();
  const transaction = database.transaction(STORES, "readwrite");
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve(undefined);
    transaction.onabort = () => reject(transaction.error);
  });
  for (const name of STORES) transaction.objectStore(name).clear();
  put((name) => transaction.objectStore(name));
  await done;
}
