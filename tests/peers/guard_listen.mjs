// Preloaded into a Node HTTP server that has no such settings: binds every listener to a free loopback port, and checks
// the Authorization field where REQUIRED_AUTHORIZATION is set. Prints one JSON object a line: {"port": n} once it
// listens, then one for each request with what it carried. What the server prints itself goes to standard error.

import http from "node:http";
import net from "node:net";

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
console.log = console.error;

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...args) {
    const ready = args.find((arg) => typeof arg === "function");
    return listen.call(this, 0, "127.0.0.1", () => {
        say({ port: this.address().port });
        ready?.();
    });
};

const required = process.env.REQUIRED_AUTHORIZATION;
const emit = http.Server.prototype.emit;
http.Server.prototype.emit = function (event, request, response) {
    if (event !== "request") return emit.apply(this, arguments);
    const authorization = request.headersDistinct.authorization ?? [];
    say({ method: request.method, path: request.url, authorization });
    if (!required || (authorization.length === 1 && authorization[0] === required)) return emit.apply(this, arguments);
    response.writeHead(401, { "content-type": "text/plain", "www-authenticate": "Bearer" }).end("who are you?\n");
    return true;
};
