/** What the page knows, and how it asks for it. */

import { ask, may } from "./session.js";

const HISTORY_ROWS = 20;
const VERSION_ROWS = 50;

export const state = {
  device: null,
  schedule: null,
  adapters: [], // each with `client`, whose it is, and `key`, its place in all maps here
  versions: new Map(), // by key: { told, list, more }
  examples: new Map(), // by key, only of those that a person opened: { rows, next }
  history: [],
  historyNext: null,
  live: null, // the run that is being watched: { client, run }
  busy: new Set(), // deeds that have been sent and not answered
};

export function reset() {
  Object.assign(state, { device: null, schedule: null, adapters: [], history: [], live: null });
  Object.assign(state, { historyNext: null });
  for (const kept of [state.versions, state.examples, state.busy]) kept.clear();
}

/** The query that makes a request be about that client's things. */
export function whose(client, query = {}) {
  const text = new URLSearchParams(client === null ? query : { ...query, client }).toString();
  return text && `?${text}`;
}

/** The path of an adapter or of what belongs to it. */
export function pathOf(adapter, rest = "", query = {}) {
  return `/v1/adapters/${encodeURIComponent(adapter.name)}${rest}${whose(adapter.client, query)}`;
}

export function adapterOf(key) {
  return state.adapters.find((adapter) => adapter.key === key);
}

/** The unfinished run of an adapter, as new as it is known. */
export function runOf(adapter) {
  const run = adapter.current_run;
  const live = state.live?.run;
  return run && live?.id === run.id && live.step >= run.step ? live : run;
}

export function trained() {
  return state.adapters.find((adapter) => adapter.current_run?.status === "running") ?? null;
}

/** Ask for everything that changes by itself. */
export async function readAll() {
  const admin = may("admin");
  const clients = admin ? (await everyPage("/v1/clients", "clients")).map((one) => one.name) : [null];
  const everyone = admin ? { everyone: "true" } : {};
  const [device, schedule, history, ...lists] = await Promise.all([
    ask("/v1/device"),
    ask("/v1/schedule"),
    ask(`/v1/history${whose(null, { limit: HISTORY_ROWS, ...everyone })}`),
    ...clients.map((client) => adaptersOf(client)),
  ]);
  state.device = device;
  state.schedule = schedule;
  state.adapters = lists.flat();
  takeHistory(history);
  await Promise.all(state.adapters.map(readVersions));
}

/** The next older page of the history. */
export async function readOlderHistory() {
  const everyone = may("admin") ? { everyone: "true" } : {};
  const query = { limit: HISTORY_ROWS, cursor: state.historyNext, ...everyone };
  const page = await ask(`/v1/history${whose(null, query)}`);
  state.history.push(...page.entries);
  state.historyNext = page.next;
}

/** The next page of the examples of an adapter: its first one, if none was read. */
export async function readExamples(adapter) {
  const known = state.examples.get(adapter.key) ?? { rows: [], next: null };
  const query = { limit: 20, ...(known.next === null ? {} : { cursor: known.next }) };
  const page = await ask(pathOf(adapter, "/examples", query));
  state.examples.set(adapter.key, { rows: [...known.rows, ...page.examples], next: page.next });
}

async function adaptersOf(client) {
  const found = await everyPage("/v1/adapters", "adapters", client);
  return found.map((adapter) => ({ ...adapter, client, key: `${client ?? ""}/${adapter.name}` }));
}

/** Versions come anew when something told that there may be others than those that are known. */
async function readVersions(adapter) {
  const run = adapter.current_run;
  const told = JSON.stringify([
    adapter.created_at,
    adapter.active_version?.number,
    adapter.examples,
    run?.id,
    run?.status,
    state.history.find((entry) => entry.adapter === adapter.name)?.id,
  ]);
  if (state.versions.get(adapter.key)?.told === told) return;
  const page = await ask(pathOf(adapter, "/versions", { limit: VERSION_ROWS }));
  state.versions.set(adapter.key, { told, list: page.versions, more: page.next !== null });
}

function takeHistory(page) {
  const oldest = page.entries.at(-1)?.id ?? Infinity;
  const older = state.history.filter((entry) => entry.id < oldest);
  const gap = page.next !== null && !state.history.some((entry) => entry.id >= oldest);
  state.history = gap ? page.entries : [...page.entries, ...older];
  if (gap || older.length === 0) state.historyNext = page.next;
}

async function everyPage(path, noun, client = null) {
  const found = [];
  let cursor = null;
  do {
    const query = { limit: 200, ...(cursor === null ? {} : { cursor }) };
    const page = await ask(`${path}${whose(client, query)}`);
    found.push(...page[noun]);
    cursor = page.next;
  } while (cursor !== null);
  return found;
}
