// Lists the tools of the MCP server at URL and calls one: mcp_client.mjs URL TOOL JSON-ARGUMENTS.
// Prints {"tools": [names], "text": result}.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [url, name, args] = process.argv.slice(2);
const client = new Client({ name: "peer", version: "1.0.0" });
await client.connect(new StreamableHTTPClientTransport(new URL(url)));
const { tools } = await client.listTools();
const result = await client.callTool({ name, arguments: JSON.parse(args) });
process.stdout.write(`${JSON.stringify({ tools: tools.map((tool) => tool.name), text: result.content[0].text })}\n`);
await client.close();
