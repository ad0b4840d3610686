import assert from "node:assert/strict";
import { test } from "node:test";
import { saved } from "../../src/estimate.js";
import { connections, linkField, linkRule, offRule, redirectRules } from "../../src/rules.js";
import { site } from "../../src/site.js";

const MOST = { all: 10, unsafe: 2 };
const never = () => false;

test("a redirect is a rule for documents with this URL", () => {
  const { rules } = redirectRules(
    [{ from: "https://a.test/x?y", to: "https://b.test/" }],
    MOST,
    never,
  );
  assert.deepEqual(rules, [
    {
      id: 1,
      priority: 1,
      action: { type: "redirect", redirect: { url: "https://b.test/" } },
      condition: {
        urlFilter: "|https://a.test/x?y|",
        isUrlFilterCaseSensitive: true,
        requestMethods: ["get"],
        resourceTypes: ["main_frame"],
      },
    },
  ]);
});

test("rules keep to what Chromium takes", () => {
  const other = [1, 2, 3, 4].map((n) => ({ from: `https://a.test/${n}`, to: "https://b.test/" }));
  const upgrade = [1, 2, 3].map((n) => ({ from: `http://a.test/${n}`, to: `https://a.test/${n}` }));
  const all = redirectRules([...other, ...upgrade], MOST, never);
  assert.deepEqual(
    all.rules.map(({ action }) => action.type),
    ["redirect", "redirect", ...Array(3).fill("upgradeScheme")],
  );
  assert.equal(all.leftOut, 2);
  assert.equal(redirectRules(upgrade, { all: 2, unsafe: 2 }, never).leftOut, 1);
  // A port says that it is another server.
  const ported = redirectRules(
    [{ from: "http://a.test:80/", to: "https://a.test:80/" }],
    MOST,
    never,
  );
  assert.equal(ported.rules[0]?.action.type, "upgradeScheme");
  const server = redirectRules(
    [{ from: "http://a.test:8080/", to: "https://a.test:8080/" }],
    MOST,
    never,
  );
  assert.equal(server.rules[0]?.action.type, "redirect");
});

test("a redirect leads nothing away but what it names", () => {
  const from = ["https://a.test/*", "https://*/", "https://a.test/?q=^", "https://a.test/?a|b"];
  const { rules, leftOut } = redirectRules(
    from.map((from) => ({ from, to: "https://b.test/" })),
    { all: 10, unsafe: 10 },
    never,
  );
  assert.deepEqual([rules, leftOut], [[], 4]);
});

test("sites that are turned off have no rules, at either end", () => {
  const redirects = [
    { from: "https://www.a.test/", to: "https://b.test/" },
    { from: "https://c.test/", to: "https://x.a.test/" },
    { from: "https://c.test/y", to: "https://b.test/" },
  ];
  const { rules, leftOut } = redirectRules(redirects, MOST, (site) => site === "a.test");
  assert.deepEqual(
    [rules.length, rules[0]?.condition.urlFilter, leftOut],
    [1, "|https://c.test/y|", 0],
  );
});

test("what is turned off for a while goes before", () => {
  const everywhere = offRule("https://a.test/", 0);
  const [rule] = redirectRules(
    [{ from: "https://a.test/", to: "https://b.test/" }],
    MOST,
    never,
  ).rules;
  assert.ok((everywhere.priority ?? 0) > (rule?.priority ?? 0));
  assert.equal(everywhere.condition.tabIds, undefined);
  const here = offRule("https://a.test/", 1, 7);
  assert.deepEqual(here.condition.tabIds, [7]);
  assert.notEqual(here.id, everywhere.id);
});

test("connections that the page's requests can use", () => {
  /** @param {string} origin @param {boolean} anonymous */
  const server = (origin, anonymous = false) => ({ origin, anonymous, connections: 1 });
  const servers = [
    server("https://www.a.test"),
    server("https://static.a.test"),
    server("https://b.test"),
    server("https://fonts.test", true),
  ];
  const page = "https://www.a.test/";
  const blocked = connections(page, servers, true);
  assert.deepEqual(
    blocked.open.map(({ origin }) => origin),
    ["https://static.a.test", "https://fonts.test"],
  );
  assert.equal(blocked.skipped, 1);
  const allowed = connections(page, servers, false);
  assert.deepEqual([allowed.open.length, allowed.skipped], [3, 0]);
  const field =
    "<https://static.a.test>; rel=preconnect, <https://fonts.test>; rel=preconnect; crossorigin";
  assert.equal(linkField(blocked.open), field);
  const rule = linkRule(7, page, field);
  assert.deepEqual([rule.condition.tabIds, rule.condition.responseHeaders?.length], [[7], 1]);
  const many = Array.from({ length: 100 }, (_, n) => server(`https://${n}.test`));
  assert.deepEqual(
    [connections(page, many, false).open.length, connections(page, many, false).skipped],
    [32, 68],
  );
});

test("hosts of one site", () => {
  const sites = {
    "www.a.test": "a.test",
    "a.test": "a.test",
    "x.y.a.co.uk": "a.co.uk",
    "127.0.0.1": "127.0.0.1",
    "a.de": "a.de",
  };
  for (const [host, expected] of Object.entries(sites)) assert.equal(site(host), expected);
});

test("savings are estimated from the page's own connection", () => {
  const visit = {
    redirects: [
      { from: "http://a.test/", state: "used" },
      { from: "https://a.test/", state: "used" },
      { from: "https://b.test/", state: "outdated" },
    ],
    opened: [
      { origin: "https://early.test" },
      { origin: "https://late.test" },
      { origin: "https://never.test" },
    ],
  };
  const first = { "https://early.test": 210, "https://late.test": 500 };
  const spared = saved(visit, { connect: 100, responseStart: 200, first });
  assert.deepEqual(spared, {
    handshake: 100,
    redirects: 250,
    used: { "https://early.test": 10, "https://late.test": 100 },
  });
  // Over a connection that was there already there is nothing to go by.
  const unknown = saved(visit, { connect: 0, responseStart: 200, first });
  assert.deepEqual(unknown, {
    handshake: undefined,
    redirects: undefined,
    used: { "https://early.test": undefined, "https://late.test": undefined },
  });
});
