/** What can go wrong with a request, each with one sentence for a person. */

/** The daemon said no: an RFC 9457 problem. */
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    const fields = (body.errors ?? []).map((one) => `${one.field}: ${one.message}`);
    const detail = body.detail ?? `the daemon answered with status ${status} and no sentence`;
    super([detail, ...fields].join("; "));
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

/** Nobody answers at this address. */
export class Gone extends Error {
  constructor() {
    super(`No daemon answers at ${location.host}. Start it with: lorad serve`);
  }
}

/** Somebody answers, and it isn't the daemon that this tab was paired with. */
export class Impostor extends Error {
  constructor() {
    super(
      `What answers at ${location.host} can't prove that it is the daemon this page was paired ` +
        "with, so it is told nothing. If you moved lorad's home, log out and pair again; " +
        "otherwise another app has taken its port",
    );
  }
}

/** The problem of an answer that isn't a success. */
export async function problemOf(response) {
  let body = {};
  try {
    body = await response.json();
  } catch {
    // not JSON: the status alone has to do
  }
  const seconds = Number(response.headers.get("Retry-After"));
  return new Problem(response.status, body, Number.isFinite(seconds) ? seconds : 0);
}
