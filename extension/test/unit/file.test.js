import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { publicKey, read } from "../../src/file.js";
import { maker, sealed } from "../support/sealed.js";

const by = maker();
const PAGE = "https://www.example.com/";

/** @param {Parameters<typeof sealed>[1]} of @param {RegExp} why */
const refused = (of, why) => assert.rejects(read(sealed(by, of), by.pem), why);

/** @param {(file: Uint8Array) => void} change @param {RegExp} why */
const refusedWith = (change, why) => {
  const file = sealed(by, { pages: { [PAGE]: ["https://static.example.com"] } });
  change(file);
  return assert.rejects(read(file, by.pem), why);
};

/** What docs/vectors/extension_database.txt has of a name. @param {string} name */
function vector(name) {
  const path = new URL("../../../docs/vectors/extension_database.txt", import.meta.url);
  const text = readFileSync(path, "utf8").replaceAll("\n    ", " ");
  const line = text.split("\n").find((line) => line.startsWith(`${name} = `)) ?? "";
  return Uint8Array.from(line.slice(name.length + 3).split(" "), (byte) => parseInt(byte, 16));
}

test("a file that headstart wrote is read", async () => {
  const key = Buffer.from(vector("public")).toString("base64");
  const database = await read(vector("file"), key);
  assert.equal(database.created, 1790000000);
  assert.deepEqual(database.redirects, [{ from: "http://example.com/", to: PAGE }]);
  const origins = database.pages.get(PAGE)?.map(({ origin, anonymous }) => [origin, anonymous]);
  assert.deepEqual(origins, [
    ["https://static.example.com", false],
    ["https://www.example.com", false],
    ["https://fonts.example.net", true],
  ]);
});

test("every change of a file is noticed", async () => {
  const good = sealed(by, { redirects: [["https://a.test/", "https://b.test/"]] });
  await read(good, by.pem);
  for (let at = 0; at < good.length; at += 1) {
    const changed = good.slice();
    changed[at] = (changed[at] ?? 0) ^ 1;
    await assert.rejects(read(changed, by.pem), () => true, `byte ${at}`);
    if (at % 16 === 0)
      await assert.rejects(read(good.slice(0, at), by.pem), () => true, `${at} bytes`);
  }
});

test("reasons are told apart", async () => {
  await refused({ version: 2 }, /version 2, not 1/);
  await refused({ unsigned: true }, /not signed/);
  await refused({ json: (json) => ({ ...json, version: 1 }) }, /version 1 of the content/);
  await refused({ json: (json) => ({ ...json, created: 1 }) }, /different dates/);
  await refused({ body: Buffer.from("no gzip") }, /decompressed/);
  await refused({ body: gzipSync("{"), bodyBytes: 1 }, /no JSON/);
  await refused({ body: gzipSync(Buffer.alloc(1 << 20)), bodyBytes: 10 }, /decompressed/);
  await refused({ bodyBytes: 2 ** 31 }, /bytes uncompressed/);
  await refusedWith((file) => (file[140] = (file[140] ?? 0) ^ 1), /checksum/);
  await refusedWith((file) => (file[100] = (file[100] ?? 0) ^ 1), /signature/);
  await refusedWith((file) => (file[4] = 0x42), /export it/);
  await refusedWith((file) => (file[0] = 0), /not a page database/);
  const file = sealed(by);
  await assert.rejects(read(new Uint8Array([...file, 0]), by.pem), /behind its end/);
  await assert.rejects(read(file.slice(0, -1), by.pem), /too soon/);
  await assert.rejects(read(file, maker().pem), /unknown key/);
});

test("what is signed, and still does not belong into a database", async () => {
  /** @param {string} from @param {string} to */
  const leads = (from, to) => refused({ redirects: [[from, to]] }, /redirect|URL/);
  await leads("https://a.test/", "http://b.test/");
  await leads("https://a.test/", "https://a.test/");
  await leads("https://a.test/", "javascript:alert(1)");
  await leads("file:///etc/passwd", "https://a.test/");
  await leads("https://user@a.test/", "https://b.test/");
  await leads("https://a.test/#x", "https://b.test/");
  await leads("https://A.test/", "https://b.test/");
  await leads(`https://a.test/${"x".repeat(3000)}`, "https://b.test/");
  await refused({ pages: { [PAGE]: ["https://a.test>; rel=preload"] } }, /URL/);
  await refused({ pages: { [PAGE]: ["https://a.test/path"] } }, /origin/);
  await refused({ pages: { [PAGE]: Array(300).fill("https://a.test") } }, /more than 256 servers/);
  await refused({ json: (json) => ({ ...json, redirects: {} }) }, /no list of redirects/);
});

test("keys as they are written", () => {
  assert.deepEqual(publicKey(by.pem), new Uint8Array(by.raw));
  assert.deepEqual(publicKey(` ${by.raw.toString("base64")}\n`), new Uint8Array(by.raw));
  assert.throws(() => publicKey("!"), /base64/);
  assert.throws(() => publicKey("AAAA"), /Ed25519/);
});
