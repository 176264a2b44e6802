/** What the buttons do. Each returns the sentence that says it is done, or null. */

import { h } from "./dom.js";
import { confirmed } from "./dialog.js";
import { ask, request } from "./session.js";
import { adapterOf, pathOf, readExamples, readOlderHistory, state, whose } from "./state.js";
import { title } from "./adapters_view.js";
import { count, moment } from "./words.js";

export const deeds = {
  async train({ key }) {
    const adapter = adapterOf(key);
    const run = await ask(pathOf(adapter, "/runs"), { method: "POST", json: {} });
    return `Run ${run.id} of ${adapter.name} was asked for.`;
  },

  pause: (data) => steer(data, "pause", "pauses"),
  resume: (data) => steer(data, "resume", "goes on when gates allow it"),

  async cancel(data) {
    const yes = await confirmed(
      `End run ${data.run}?`,
      "Its checkpoints go, and what it has learned since it began goes with them. The examples stay.",
      "End it",
    );
    return yes ? steer(data, "cancel", "ends") : null;
  },

  async "pause-all"({ form }) {
    const { length, until } = Object.fromEntries(new FormData(form));
    const end = length === "until" ? new Date(until) : length ? inHours(Number(length)) : null;
    if (end !== null && Number.isNaN(end.getTime())) throw new Error("Choose the time it shall end.");
    const json = { until: end === null ? null : end.toISOString() };
    const pause = await ask("/v1/pause", { method: "PUT", json });
    return pause.until === null
      ? "All training is paused." : `All training is paused until ${moment(pause.until)}.`;
  },

  async unpause() {
    await ask("/v1/pause", { method: "DELETE" });
    return "Training goes on when windows and gates allow it.";
  },

  async activate({ key, version }) {
    const adapter = adapterOf(key);
    await ask(pathOf(adapter, `/versions/${version}/activate`), { method: "POST" });
    return `Version ${version} of ${adapter.name} is active.`;
  },

  async deactivate({ key, version }) {
    const adapter = adapterOf(key);
    await ask(pathOf(adapter, `/versions/${version}/deactivate`), { method: "POST" });
    return `No version of ${adapter.name} is active: answers come from the bare base model.`;
  },

  async download({ key, version, format }) {
    const response = await request(
      pathOf(adapterOf(key), `/versions/${version}/download`, { format }),
    );
    const [, name] = /filename="([^"]+)"/.exec(response.headers.get("Content-Disposition"));
    const href = URL.createObjectURL(await response.blob());
    h("a", { href, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
    return `${name} was downloaded.`;
  },

  async "delete-version"({ key, version }) {
    const adapter = adapterOf(key);
    const yes = await confirmed(
      `Delete version ${version} of ${title(adapter)}?`,
      "Its files and its measurements go. The examples stay, and so does what was downloaded.",
      `Delete version ${version}`,
    );
    if (!yes) return null;
    await ask(pathOf(adapter, `/versions/${version}`), { method: "DELETE" });
    return `Version ${version} of ${adapter.name} is deleted.`;
  },

  async "delete-adapter"({ key }) {
    const adapter = adapterOf(key);
    const yes = await confirmed(`Delete adapter ${title(adapter)}?`, whatGoes(adapter),
      `Delete ${adapter.name}`);
    if (!yes) return null;
    const gone = await ask(pathOf(adapter), { method: "DELETE" });
    state.versions.delete(key);
    state.examples.delete(key);
    return `${adapter.name} is deleted. ` + (gone.erased === "done"
      ? "No byte of its examples is left in lorad's files."
      : "Its last bytes are erased as soon as nobody reads them any more.");
  },

  async "older-history"() {
    await readOlderHistory();
    return null;
  },

  async "more-examples"({ key }) {
    await readExamples(adapterOf(key));
    return null;
  },
};

async function steer({ key, run }, verb, words) {
  const { client } = adapterOf(key);
  const answer = await ask(`/v1/runs/${run}/${verb}${whose(client)}`, { method: "POST" });
  return answer.wanted === null ? `Run ${run} ${words}.` : `Run ${run} ${words} after this step.`;
}

function whatGoes(adapter) {
  const { train, holdout } = adapter.examples;
  const known = state.versions.get(adapter.key);
  const versions = `${known?.more ? "more than " : ""}${count(known?.list.length ?? 0, "version")}`;
  return [
    h("p", {}, "For good go:"),
    h("ul", {},
      h("li", {}, `${count(train + holdout, "example")} (${train} to learn from, ${holdout} held out)`),
      h("li", {}, `${versions} with their files`),
      h("li", {}, adapter.current_run === null ? "its runs" : "its runs; the unfinished one is ended")),
    h("p", {}, "What was downloaded stays where it is."),
  ];
}

function inHours(hours) {
  return new Date(Date.now() + hours * 3_600_000);
}
