// What the pages of the extension have in common.

/** @param {string} id */
export function element(id) {
  return /** @type {HTMLElement} */ (document.getElementById(id));
}

/** A line of a list. @param {...(string | Node)} parts */
export function item(...parts) {
  const line = document.createElement("li");
  for (const part of parts) {
    const span = document.createElement("span");
    span.className = "name";
    span.append(part);
    line.append(span);
  }
  return line;
}

/** @param {string} origin */
export function host(origin) {
  return new URL(origin).host;
}

/**
 * Asks the worker.
 * @param {string} what
 * @param {object} [more]
 * @returns {Promise<any>}
 */
export async function ask(what, more = {}) {
  const { value, error } = await chrome.runtime.sendMessage({ ask: what, ...more });
  if (error) throw new Error(error);
  return value;
}
