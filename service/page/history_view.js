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
  const client = entry.client === "owner" ? null : entry.client;
  const about = [client, entry.adapter].filter((part) => part !== null).join("/");
  return h("li", { "data-item": entry.id },
    h("time", { datetime: entry.at, class: "soft" }, moment(entry.at)),
    about === "" ? null : h("strong", {}, ` ${about} `),
    ` ${sentence(entry.message)}`);
}
