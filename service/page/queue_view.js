/** Whose turn it is, and why each of the others isn't being trained. */

import { h } from "./dom.js";
import { state } from "./state.js";
import { says } from "./words.js";
import { title } from "./adapters_view.js";

export function queueView() {
  const training = state.adapters.filter((one) => one.current_run?.status === "running");
  const due = state.adapters
    .filter((one) => one.why.place !== null && !training.includes(one))
    .sort((one, other) => one.why.place - other.why.place);
  const others = state.adapters.filter((one) => !training.includes(one) && !due.includes(one));
  const line = [...training, ...due];
  return [
    h("h2", { id: "queue-heading" }, "Whose turn it is"),
    line.length === 0
      ? h("p", { class: "soft" }, "Nobody waits to be trained.")
      : h("ol", { class: "queue" }, line.map((one) => item(one))),
    others.length === 0 ? null : [
      h("h3", {}, "Not waiting"),
      h("ul", { class: "queue" }, others.map((one) => item(one))),
    ],
  ];
}

function item(adapter) {
  return h("li", { "data-item": adapter.key },
    h("strong", {}, title(adapter)), " ", h("span", { class: "soft" }, says(adapter.why.says)));
}
