/** The run that is being trained, as it happens. */

import { curve } from "./curve.js";
import { button, h } from "./dom.js";
import { may } from "./session.js";
import { runOf, state, trained } from "./state.js";
import { count, quantity } from "./words.js";

const PHASES = {
  loading: "loading the model",
  measuring: "measuring",
  training: "training",
};

/** The whole section; null while nothing of the token's is trained. */
export function runView() {
  const adapter = trained();
  if (adapter === null) return null;
  const run = runOf(adapter);
  return [
    h("h2", { id: "run-heading" }, `Training ${adapter.name}`),
    h("p", { class: "step" },
      h("strong", {}, `Step ${run.step}`),
      run.total_steps === null ? null : ` of ${run.total_steps}`,
      h("span", { class: "soft" }, ` · ${doing(run)}`)),
    h("progress", {
      "aria-label": "Steps done",
      value: run.step,
      max: Math.max(run.total_steps ?? 1, run.step, 1),
    }),
    curve(run),
    h("dl", { class: "facts" },
      fact("Loss now", run.loss === null ? "–" : run.loss.toFixed(3)),
      fact("Battery", temperature(state.device?.battery.temperature)),
      fact("Case", temperature(state.device?.skin_temperature)),
      fact("Checkpoint", run.checkpoint_step === null ? "none yet" : `step ${run.checkpoint_step}`),
      run.forgotten > 0 ? fact("Goes on without", count(run.forgotten, "example")) : null),
    steering(adapter, run),
  ];
}

/** The buttons by which a run is steered. */
export function steering(adapter, run) {
  if (!may("train")) return null;
  if (run.wanted !== null) {
    return h("p", { class: "soft" }, `Asked to ${run.wanted}: done at the end of this step.`);
  }
  const data = { key: adapter.key, run: run.id };
  const paused = run.status === "paused" || run.status === "interrupted";
  return h("div", { class: "buttons" },
    paused ? button("Go on", "resume", data) : button("Pause this run", "pause", data),
    button("End it…", "cancel", data, { class: "quiet" }),
    run.when === "window" && run.status === "queued"
      ? button("Start now", "train", { key: adapter.key }) : null);
}

function doing(run) {
  if (run.evaluating_total) return `measuring ${run.evaluated} of ${run.evaluating_total}`;
  return PHASES[run.phase] ?? run.phase ?? "starting";
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

function temperature(reading) {
  if (!reading || reading.value === null) return "not known";
  return quantity(reading.value, reading.unit);
}
