/** What happened, newest first. */

import { button, h } from "./dom.js";
import { state } from "./state.js";
import { moment, sentence } from "./words.js";

export function historyView() {
  return [
    h("h2", { id: "history-heading" }, "What happened"),
    state.history.length === 0
      ? h("p", { class: "soft" }, "Nothing yet.")
      : h("ol", { class: "history" }, state.history.map(entryItem)),
    state.historyNext === null ? null : button("Show older", "older-history"),
  ];
}

function entryItem(entry) {
  return h("li", { "data-item": entry.id },
    h("time", { datetime: entry.at, class: "soft" }, moment(entry.at)),
    entry.adapter === null ? null : h("strong", {}, ` ${entry.adapter} `),
    ` ${sentence(entry.message)}`);
}
