/** A run as it happens: its events, through every break of the connection, without a gap. */

import { eventsOf } from "./event_stream.js";
import { Problem } from "./problem.js";
import { doubt, request } from "./session.js";
import { whose } from "./state.js";

const AGAIN_MS = 2_000;
const LONGEST_AGAIN_MS = 30_000;
const MOST_LOSSES = 1_000;

/** Watch a run until it ends or `signal` aborts; `changed(run, event)` is called at each event.
 *
 * After a break it asks for what came since the last event it read. Throws the Problem of a request
 * that it makes no sense to repeat. */
export async function watchRun(client, known, signal, changed) {
  const run = { ...known, losses: [...known.losses] };
  let lastId = null;
  let wait = AGAIN_MS;
  while (!signal.aborted) {
    try {
      const headers = lastId === null ? {} : { "Last-Event-ID": lastId };
      const path = `/v1/runs/${run.id}/events${whose(client)}`;
      const response = await request(path, { headers, signal });
      if (response.status === 204) return;
      for await (const event of eventsOf(response.body)) {
        wait = AGAIN_MS;
        lastId = event.id;
        apply(run, event);
        changed(run, event.name);
        if (event.name === "end") return;
      }
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Problem && ![429, 503].includes(error.status)) throw error;
      wait = Math.min(2 * wait, LONGEST_AGAIN_MS);
    }
    doubt(); // whoever takes the connection next may be another
    await pause(wait, signal);
  }
}

function apply(run, { name, data }) {
  Object.assign(run, data);
  if (name !== "step") return;
  while (run.losses.length > 0 && run.losses.at(-1)[0] >= data.step) run.losses.pop();
  run.losses.push([data.step, data.loss]);
  if (run.losses.length > MOST_LOSSES) {
    run.losses = run.losses.filter((_, place) => place % 2 === 0 || place === MOST_LOSSES);
  }
}

function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
