// Opens a tunnel to HOST:PORT through the proxy at http_proxy, speaks HTTP/2 over TLS in it, GETs each PATH at once on
// one session, and prints [{"path", "status", "reason", "text"}].

import http from "node:http";
import http2 from "node:http2";
import tls from "node:tls";

const [authority, ...paths] = process.argv.slice(2);
const proxy = new URL(process.env.http_proxy);
const servername = authority.slice(0, authority.lastIndexOf(":"));

const socket = await new Promise((resolve, reject) => {
  const connect = http.request({ host: proxy.hostname, port: proxy.port, method: "CONNECT", path: authority });
  connect.on("connect", (_, socket) => resolve(socket)).on("error", reject).end();
});
const secure = tls.connect({ socket, servername, ALPNProtocols: ["h2"] });
const session = http2.connect(`https://${authority}`, { createConnection: () => secure });

const get = (path) =>
  new Promise((resolve, reject) => {
    const stream = session.request({ ":path": path });
    const answer = { path, text: "" };
    stream.on("response", (fields) => {
      answer.status = fields[":status"];
      answer.reason = fields["exeat-reason"] ?? null;
    });
    stream.setEncoding("utf8").on("data", (text) => (answer.text += text));
    stream.on("end", () => resolve(answer)).on("error", reject).end();
  });
process.stdout.write(`${JSON.stringify(await Promise.all(paths.map(get)))}\n`);
session.close();
