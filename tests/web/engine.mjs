// Runs the engine of a page in Node: `node engine.mjs ENGINE.js REQUESTS.json ANSWERS.json`. Each request has a model,
// its weights in base 64, and messages to the worker; the answers are the worker's messages, in order.
import { readFileSync, writeFileSync } from "node:fs";

const [, , script, requests, answers] = process.argv;
const code = readFileSync(script, "utf8");

function toJson(_, value) {
  if (ArrayBuffer.isView(value)) return Array.from(value, (one) => (Number.isFinite(one) ? one : String(one)));
  return typeof value === "number" && !Number.isFinite(value) ? String(value) : value;
}

async function run({ model, weights, messages }) {
  const found = [], bytes = Uint8Array.from(Buffer.from(weights, "base64")).buffer;
  let settle = () => {};
  const self = { onmessage: null, postMessage(message) { found.push(message); settle(message); } };
  new Function("self", code)(self);
  for (const message of [{ type: "load", model, weights: bytes }, ...messages]) {
    await new Promise((resolve) => {
      settle = ({ type, done, of }) => (type !== "ranked" || done === of) && resolve();
      self.onmessage({ data: message });
    });
  }
  return found;
}

const found = [];
for (const request of JSON.parse(readFileSync(requests, "utf8"))) found.push(await run(request));
writeFileSync(answers, JSON.stringify(found, toJson));
