/** What happens now, in one sentence, and the pause of all training. */

import { button, h } from "./dom.js";
import { may } from "./session.js";
import { runOf, state, trained } from "./state.js";
import { moment } from "./words.js";

export function nowView() {
  const { pause } = state.schedule;
  return [
    h("h1", { id: "now-heading" }, headline()),
    h("p", {}, detail()),
    !may("admin") ? null : pause.paused
      ? h("div", { class: "buttons" }, button("Let it train again", "unpause", {}, { class: "main" }))
      : pauseForm(),
  ];
}

function headline() {
  if (state.schedule.pause.paused) return "All training is paused";
  const adapter = trained();
  if (adapter !== null) return `Learning: ${adapter.name}`;
  if (state.device.worker.state === "training") return "Another app’s adapter is learning";
  return state.schedule.open ? "Nothing to learn right now" : "Resting";
}

function detail() {
  const { pause, open, open_until: until, next } = state.schedule;
  if (pause.paused) {
    return pause.until === null
      ? "Until you let it train again." : `Until ${moment(pause.until)}, or until you say so.`;
  }
  const adapter = trained();
  const run = adapter === null ? null : runOf(adapter);
  const steps = run?.total_steps ? `Step ${run.step} of ${run.total_steps}. ` : "";
  if (open) return `${steps}The window is open${until === null ? " always" : ` until ${moment(until)}`}.`;
  return `${steps}The next window opens ${onDay(next.from)} and closes ${onDay(next.to)}.`;
}

function onDay(iso) {
  const text = moment(iso);
  return /^\d/.test(text) ? `at ${text}` : text;
}

function pauseForm() {
  return h("details", { class: "pause" },
    h("summary", {}, "Pause all training…"),
    h("form", { "data-do": "pause-all", "data-keep": true },
      h("label", { for: "pause-length" }, "For how long?"),
      h("div", { class: "row" },
        h("select", { id: "pause-length", name: "length" },
          h("option", { value: "" }, "until I let it again"),
          h("option", { value: "1" }, "one hour"),
          h("option", { value: "8" }, "eight hours"),
          h("option", { value: "24" }, "a day"),
          h("option", { value: "until" }, "until a time…")),
        h("button", {}, "Pause")),
      h("div", { class: "until", hidden: true },
        h("label", { for: "pause-until" }, "Until"),
        h("input", { id: "pause-until", name: "until", type: "datetime-local" }))));
}
