// An MCP server of version 2 of the SDK, which speaks both eras (2025-11-25 and before, 2026-07-28), with two tools: one
// gives text back, the other one asks the user for a name first. It is started through guard_listen.mjs.

import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, acceptedContent, createMcpHandler, inputRequired } from "@modelcontextprotocol/server";
import { createServer } from "node:http";
import { z } from "zod";

const Name = z.object({ name: z.string() });
const said = (text) => ({ content: [{ type: "text", text }] });

const handler = createMcpHandler(() => {
    const server = new McpServer({ name: "peer", version: "1.0.0" });
    const echo = { description: "Gives the text back.", inputSchema: z.object({ text: z.string() }) };
    server.registerTool("echo", echo, ({ text }) => said(`echo: ${text}`));
    const greet = { description: "Asks for a name, and greets it.", inputSchema: z.object({}) };
    server.registerTool("greet", greet, (_, context) => {
        const answer = acceptedContent(context.mcpReq.inputResponses, "who", Name);
        if (answer) return said(`hello ${answer.name}`);
        const who = inputRequired.elicit({ message: "Who are you?", requestedSchema: Name });
        return inputRequired({ inputRequests: { who } });
    });
    return server;
});

createServer(toNodeHandler(handler)).listen();
