// Speaks HTTP/2 to a proxy over TLS: requests for other hosts on its session, and a CONNECT stream with a session inside.
//
//     http2_proxy.mjs PROXY-HOST:PORT PROXY-NAME PROXY-CA INSIDE-CA PLAIN-AUTHORITY SECURE-AUTHORITY

import { readFileSync } from "node:fs";
import http2 from "node:http2";
import tls from "node:tls";

const [proxy, name, proxyCa, insideCa, plain, secure] = process.argv.slice(2);
const session = http2.connect(`https://${proxy}`, { ca: readFileSync(proxyCa), servername: name });

const ask = (session, fields) =>
  new Promise((resolve, reject) => {
    const stream = session.request(fields);
    let text = "";
    let head;
    stream.on("response", (fields) => (head = fields));
    stream.setEncoding("utf8").on("data", (more) => (text += more));
    stream.on("end", () => resolve([head[":status"], head["exeat-reason"] ?? text])).on("error", reject).end();
  });
const forward = (path) => ({ ":scheme": "http", ":authority": plain, ":path": path });

const answers = {
  forward: await ask(session, forward("/v1/a")),
  denied: await ask(session, forward("/v2/a")),
  refusedTunnel: await ask(session, { ":method": "CONNECT", ":authority": "denied.test:443" }),
};
const tunnel = session.request({ ":method": "CONNECT", ":authority": secure }, { endStream: false });
answers.tunnel = await new Promise((resolve, reject) => {
  tunnel.on("response", (fields) => resolve(fields[":status"])).on("error", reject);
});
const servername = secure.slice(0, secure.lastIndexOf(":"));
const socket = tls.connect({ socket: tunnel, servername, ca: readFileSync(insideCa), ALPNProtocols: ["h2"] });
const inside = http2.connect(`https://${secure}`, { createConnection: () => socket });
answers.inside = await ask(inside, { ":path": "/v1/b" });
answers.insideDenied = await ask(inside, { ":path": "/v2/b" });
process.stdout.write(`${JSON.stringify(answers)}\n`);
process.exit(0);
