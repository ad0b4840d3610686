// node:https; where an agent is named, node:http on a stream of its socket (docs/managed.md): then
// the agent speaks TLS.
import http from "node:http";
import https from "node:https";

const url = new URL(process.argv[2]);
const agent = process.env.HEADSTART_SOCKET;

function fail(why) {
  console.error(String(why));
  process.exit(1);
}

function take(answer) {
  if (answer.statusCode !== 200) fail(answer.statusCode);
  answer.on("error", fail).pipe(process.stdout);
}

function overAgent(use) {
  const to = `${url.hostname}:443`;
  const headers = {
    Host: to,
    "Headstart-TLS": "managed",
    "Headstart-ALPN": "http/1.1",
    "Headstart-Context": process.env.HEADSTART_CONTEXT,
  };
  const request = http.request({
    socketPath: agent,
    method: "CONNECT",
    path: to,
    headers,
    agent: false,
  });
  request.on("connect", (answer, stream) =>
    answer.statusCode === 200 ? use(stream) : fail(answer.statusCode),
  );
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
