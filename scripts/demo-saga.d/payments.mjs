// A participant: payments. Charges an order's amount, and refunds it. Standard library of Node.js only.
//
//     node payments.mjs PORT FILE      port 0: one that is free; the first line of the output says which
//
// Its database is a journal: a line is a transaction, with what was done and the answer to it, and is on the disk before it is answered.
// All requests take turns, for nothing between the look and the line is asynchronous.
import { createHash } from "node:crypto";
import { closeSync, existsSync, fsyncSync, openSync, readFileSync, truncateSync, writeSync } from "node:fs";
import { createServer } from "node:http";

const [port, file] = process.argv.slice(2);
const charges = new Map(); // by the key of the request that made it
const undone = new Map(); // by saga and step: the last generation that was undone, also where there was nothing to undo

const place = ({ saga, step }) => `${saga} ${step}`;

// What a line of the journal means; the answer is the status and the body.
function apply(line) {
  if (line.what === "charge") {
    charges.set(line.key, { ...line, refunded: false });
    return [200, line.answer];
  }
  undone.set(place(line), Math.max(line.generation, undone.get(place(line)) ?? 0));
  const refunds = taken(line);
  for (const charge of refunds) charge.refunded = true;
  return [refunds.length > 0 ? 200 : 410, { refunded: refunds.length }];
}

// What a refund of this step gives back. Of earlier generations, too: a saga that is run again from a later step keeps what was done
// before that.
function taken(undo) {
  const of = (charge) => place(charge) === place(undo) && charge.generation <= undo.generation;
  return [...charges.values()].filter((charge) => of(charge) && !charge.refunded);
}

function charge(step, key, body) {
  if (undone.get(place(step)) >= step.generation) return [422, { error: "this step was undone" }];
  const request = createHash("sha256").update(body).digest("hex");
  const known = charges.get(key);
  if (known && known.request !== request) return [422, { error: "this key came with another request before" }];
  if (known) return [200, known.answer];
  const cents = amount(body);
  if (!(Number.isSafeInteger(cents) && cents > 0)) return [422, { error: "cents: a number of them is expected" }];
  return write({ what: "charge", ...step, key, request, cents, answer: { payment: `p-${charges.size + 1}` } });
}

function amount(body) {
  try {
    return JSON.parse(body).input.cents;
  } catch {
    return undefined; // what is no order will be none the next time
  }
}

function refund(step) {
  const before = undone.get(place(step)) >= step.generation;
  return before ? [410, { refunded: 0 }] : write({ what: "refund", ...step });
}

// === the journal ===

let size = 0;
const lines = existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1) : [];
for (const line of lines) {
  size += Buffer.byteLength(line) + 1;
  apply(JSON.parse(line));
}
// What comes after the last end of a line was being written when the process died: nobody was told of it.
if (existsSync(file)) truncateSync(file, size);
const journal = openSync(file, "a");

function write(line) {
  // One that fails ends the process: nobody knows what is in the file then, and the next start looks.
  const text = Buffer.from(`${JSON.stringify(line)}\n`);
  if (writeSync(journal, text) !== text.length) throw new Error(`${file}: no room`);
  fsyncSync(journal);
  return apply(line);
}

// === HTTP ===

const server = createServer(async (request, response) => {
  const chunks = [];
  try {
    for await (const chunk of request) chunks.push(chunk);
  } catch {
    return; // the caller hung up in the middle of it
  }
  const [status, answer] = answered(request, Buffer.concat(chunks));
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(answer));
});

function answered({ method, url, headers }, body) {
  // The books, for whoever audits them.
  if (method === "GET") return [200, { done: [...charges.values()].map((c) => ({ saga: c.saga, step: c.step, cents: c.cents, undone: c.refunded })) }];
  const step = { saga: headers["saga-id"], step: headers["saga-step"], generation: Number(headers["saga-generation"]) };
  if (url === "/charge") return charge(step, headers["idempotency-key"], body);
  if (url === "/refund") return refund(step);
  return [422, { error: "no such path" }];
}

server.listen(Number(port), "127.0.0.1", () => console.log(server.address().port));
process.on("exit", () => closeSync(journal));
