// Files as `headstart pageload db export --format extension --sign` writes them, and such as it
// does not write.

import { createHash, generateKeyPairSync, sign } from "node:crypto";
import { gzipSync } from "node:zlib";

/** @typedef {ReturnType<typeof maker>} Maker */

/** Somebody who signs. */
export function maker() {
  const { privateKey, publicKey } = generateKeyPairSync("ed25519");
  const raw = publicKey.export({ type: "spki", format: "der" }).subarray(-32);
  return { privateKey, raw, pem: publicKey.export({ type: "spki", format: "pem" }).toString() };
}

/**
 * @param {Maker} by @param {{ created?: number, redirects?: [string, string][], pages?:
 * Record<string, (string | [string])[]>, version?: number, unsigned?: boolean, json?: (json: any)
 * => unknown, body?: Buffer, bodyBytes?: number, }} [of] servers are origins; in brackets those
 * without credentials @returns {Uint8Array<ArrayBuffer>}
 */
export function sealed(by, of = {}) {
  const { created = Math.floor(Date.now() / 1000), redirects = [], pages = {}, version = 1 } = of;
  const server = (/** @type {string | [string]} */ server) => ({
    origin: String(server),
    anonymous: Array.isArray(server),
    connections: 1,
  });
  const json = {
    version: 2,
    created,
    databases: ["redirect", "server"],
    redirects: redirects.map(([from, to]) => ({ from, to })),
    redirects_left_out: 0,
    pages: Object.fromEntries(
      Object.entries(pages).map(([page, servers]) => [page, servers.map(server)]),
    ),
  };
  const text = Buffer.from(JSON.stringify(of.json ? of.json(json) : json));
  const body = of.body ?? gzipSync(text);
  const header = Buffer.alloc(132);
  header.write("\x89HSDE\r\n\x1a", "latin1");
  header.set([version, 3], 8);
  header.writeBigUInt64BE(BigInt(created), 12);
  header.writeUInt32BE(of.bodyBytes ?? text.length, 20);
  header.writeUInt32BE(body.length, 24);
  header.set(createHash("sha256").update(header.subarray(0, 28)).update(body).digest(), 28);
  if (!of.unsigned) {
    header.set(createHash("sha256").update(by.raw).digest().subarray(0, 8), 60);
    const signed = Buffer.concat([
      Buffer.from("headstart extension database\0"),
      header.subarray(0, 60),
    ]);
    header.set(sign(null, signed, by.privateKey), 68);
  }
  return new Uint8Array(Buffer.concat([header, body]));
}
