// A web of many names at one address, which counts what it is asked for and over which connections.

import { execFile } from "node:child_process";
import { X509Certificate, createHash } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createSecureServer } from "node:http2";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

/**
 * @typedef {{ host: string, path: string, connection: number, opened: number, at: number }} Asked
 * `connection` by its number, how many there were then, and when, in ms @typedef {{ status?:
 * number, headers?: Record<string, string>, body?: string | Uint8Array, wait?: number |
 * Promise<unknown>, hints?: string[] }} Answer
 */

export class Web {
  /** @type {Asked[]} */
  asked = [];
  /** Names of all connections, in their order. @type {string[]} */
  connections = [];
  /** When, in ms. @type {number[]} */
  connected = [];
  /**
   * By host and path.
   * @type {Record<string, Answer | ((request: import("node:http2").Http2ServerRequest) => Answer)>}
   */
  pages = {};
  /** @type {Set<import("node:tls").TLSSocket>} */
  #sockets = new Set();

  /**
   * @param {import("node:http2").Http2SecureServer} server
   * @param {string} fingerprint
   */
  constructor(server, fingerprint) {
    this.server = server;
    this.fingerprint = fingerprint;
    /** By the client's port. @type {Map<number | undefined, number>} */
    const numbers = new Map();
    server.on("secureConnection", (socket) => {
      numbers.set(socket.remotePort, this.connections.length);
      this.connections.push(socket.servername);
      this.connected.push(performance.now());
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => this.#sockets.delete(socket));
    });
    server.on("session", (session) => session.on("error", () => {}));
    server.on("request", (request, response) => {
      const host = (request.authority ?? request.headers.host ?? "").split(":")[0] ?? "";
      const connection = numbers.get(request.socket.remotePort) ?? -1;
      this.asked.push({
        host,
        path: request.url,
        connection,
        opened: this.connections.length,
        at: performance.now(),
      });
      void this.#answer(host, request, response);
    });
  }

  /** @param {boolean} [http1] HTTP/1.1 alone */
  static async start(http1 = false) {
    const folder = await mkdtemp(join(tmpdir(), "headstart-web-"));
    const [key, cert] = await certificate(folder).finally(() => rm(folder, { recursive: true }));
    const spki = new X509Certificate(cert).publicKey.export({ type: "spki", format: "der" });
    const protocols = http1 ? ["http/1.1"] : ["h2", "http/1.1"];
    const server = createSecureServer({ key, cert, allowHTTP1: true, ALPNProtocols: protocols });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
    return new Web(server, createHash("sha256").update(spki).digest("base64"));
  }

  /** What Chromium is to be told. */
  get arguments() {
    const { port } = /** @type {import("node:net").AddressInfo} */ (this.server.address());
    return [
      `--host-resolver-rules=MAP *.test:443 127.0.0.1:${port}, MAP * ~NOTFOUND`,
      `--ignore-certificate-errors-spki-list=${this.fingerprint}`,
    ];
  }

  /** Ends all connections, and forgets what was asked for. */
  async forget() {
    const closed = Array.from(
      this.#sockets,
      (socket) => new Promise((resolve) => socket.once("close", resolve)),
    );
    for (const socket of this.#sockets) socket.destroy();
    await Promise.all(closed);
    this.asked = [];
    this.connections = [];
    this.connected = [];
  }

  async end() {
    await this.forget();
    this.server.close();
  }

  /**
   * @param {string} host
   * @param {import("node:http2").Http2ServerRequest} request
   * @param {import("node:http2").Http2ServerResponse} response
   */
  async #answer(host, request, response) {
    const found = this.pages[host + request.url];
    const answer = typeof found === "function" ? found(request) : found;
    const { status = answer ? 200 : 404, headers = {}, body = "", wait = 0, hints } = answer ?? {};
    if (hints) response.writeEarlyHints({ link: hints });
    await (typeof wait === "number" ? new Promise((resolve) => setTimeout(resolve, wait)) : wait);
    response.writeHead(status, {
      "content-type": "text/html; charset=utf-8",
      "cache-control": "no-store",
      ...headers,
    });
    response.end(body);
  }
}

/** @param {string} folder @returns {Promise<[Buffer, Buffer]>} */
async function certificate(folder) {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  await promisify(execFile)("openssl", [
    "req",
    "-x509",
    "-newkey",
    "ec",
    "-pkeyopt",
    "ec_paramgen_curve:prime256v1",
    "-nodes",
    "-days",
    "2",
    "-subj",
    "/CN=test",
    "-addext",
    "subjectAltName=DNS:*.test",
    "-keyout",
    key,
    "-out",
    cert,
  ]);
  return [await readFile(key), await readFile(cert)];
}
