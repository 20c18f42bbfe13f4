// `/v1`, with the token that was typed in.

const TOKEN = "outbox-relay token";

let signedOut = () => {};

/** Something that the server, or the way to it, said no to. */
export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Who is told that the token is not, or no longer, known. */
export function onSignedOut(listener) {
  signedOut = listener;
}

export function token() {
  return sessionStorage.getItem(TOKEN);
}

export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

/** What stands at a path: `query` without what is empty. */
export async function get(path, query = {}, signal = undefined) {
  return JSON.parse(await getText(path, query, signal));
}

/** The same, as it was written. */
export async function getText(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(given).toString();
  return ask(`v1/${path}${search ? `?${search}` : ""}`, { signal });
}

/** Changes something. */
export async function post(path, body) {
  return JSON.parse(await ask(`v1/${path}`, { method: "POST", body: JSON.stringify(body) }));
}

/** JSON whose numbers keep their digits, as far as this browser can: payloads are shown as they are. */
export function exactly(text) {
  if (!JSON.rawJSON) return JSON.parse(text);
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" && context?.source !== undefined && String(value) !== context.source ? JSON.rawJSON(context.source) : value);
}

async function ask(path, options) {
  let response;
  let text;
  try {
    const signal = options.signal ? AbortSignal.any([options.signal, AbortSignal.timeout(40000)]) : AbortSignal.timeout(40000);
    response = await fetch(path, { ...options, signal, cache: "no-store", headers: { Authorization: `Bearer ${token() ?? ""}` } });
    text = await response.text();
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, `the relay does not answer: ${error.message}`);
  }
  if (response.ok) return text;
  let detail = `${response.status} ${response.statusText}`;
  try {
    detail = JSON.parse(text).detail ?? detail;
  } catch {
    // Somebody between said something else.
  }
  if (response.status === 401) signedOut(detail);
  throw new Problem(response.status, detail);
}
