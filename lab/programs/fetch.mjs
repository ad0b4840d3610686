// node:https; where an agent is named, node:http on a stream of its socket (docs/managed.md): then
// the agent speaks TLS.
import http from "node:http";
import https from "node:https";

const url = new URL(process.argv[2]);
const agent = process.env.HEADSTART_SOCKET;
// As node:http writes it.
const head = `GET ${url.pathname} HTTP/1.1\r\nHost: ${url.hostname}\r\nConnection: close\r\n\r\n`;

function fail(why) {
  console.error(String(why));
  process.exit(1);
}

function take(answer) {
  if (answer.statusCode !== 200) fail(answer.statusCode);
  answer.on("error", fail).pipe(process.stdout);
}

// The server has the head already, which node:http writes at once and in one piece.
function withoutHead(stream) {
  stream.write = (text, encoding, done) => {
    if (text !== head) fail(`not what was sent early: ${text}`);
    delete stream.write;
    if (done) process.nextTick(done);
    return true;
  };
}

function overAgent(use) {
  const to = `${url.hostname}:443`;
  const headers = {
    Host: to,
    "Headstart-TLS": "managed",
    "Headstart-ALPN": "http/1.1",
    "Headstart-Context": process.env.HEADSTART_CONTEXT,
  };
  if (process.env.HEADSTART_EARLY) {
    headers["Headstart-Early-Data"] = Buffer.from(head).toString("base64");
  }
  const request = http.request({
    socketPath: agent,
    method: "CONNECT",
    path: to,
    headers,
    agent: false,
  });
  request.on("connect", (answer, stream, behind) => {
    if (answer.statusCode !== 200) fail(answer.statusCode);
    if (behind.length > 0) stream.unshift(behind);
    if (answer.headers["headstart-early-data"] === "accepted") withoutHead(stream);
    use(stream);
  });
  request
    .on("response", (answer) => fail(answer.statusCode))
    .on("error", fail)
    .end();
}

const headers = { Host: url.hostname, Connection: "close" };
if (agent) {
  overAgent((stream) =>
    http
      .get({ path: url.pathname, headers, createConnection: () => stream }, take)
      .on("error", fail),
  );
} else {
  https.get(url, { agent: false, headers }, take).on("error", fail);
}
