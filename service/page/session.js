/** The token, and every request that carries it.
 *
 * The token and the server key live in this module's memory and nowhere else. While the daemon isn't
 * running, any app on the phone may listen on its port, and a page of its would be of this same
 * origin: whatever lay in localStorage or sessionStorage (which browsers restore with a tab) would be
 * its to read at the next reload. The price is a new code after a reload; a pull on the page is kept
 * from being one (style.css). For the same reason no token leaves for a daemon that has not just
 * proved itself (GET /v1/hello): once a request has failed, or the tab was away, it proves itself
 * anew first.
 */

import { Gone, Impostor, Problem, problemOf } from "./problem.js";

const PROOF_MS = 20_000;

let credentials = null;
let provenAt = -Infinity;

export function loggedIn() {
  return credentials !== null;
}

/** Whether the token may do what needs this scope; `admin` stands for all. */
export function may(scope) {
  return credentials !== null &&
    (credentials.scopes.includes("admin") || credentials.scopes.includes(scope));
}

/** Turn a pairing code into this tab's token. */
export async function logIn(code) {
  const response = await reach("/v1/pair", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
  });
  if (!response.ok) throw await problemOf(response);
  credentials = await response.json();
  provenAt = performance.now(); // it knew the code
}

/** Make the token worthless and forget it: the one it is rotated to is kept by nobody. */
export async function logOut() {
  try {
    await request("/v1/client/rotate", { method: "POST" });
  } finally {
    forget();
  }
}

export function forget() {
  credentials = null;
  doubt();
}

/** The next request asks for a proof first. */
export function doubt() {
  provenAt = -Infinity;
}

/** Send a request with the token.
 *
 * Throws Gone, Impostor, or the Problem that the daemon answered with. */
export async function request(path, options = {}) {
  if (performance.now() - provenAt > PROOF_MS) await prove();
  const { json, headers, ...rest } = options;
  const sent = { Authorization: `Bearer ${credentials?.token}`, ...headers };
  if (json !== undefined) {
    sent["Content-Type"] = "application/json";
    rest.body = JSON.stringify(json);
  }
  const response = await reach(path, { ...rest, headers: sent });
  if (response.ok) return response;
  throw await problemOf(response);
}

/** The JSON of an answer. */
export async function ask(path, options) {
  return (await request(path, options)).json();
}

async function reach(path, options) {
  try {
    return await fetch(path, {
      cache: "no-store",
      credentials: "omit",
      redirect: "error",
      referrerPolicy: "no-referrer",
      ...options,
    });
  } catch (error) {
    doubt();
    if (error.name === "AbortError") throw error;
    throw new Gone();
  }
}

async function prove() {
  if (credentials === null) throw new Problem(401, { detail: "this tab is logged out" }, 0);
  const nonce = base64url(crypto.getRandomValues(new Uint8Array(32)));
  const query = new URLSearchParams({ nonce, key: credentials.server_key_id });
  const response = await reach(`/v1/hello?${query}`, {});
  if (!response.ok) throw await problemOf(response);
  const { proof } = await response.json();
  const message = `lorad-hello-1\n127.0.0.1:${location.port || 80}\n${nonce}`;
  const key = await crypto.subtle.importKey(
    "raw",
    unbase64url(credentials.server_key),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["verify"],
  );
  const text = new TextEncoder().encode(message);
  if (!(await crypto.subtle.verify("HMAC", key, unbase64url(proof), text))) throw new Impostor();
  provenAt = performance.now();
}

function base64url(data) {
  const text = btoa(String.fromCharCode(...data));
  return text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function unbase64url(text) {
  const plain = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(plain, (letter) => letter.charCodeAt(0));
}
