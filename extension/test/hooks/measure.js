// Which of the ways to open connections for a page opens some that its requests use: `node
// test/hooks/measure.js [WAY...]`.
//
// The page's answer takes 400 ms; 500 ms later it asks one server with credentials and one without.
// For both, ms are counted from when the page was asked for. Partitions are as the browser's own
// log has them (docs/extension.md quotes the tables).

import { readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Chromium, until } from "../support/chromium.js";
import { COOKIES_ALLOWED } from "../support/stage.js";
import { Web } from "../support/web.js";

const PROBE = fileURLToPath(new URL("probe", import.meta.url));
const [PAGE, FAR, ANONYMOUS] = ["www.site.test", "far.other.test", "anonymous.other.test"];
const ICON = '<link rel="icon" href="data:,">';
const TINY =
  `<link rel="preconnect" href="https://${FAR}">` +
  `<link rel="preconnect" href="https://${ANONYMOUS}" crossorigin>`;
const ASKS = `<!doctype html>${ICON}<script>
  setTimeout(() => {
    new Image().src = "https://${FAR}/";
    fetch("https://${ANONYMOUS}/", { credentials: "omit" });
  }, 500);
</script>`;

const WAYS = [
  "nothing",
  "worker",
  "offscreen",
  "offscreen-frame",
  "document-of-another-site",
  "document-of-the-same-site",
  "document-start",
  "field-by-request",
  "field-by-response",
  "early-hints",
];

/** Where the tab is before. @type {Record<string, string>} */
const LEFT = {
  "document-of-another-site": "https://www.third.test/",
  "document-of-the-same-site": `https://${PAGE}/first`,
};

/** @param {string} way */
function serve(way) {
  const hints = [
    `<https://${FAR}>; rel=preconnect`,
    `<https://${ANONYMOUS}>; rel=preconnect; crossorigin`,
  ];
  return {
    [`${PAGE}/`]: { body: ASKS, wait: 400, ...(way === "early-hints" ? { hints } : {}) },
    [`${PAGE}/first`]: { body: ICON },
    [`${PAGE}/tiny`]: { body: TINY },
    "www.third.test/": { body: ICON },
    [`${FAR}/`]: {},
    [`${ANONYMOUS}/`]: { headers: { "access-control-allow-origin": "*" } },
  };
}

/**
 * @param {Web} web
 * @param {string} way
 * @param {boolean} cookies of third parties
 */
async function measured(web, way, cookies) {
  web.pages = serve(way);
  const log = join(tmpdir(), `headstart-net-log-${process.pid}.json`);
  const browser = await Chromium.start(
    [...web.arguments, `--log-net-log=${log}`],
    cookies ? COOKIES_ALLOWED : {},
  );
  try {
    const worker = await browser.worker(await browser.loadExtension(PROBE));
    await until(() =>
      worker.evaluate(`typeof prepare === "function" && prepare("${way}").then(() => true)`),
    );
    const tab = await browser.tab();
    if (LEFT[way]) await tab.go(LEFT[way] ?? "");
    await web.forget();
    await tab.go(`https://${PAGE}/`);
    // What a worker asks for comes at once, what the page asks for later.
    await until(() =>
      [FAR, ANONYMOUS].every((host) => (last(web, host)?.at ?? 0) > begun(web) + 700),
    );
  } finally {
    await browser.end();
  }
  const partitions = await logged(log);
  await rm(log, { force: true });
  return [FAR, ANONYMOUS].map((host) => ({ ...told(web, host), partitions: partitions(host) }));
}

/** When the page was asked for. @param {Web} web */
const begun = (web) =>
  web.asked.find(({ host, path }) => host === PAGE && path === "/")?.at ?? Infinity;

/** @param {Web} web @param {string} host */
const last = (web, host) => web.asked.findLast((of) => of.host === host);

/**
 * @param {Web} web
 * @param {string} host
 */
function told(web, host) {
  const opened = web.connections.flatMap((name, number) => (name === host ? [number] : []));
  const used = last(web, host);
  return {
    opened: opened.map((number) => Math.round((web.connected[number] ?? 0) - begun(web))),
    used: Math.round((web.connected[used?.connection ?? -1] ?? 0) - begun(web)),
    asked: Math.round((used?.at ?? 0) - begun(web)),
  };
}

/**
 * Groups of connections by host, in the order in which they were asked for.
 * @param {string} log
 */
async function logged(log) {
  const groups = (await readFile(log, "utf8")).match(/"group_id":"[^"]*"/g) ?? [];
  return (/** @type {string} */ host) =>
    Array.from(new Set(groups.filter((group) => group.includes(`${host} `))))
      .map((group) =>
        JSON.parse(group.slice(11))
          .replace(`https://${host} `, "")
          .replace(/chrome-extension:\/\/\w+/, "the extension"),
      )
      .join(", ");
}

for (const cookies of [true, false]) {
  console.log(`\nthird-party cookies ${cookies ? "allowed" : "blocked"}\n`);
  console.log(
    "| way | server | opened, ms | used the one of | asked | groups of connections |\n" +
      "|---|---|---|---|---|---|",
  );
  for (const way of process.argv.length > 2 ? process.argv.slice(2) : WAYS) {
    const web = await Web.start();
    const [far, anonymous] = await measured(web, way, cookies).finally(() => web.end());
    for (const [name, of] of Object.entries({ "with credentials": far, without: anonymous })) {
      console.log(
        `| ${way} | ${name} | ${of?.opened.join(", ")} | ${of?.used} | ${of?.asked} ` +
          `| ${of?.partitions} |`,
      );
    }
  }
}
