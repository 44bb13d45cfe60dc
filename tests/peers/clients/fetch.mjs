// Asks each URL with the library LIBRARY: fetch.mjs LIBRARY URL...
//
// Prints a line for each: the status, or the kind of error. A URL of wss:// opens a WebSocket and prints 101.

import axios from "axios";
import https from "node:https";
import { EnvHttpProxyAgent, request } from "undici";
import WebSocket from "ws";

const clients = {
  fetch: async (url) => (await fetch(url)).status,
  https: (url) =>
    new Promise((resolve, reject) => {
      https.get(url, { agent: false }, (response) => resolve(response.resume().statusCode)).on("error", reject);
    }),
  undici: async (url) => {
    const { statusCode, body } = await request(url, { dispatcher: new EnvHttpProxyAgent() });
    await body.dump();
    return statusCode;
  },
  axios: async (url) => (await axios.get(url, { validateStatus: () => true })).status,
  ws: (url) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(url);
      socket.on("open", () => resolve(socket.close() ?? 101));
      socket.on("unexpected-response", (_, response) => resolve(response.resume().statusCode));
      socket.on("error", reject);
    }),
};

const [library, ...urls] = process.argv.slice(2);
for (const url of urls) {
  const answer = await clients[library](url).catch((error) => `${error.name}: ${error.cause?.message ?? error.message}`);
  console.log(String(answer).replaceAll("\n", " "));
}
process.exit(0);
