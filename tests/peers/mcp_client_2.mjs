// Lists the tools of the MCP server at URL and calls one, with version 2 of the SDK:
// mcp_client_2.mjs [--auto] [--ask] URL TOOL JSON-ARGUMENTS. Opens a session, or with --auto asks the server first
// whether it can do without. With --ask there is a user, who accepts whatever they are asked.
// Prints {"tools": [names], "asked": questions, "text": result}.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";

const has = (flag) => process.argv.includes(flag);
const [url, name, args] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const capabilities = has("--ask") ? { elicitation: { form: {}, url: {} } } : {};
const versionNegotiation = { mode: has("--auto") ? "auto" : "legacy" };
const client = new Client({ name: "peer", version: "1.0.0" }, { capabilities, versionNegotiation });
const asked = [];
if (has("--ask")) {
    client.setRequestHandler("elicitation/create", ({ params }) => {
        asked.push(params.message);
        return { action: "accept", content: { name: "Ann", answer: "yes" } };
    });
}
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const result = await client.callTool({ name, arguments: JSON.parse(args) });
const text = result.content.map((part) => part.text).join(" ");
process.stdout.write(`${JSON.stringify({ tools: tools.map((tool) => tool.name), asked, text })}\n`);
await client.close();
