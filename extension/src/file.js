// The file that `headstart pageload db export --format extension --sign` writes: header, signature,
// JSON in gzip (docs/databases.md). Everything is checked before anything of it is used.

import { BODY_BYTES, ENTRIES, FILE_BYTES, SERVERS_PER_PAGE, URL_LENGTH } from "./limits.js";

/**
 * @typedef {{ from: string, to: string }} Redirect
 * @typedef {{ origin: string, anonymous: boolean, connections: number }} Server
 * @typedef {{
 *   created: number,
 *   key: string,
 *   redirects: Redirect[],
 *   leftOut: number,
 *   pages: Map<string, Server[]>,
 * }} Database `created` in seconds since 1970; `key` is the name of the key that signed it
 */

const MAGIC = [0x89, 0x48, 0x53, 0x44, 0x45, 0x0d, 0x0a, 0x1a];
const DATABASE_MAGIC = 0x42;
const VERSION = 1;
const JSON_VERSION = 2;
const HEADER_BYTES = 132;
/** What the checksum covers of the header, besides what follows it. */
const CHECKED = 28;
/** What the signature covers of the header. */
const SIGNED = 60;
const CONTEXT = new TextEncoder().encode("headstart extension database\0");
/** Of an Ed25519 key as SubjectPublicKeyInfo, before its 32 bytes (RFC 8410 section 4). */
const SPKI = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/** Why a file is not taken. */
export class Refused extends Error {}

/**
 * Reads a file that `key` has signed.
 * @param {Uint8Array<ArrayBuffer>} file
 * @param {string} key as `headstart pageload db keygen` writes it: PEM, or its base64 alone
 * @returns {Promise<Database>}
 */
export async function read(file, key) {
  const { created, bodyBytes, compressed, checksum, keyId, signature } = header(file);
  const bytes = publicKey(key);
  const id = hex((await sha256(bytes)).subarray(0, 8));
  if (keyId === "0".repeat(16)) throw new Refused("it is not signed");
  if (keyId !== id) throw new Refused(`it is signed with the unknown key ${keyId}`);
  if (!(await isSigned(file, bytes, signature))) throw new Refused("its signature is wrong");
  const actual = await sha256(file.subarray(0, CHECKED), compressed);
  if (hex(actual) !== hex(checksum)) throw new Refused("its checksum is wrong");
  return database(await decompressed(compressed, bodyBytes), created, id);
}

/**
 * What the header says, before anything of it is believed.
 * @param {Uint8Array<ArrayBuffer>} file
 */
function header(file) {
  if (file.length > FILE_BYTES) throw new Refused(`more than ${FILE_BYTES} bytes`);
  const isKind = (/** @type {number} */ kind) =>
    MAGIC.every((byte, at) => file[at] === (at === 4 ? kind : byte));
  if (isKind(DATABASE_MAGIC)) {
    throw new Refused("a page database as it is; export it with --format extension --sign");
  }
  if (!isKind(/** @type {number} */ (MAGIC[4])))
    throw new Refused("not a page database for the extension");
  if (file.length < HEADER_BYTES) throw new Refused("it ends too soon");
  if (file[8] !== VERSION) throw new Refused(`version ${file[8]}, not ${VERSION}`);
  const view = new DataView(file.buffer, file.byteOffset, HEADER_BYTES);
  if ((file[9] ?? 0) > 15 || view.getUint16(10) !== 0) {
    throw new Refused(`something in its header that version ${VERSION} does not have`);
  }
  const [bodyBytes, length] = [view.getUint32(20), view.getUint32(24)];
  if (bodyBytes > BODY_BYTES) throw new Refused(`more than ${BODY_BYTES} bytes uncompressed`);
  const compressed = file.subarray(HEADER_BYTES);
  if (compressed.length < length) throw new Refused("it ends too soon");
  if (compressed.length > length) throw new Refused("there is something behind its end");
  return {
    created: Number(view.getBigUint64(12)),
    bodyBytes,
    compressed,
    checksum: file.subarray(CHECKED, SIGNED),
    keyId: hex(file.subarray(SIGNED, SIGNED + 8)),
    signature: file.subarray(SIGNED + 8, HEADER_BYTES),
  };
}

/**
 * The 32 bytes of a key.
 * @param {string} text
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function publicKey(text) {
  const base64 = text.replace(/-----(BEGIN|END) PUBLIC KEY-----/g, "").replace(/\s/g, "");
  let bytes;
  try {
    bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  } catch {
    throw new Refused("no public key: it is not base64");
  }
  const isSpki = bytes.length === SPKI.length + 32 && SPKI.every((byte, at) => bytes[at] === byte);
  if (isSpki) return bytes.subarray(SPKI.length);
  if (bytes.length === 32) return bytes;
  throw new Refused("no public key for Ed25519");
}

/**
 * @param {Uint8Array<ArrayBuffer>} file
 * @param {Uint8Array<ArrayBuffer>} key
 * @param {Uint8Array<ArrayBuffer>} signature
 */
async function isSigned(file, key, signature) {
  const algorithm = { name: "Ed25519" };
  try {
    const imported = await crypto.subtle.importKey("raw", key, algorithm, false, ["verify"]);
    return await crypto.subtle.verify(
      algorithm,
      imported,
      signature,
      joined(CONTEXT, file.subarray(0, SIGNED)),
    );
  } catch {
    throw new Refused("no public key for Ed25519");
  }
}

/**
 * Memory grows with what comes out, not with what the header says.
 * @param {Uint8Array<ArrayBuffer>} compressed
 * @param {number} length
 */
async function decompressed(compressed, length) {
  const parts = [];
  let bytes = 0;
  try {
    const stream = new Blob([compressed]).stream().pipeThrough(new DecompressionStream("gzip"));
    for (const reader = stream.getReader(); ;) {
      const { done, value } = await reader.read();
      if (done) break;
      bytes += value.length;
      if (bytes > length) throw new Error();
      parts.push(value);
    }
  } catch {
    bytes = -1;
  }
  if (bytes !== length) throw new Refused("it cannot be decompressed to what it says");
  return new Blob(parts).text();
}

/**
 * @param {string} text
 * @param {number} created
 * @param {string} key
 * @returns {Database}
 */
function database(text, created, key) {
  const json = parsed(text);
  if (json?.version !== JSON_VERSION)
    throw new Refused(`version ${json?.version} of the content, not ${JSON_VERSION}`);
  if (json.created !== created)
    throw new Refused("its header and its content have different dates");
  const redirects = list(json.redirects, ENTRIES, "redirects").map(redirect);
  const pages = Object.entries(json.pages ?? {});
  if (pages.length > ENTRIES) throw new Refused(`more than ${ENTRIES} pages`);
  const entries = pages.map(
    ([page, of]) =>
      /** @type {const} */ ([url(page), list(of, SERVERS_PER_PAGE, "servers").map(server)]),
  );
  const leftOut = Number.isSafeInteger(json.redirects_left_out) ? json.redirects_left_out : 0;
  return { created, key, redirects, leftOut, pages: new Map(entries) };
}

/** @param {string} text */
function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Refused("its content is no JSON");
  }
}

/**
 * @param {unknown} value
 * @param {number} most
 * @param {string} what
 * @returns {any[]}
 */
function list(value, most, what) {
  if (!Array.isArray(value)) throw new Refused(`no list of ${what}`);
  if (value.length > most) throw new Refused(`more than ${most} ${what}`);
  return value;
}

/**
 * @param {any} value
 * @returns {Redirect}
 */
function redirect(value) {
  const [from, to] = [url(value?.from), url(value?.to)];
  if (from === to) throw new Refused(`a redirect to itself: ${from}`);
  // Whoever signed it: nobody is led away from https.
  if (from.startsWith("https:") && !to.startsWith("https:"))
    throw new Refused(`a redirect from https to http: ${from}`);
  return { from, to };
}

/**
 * @param {any} value
 * @returns {Server}
 */
function server(value) {
  const { origin, anonymous, connections } = value ?? {};
  if (new URL(url(`${origin}/`)).origin !== origin) throw new Refused(`no origin: ${origin}`);
  return { origin, anonymous: anonymous === true, connections: Number(connections) || 1 };
}

/**
 * A URL as browsers write it, so that it can be compared, and stand in a rule or a field of a
 * response. @param {unknown} value
 */
function url(value) {
  if (typeof value !== "string" || value.length > URL_LENGTH)
    throw new Refused("a URL that is none, or too long");
  const parsed = URL.canParse(value) ? new URL(value) : undefined;
  const isGood =
    parsed?.href === value &&
    /^https?:$/.test(parsed.protocol) &&
    !parsed.username &&
    !parsed.password &&
    !parsed.hash;
  if (!isGood) throw new Refused(`no URL that a database has: ${value.slice(0, 100)}`);
  return value;
}

/** @param {Uint8Array<ArrayBuffer>[]} parts */
async function sha256(...parts) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", joined(...parts)));
}

/** @param {Uint8Array[]} parts */
function joined(...parts) {
  const all = new Uint8Array(parts.reduce((bytes, part) => bytes + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

/** @param {Uint8Array} bytes */
function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
