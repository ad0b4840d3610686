// Which hosts belong together.

/**
 * Second levels under which countries register names, such as co.uk: the frequent ones of the
 * public suffix list.
 */
const SECOND_LEVELS = new Set([
  "ac",
  "co",
  "com",
  "edu",
  "gob",
  "gov",
  "govt",
  "gv",
  "ne",
  "net",
  "nom",
  "or",
  "org",
]);

/**
 * The part of a host that somebody registered. Browsers go by the public suffix list, which
 * extensions cannot ask; where this is wrong, a connection is opened in vain or left out, and hosts
 * of one site are turned off one by one. @param {string} host
 */
export function site(host) {
  if (/^[\d.]+$|:/.test(host)) return host;
  const labels = host.split(".");
  const [second = "", top = ""] = labels.slice(-2);
  const count = top.length === 2 && SECOND_LEVELS.has(second) ? 3 : 2;
  return labels.slice(-count).join(".");
}

/** @param {string} url */
export function siteOf(url) {
  return site(new URL(url).hostname);
}
