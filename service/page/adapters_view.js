/** The adapters: how each is, what it has learned, and what may be done with it. */

import { button, h } from "./dom.js";
import { measuresView } from "./measures_view.js";
import { steering } from "./run_view.js";
import { may } from "./session.js";
import { runOf, state } from "./state.js";
import { verdictChip, versionsView } from "./versions_view.js";
import { count, moment, says, sentence } from "./words.js";

const STATES = {
  running: ["training", "accent"],
  queued: ["waits", "unsure"],
  paused: ["paused", "unsure"],
  interrupted: ["interrupted", "unsure"],
};

export function adaptersView() {
  return [
    h("h2", { id: "adapters-heading" }, "Adapters"),
    state.adapters.length === 0
      ? h("p", { class: "soft" }, "No app has made one yet.")
      : h("div", { class: "cards" }, state.adapters.map(card)),
  ];
}

/** An adapter's name, with the app whose it is. */
export function title(adapter) {
  return adapter.client === null || adapter.client === "owner"
    ? adapter.name : `${adapter.name} (${adapter.client})`;
}

function card(adapter) {
  const run = runOf(adapter);
  const best = adapter.active_version ?? state.versions.get(adapter.key)?.list[0] ?? null;
  const heading = `adapter-${adapter.key}`;
  return h("article", { "data-item": adapter.key, class: "card", "aria-labelledby": heading },
    h("h3", {}, h("span", { id: heading }, title(adapter)), stateChip(run)),
    h("p", { class: "soft" }, counted(adapter.examples)),
    run === null || run.status === "running" ? null : h("p", {}, says(adapter.why.says)),
    best === null ? h("p", { class: "soft" }, "It has learned nothing yet.") : learned(adapter, best),
    run !== null && run.status !== "running" ? steering(adapter, run) : null,
    actions(adapter, run),
    versionsView(adapter),
    examplesFold(adapter));
}

function stateChip(run) {
  if (run === null) return null;
  const [words, tone] = STATES[run.status] ?? [run.status, "unsure"];
  return h("span", { class: `chip ${tone}` }, words);
}

function counted(examples) {
  const fresh = examples.pending > 0 ? `, ${examples.pending} of them new` : "";
  return `${count(examples.train, "example")} to learn from${fresh}; ${examples.holdout} held out.`;
}

function learned(adapter, version) {
  return [
    h("p", {}, version.active
      ? `Version ${version.number} is active, from ${moment(version.created_at)}. `
      : `No version is active. The newest is ${version.number}. `,
    verdictChip(version)),
    version.verdict === "rejected" ? h("p", {}, sentence(version.verdict_reason)) : null,
    measuresView(version),
  ];
}

function actions(adapter, run) {
  const data = { key: adapter.key };
  return h("div", { class: "buttons" },
    may("train") && run === null
      ? button("Train now", "train", data,
          { class: "main", "aria-label": `Train ${adapter.name} now` }) : null,
    may("adapters:manage")
      ? button("Delete…", "delete-adapter", data,
          { class: "quiet", "aria-label": `Delete adapter ${adapter.name}` }) : null);
}

/** Texts are asked for only when a person opens this. */
function examplesFold(adapter) {
  if (!may("adapters:manage")) return null;
  const known = state.examples.get(adapter.key);
  return h("details", { class: "fold", "data-opens": "examples", "data-adapter": adapter.key },
    h("summary", {}, "Examples"),
    !known ? h("p", { class: "soft" }, "Reading them …")
      : known.rows.length === 0 ? h("p", { class: "soft" }, "None.")
      : h("ul", { class: "examples" }, known.rows.map((row) =>
          h("li", { "data-item": row.id },
            h("span", { class: "chip" }, row.label), ` ${row.input}`,
            row.split === "holdout" ? h("span", { class: "soft" }, " (held out)") : null))),
    known?.next ? button("Show more", "more-examples", { key: adapter.key }) : null);
}
