/** The page: log in, ask again and again, show what changed, do what the buttons say. */

import { adaptersView } from "./adapters_view.js";
import { deeds } from "./deeds.js";
import { patch } from "./dom.js";
import { gatesView } from "./gates_view.js";
import { historyView } from "./history_view.js";
import { hush, say, sayWrong } from "./notices.js";
import { nowView } from "./now_view.js";
import { Problem } from "./problem.js";
import { queueView } from "./queue_view.js";
import { Rounds } from "./rounds.js";
import { watchRun } from "./run_watch.js";
import { runView } from "./run_view.js";
import { doubt, forget, loggedIn, logIn, logOut } from "./session.js";
import { adapterOf, readAll, readExamples, reset, state, trained } from "./state.js";
import { sentence, span } from "./words.js";

const SECTIONS = {
  now: nowView,
  run: runView,
  adapters: adaptersView,
  queue: queueView,
  gates: gatesView,
  history: historyView,
};

const at = (id) => document.getElementById(id);
const rounds = new Rounds(round, (error, wait) => failed(error, wait));
let watching = null; // the run that is watched, and how to stop that: { id, stop }
let drawing = false;

async function round() {
  await readAll();
  at("gone").hidden = true;
  at("connection").hidden = true;
  show("board");
  watch();
  draw();
}

function failed(error, wait) {
  if (error instanceof Problem && error.status === 401) {
    leave("The daemon no longer knows this tab's token. Get a new code with: lorad pair --page");
    return;
  }
  if (!(error instanceof Problem)) unwatch(); // the round that finds the daemon again watches anew
  at("gone").textContent = `${sentence(error.message)} Trying again in ${span(wait / 1000)}.`;
  at("gone").hidden = false;
  at("connection").textContent = "what you see may be old";
  at("connection").hidden = false;
}

function show(id) {
  const entered = at(id).hidden;
  at("login").hidden = id !== "login";
  at("board").hidden = id !== "board";
  at("log-out").hidden = id !== "board";
  if (entered) (id === "login" ? at("code") : at("main")).focus();
}

/** Draw at the next frame, however many events came until then. */
function draw() {
  if (drawing || !loggedIn() || state.schedule === null) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!loggedIn() || state.schedule === null) return;
    for (const [id, view] of Object.entries(SECTIONS)) {
      const nodes = view();
      at(id).hidden = nodes === null;
      patch(at(id), nodes ?? []);
    }
    for (const button of document.querySelectorAll("button[data-do]")) {
      const busy = state.busy.has(deedKey(button));
      if (busy) button.setAttribute("aria-disabled", "true");
      else button.removeAttribute("aria-disabled");
    }
  });
}

function watch() {
  const adapter = trained();
  const run = adapter?.current_run ?? null;
  if (watching !== null && watching.id === run?.id) return;
  watching?.stop.abort();
  watching = null;
  if (run === null || document.hidden) return;
  const stop = new AbortController();
  const mine = { id: run.id, stop };
  watching = mine;
  const over = (error) => {
    if (watching === mine) watching = null;
    state.live = null;
    if (error && !stop.signal.aborted) sayWrong(error);
    if (!stop.signal.aborted) rounds.soon();
  };
  watchRun(adapter.client, run, stop.signal, (now, event) => {
    state.live = { client: adapter.client, run: now };
    if (event === "status") rounds.soon();
    draw();
  }).then(() => over(null), over);
}

function unwatch() {
  watching?.stop.abort();
  watching = null;
  state.live = null;
}

function leave(why) {
  rounds.stop();
  unwatch();
  forget();
  reset();
  hush();
  for (const id of Object.keys(SECTIONS)) at(id).replaceChildren();
  for (const id of ["gone", "connection"]) at(id).hidden = true;
  at("login-error").textContent = why;
  show("login");
}

function deedKey(element) {
  return JSON.stringify(element.dataset);
}

async function perform(element, form = null) {
  const key = deedKey(element);
  if (state.busy.has(key)) return;
  state.busy.add(key);
  hush();
  draw();
  try {
    const done = await deeds[element.dataset.do]({ ...element.dataset, form });
    if (done !== null) say(done);
    await rounds.soon();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) failed(error, 0);
    else sayWrong(error);
  } finally {
    state.busy.delete(key);
    draw();
  }
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-do]");
  if (button !== null) perform(button);
});

document.addEventListener("submit", (event) => {
  event.preventDefault();
  if (event.target.dataset.do) perform(event.target, event.target);
});

document.addEventListener("change", (event) => {
  if (event.target.id !== "pause-length") return;
  event.target.form.querySelector(".until").hidden = event.target.value !== "until";
});

document.addEventListener("toggle", (event) => {
  const { opens, adapter } = event.target.dataset ?? {};
  if (opens !== "examples") return;
  state.examples.delete(adapter);
  if (event.target.open) readExamples(adapterOf(adapter)).then(draw, sayWrong);
  else draw(); // texts that are closed are forgotten
}, true); // a toggle event doesn't bubble

at("login-form").addEventListener("submit", async () => {
  const code = at("code").value.trim();
  at("login-error").textContent = "";
  if (!/^\d{4}[ -]?\d{4}$/.test(code)) {
    at("login-error").textContent = "A code has eight digits, as 1234 5678.";
    at("code").focus();
    return;
  }
  at("login-button").setAttribute("aria-disabled", "true");
  try {
    await logIn(code);
    at("code").value = "";
    await rounds.start();
  } catch (error) {
    at("login-error").textContent = sentence(error.message);
    at("code").select();
  } finally {
    at("login-button").removeAttribute("aria-disabled");
  }
});

at("log-out").addEventListener("click", async () => {
  try {
    await logOut();
    leave("You are logged out, and the token this tab had is worthless.");
  } catch (error) {
    leave(`This tab has forgotten its token, but it still stands: ${error.message}`);
  }
});

document.addEventListener("visibilitychange", () => {
  if (!loggedIn()) return;
  if (document.hidden) {
    rounds.stop();
    unwatch();
  } else {
    doubt();
    rounds.start();
  }
});

show("login");
