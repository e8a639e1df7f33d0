// The official client of the Agent Client Protocol for JavaScript: arguments, commands and events are those of acp/src/main.rs.
import { createInterface } from "node:readline";
import { client, methods } from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";

const [url, key, load] = process.argv.slice(2);
const tell = (event) => console.log(JSON.stringify(event));

// Node's own WebSocket takes headers in its second argument
class Socket extends WebSocket {
  constructor(address, _protocols, options) {
    super(address, { headers: options.headers });
  }
}

const waiting = [];

function outcome(request, command) {
  if (command === "cancelled") return { outcome: "cancelled" };
  const kind = command.replace("answer ", "");
  const option = request.options.find((option) => option.kind === kind);
  return { outcome: "selected", optionId: command === "forged" ? "allow_everything" : option.optionId };
}

const app = client()
  .onNotification(methods.client.session.update, ({ params }) => tell({ update: params.update }))
  .onRequest(methods.client.session.requestPermission, ({ params, signal }) => {
    tell({ permission: params });
    return new Promise((resolve) => {
      const answer = (command) => resolve({ outcome: outcome(params, command) });
      waiting.push(answer);
      signal.addEventListener("abort", () => {
        if (waiting.includes(answer)) waiting.splice(waiting.indexOf(answer), 1);
        tell({ withdrawn: params.toolCall.toolCallId });
        answer("cancelled");
      });
    });
  });

const stream = createWebSocketStream(`${url}/acp`, { headers: { "x-api-key": key }, WebSocket: Socket, cookies: "omit" });
await app.connectWith(stream, async (agent) => {
  const hello = { protocolVersion: 1, clientCapabilities: {}, clientInfo: { name: "acp.mjs", version: "1" } };
  tell({ initialized: await agent.request(methods.agent.initialize, hello) });
  const where = { cwd: "/", mcpServers: [] };
  let sessionId = load;
  if (load) await agent.request(methods.agent.session.load, { ...where, sessionId });
  else ({ sessionId } = await agent.request(methods.agent.session.new, where));
  tell({ session: sessionId });
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === "prompt") {
      const prompt = [{ type: "text", text: "What waits?" }];
      tell({ prompt: await agent.request(methods.agent.session.prompt, { sessionId, prompt }) });
    } else if (line === "stop") {
      await agent.notify(methods.agent.session.cancel, { sessionId });
    } else {
      waiting.shift()(line);
    }
  }
});
