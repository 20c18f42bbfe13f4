// What the three peers have in common: the message, and how it is posted.
import { Pool } from "undici";

// 350 bytes as JSON.
export function message(n) {
  return { n, pad: "x".repeat(335 - String(n).length) };
}

// Calls add() with 1,000 messages at a time.
export async function inChunks(count, add) {
  for (let start = 0; start < count; start += 1000) {
    const end = Math.min(start + 1000, count);
    await add(Array.from({ length: end - start }, (_, i) => message(start + i)));
  }
}

// A function that posts a message to the sink over kept connections, and throws where it is not accepted.
export function poster(sink, connections) {
  const { origin, pathname: path } = new URL(sink);
  const pool = new Pool(origin, { connections });
  return async (id, data) => {
    const { statusCode, body } = await pool.request({
      path,
      method: "POST",
      headers: { "content-type": "application/json", "idempotency-key": String(id) },
      body: JSON.stringify(data),
    });
    await body.dump();
    if (statusCode !== 200) throw new Error(`status ${statusCode}`);
  };
}
