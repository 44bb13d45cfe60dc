// Lists the tools of the MCP server at URL and calls one: mcp_client.mjs [--ask] URL TOOL JSON-ARGUMENTS.
// With --ask there is a user, who accepts whatever they are asked.
// Prints {"tools": [names], "asked": questions, "text": result}.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const ask = process.argv.includes("--ask");
const [url, name, args] = process.argv.slice(2).filter((argument) => !argument.startsWith("--"));
const capabilities = ask ? { elicitation: { form: {}, url: {} } } : {};
const client = new Client({ name: "peer", version: "1.0.0" }, { capabilities });
const asked = [];
if (ask) {
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
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
