// What declarativeNetRequest is told.

import { CONNECTIONS_PER_PAGE } from "./limits.js";
import { site, siteOf } from "./site.js";

/** @typedef {chrome.declarativeNetRequest.Rule} Rule */

/** Turned off goes before what the database says. */
const PRIORITY = { redirect: 1, link: 1, off: 2 };

/**
 * Rule numbers of the session: those of fields are the tab's, those of redirects turned off count
 * down from here.
 */
const OFF_TOP = 2 ** 31 - 1;

/**
 * Rules of a database. Those that only change http to https do not count among those that Chromium
 * calls unsafe, of which it takes 5,000. @param {import("./file.js").Redirect[]} redirects @param
 * {{ all: number, unsafe: number }} most @param {(site: string) => boolean} isOff @returns {{
 * rules: Rule[], leftOut: number }}
 */
export function redirectRules(redirects, most, isOff) {
  /** @type {Rule[]} */
  const rules = [];
  let unsafe = 0;
  let leftOut = 0;
  for (const { from, to } of redirects) {
    if (isOff(siteOf(from)) || isOff(siteOf(to))) continue;
    const isUpgrade = from.replace("http:", "https:") === to && new URL(from).port === "";
    if (rules.length >= most.all || (!isUpgrade && unsafe >= most.unsafe)) {
      leftOut += 1;
      continue;
    }
    if (!isExact(from)) {
      leftOut += 1;
      continue;
    }
    unsafe += isUpgrade ? 0 : 1;
    rules.push({
      id: rules.length + 1,
      priority: PRIORITY.redirect,
      action: leading(isUpgrade, to),
      condition: at(from),
    });
  }
  return { rules, leftOut };
}

/**
 * @param {boolean} isUpgrade
 * @param {string} to
 * @returns {chrome.declarativeNetRequest.RuleAction}
 */
function leading(isUpgrade, to) {
  return isUpgrade ? { type: "upgradeScheme" } : { type: "redirect", redirect: { url: to } };
}

/**
 * Whether a filter can say this URL alone: `*` stands for anything in one, `^` for all that
 * separates, and `|` is its end. @param {string} url
 */
function isExact(url) {
  return !/[*^|]/.test(url);
}

/**
 * Documents with this URL, and no others.
 * @param {string} url
 * @returns {chrome.declarativeNetRequest.RuleCondition}
 */
function at(url) {
  return {
    urlFilter: `|${url}|`,
    isUrlFilterCaseSensitive: true,
    requestMethods: ["get"],
    resourceTypes: ["main_frame"],
  };
}

/**
 * A redirect that is not to be followed at once until the browser ends, in private windows by this
 * tab alone. @param {string} from @param {number} number of such rules before it @param {number}
 * [tab] @returns {Rule}
 */
export function offRule(from, number, tab) {
  const condition = tab === undefined ? at(from) : { ...at(from), tabIds: [tab] };
  return { id: OFF_TOP - number, priority: PRIORITY.off, action: { type: "allow" }, condition };
}

/** @param {Rule} rule */
export function isOffRule(rule) {
  return rule.action.type === "allow";
}

/**
 * A Link field in the answer to this tab's navigation. With a condition on the response it is
 * looked at when the answer comes; without, it would be too late once the request has left. @param
 * {number} tab @param {string} url @param {string} value @returns {Rule}
 */
export function linkRule(tab, url, value) {
  return {
    id: tab,
    priority: PRIORITY.link,
    action: {
      type: "modifyHeaders",
      responseHeaders: [{ header: "link", operation: "append", value }],
    },
    condition: {
      urlFilter: `|${url}|`,
      isUrlFilterCaseSensitive: true,
      resourceTypes: ["main_frame"],
      tabIds: [tab],
      responseHeaders: [{ header: "content-type" }],
    },
  };
}

/**
 * The connections to open for a page.
 *
 * Chromium's preconnect knows two of its three kinds of connections: with credentials, and without.
 * Where third-party cookies are blocked, requests to other sites with credentials use the third,
 * and what was opened for them is never used. @param {string} page @param
 * {import("./file.js").Server[]} servers @param {boolean} thirdPartyBlocked @returns {{ open:
 * import("./file.js").Server[], skipped: number }}
 */
export function connections(page, servers, thirdPartyBlocked) {
  const { origin } = new URL(page);
  const own = siteOf(page);
  const others = servers.filter((server) => server.origin !== origin);
  const isUsed = (/** @type {import("./file.js").Server} */ server) =>
    server.anonymous || !thirdPartyBlocked || site(new URL(server.origin).hostname) === own;
  const open = others.filter(isUsed).slice(0, CONNECTIONS_PER_PAGE);
  return { open, skipped: others.length - open.length };
}

/** @param {import("./file.js").Server[]} servers */
export function linkField(servers) {
  return servers
    .map(
      ({ origin, anonymous }) => `<${origin}>; rel=preconnect${anonymous ? "; crossorigin" : ""}`,
    )
    .join(", ");
}
