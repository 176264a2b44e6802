/** The gates: each with what was read, what is asked for, how old that is, and why. */

import { h } from "./dom.js";
import { state } from "./state.js";
import { quantity, sentence, span } from "./words.js";

const NAMES = {
  charging: "Charger",
  level: "Charge",
  battery_temperature: "Battery temperature",
  skin_temperature: "Case temperature",
  storage: "Storage",
  memory: "Memory",
};
const AT_MOST = new Set(["battery_temperature", "skin_temperature"]);

export function gatesView() {
  const { gates } = state.device;
  const closed = gates.filter((gate) => !gate.open);
  return [
    h("h2", { id: "gates-heading" }, "Gates"),
    h("p", {}, closed.length === 0
      ? "All are open: the phone may train."
      : `${closed.length} of ${gates.length} closed: training waits.`),
    h("ul", { class: "gates" }, gates.map(gateItem)),
  ];
}

function gateItem(gate) {
  return h("li", { "data-item": gate.name, class: gate.open ? "open" : "closed" },
    h("h3", {}, NAMES[gate.name] ?? gate.name,
      h("span", { class: gate.open ? "chip good" : "chip bad" }, gate.open ? "open" : "closed")),
    h("p", { class: "reading" },
      h("strong", {}, quantity(gate.reading, gate.unit)),
      h("span", { class: "soft" }, asked(gate), age(gate))),
    h("p", { class: "soft" }, sentence(gate.reason)));
}

function asked(gate) {
  if (gate.limit === null || typeof gate.limit === "boolean") return "";
  const which = AT_MOST.has(gate.name) ? "at most" : "at least";
  return ` ${which} ${quantity(gate.limit, gate.unit)}`;
}

function age(gate) {
  return gate.age_seconds === null ? "" : ` · ${span(gate.age_seconds)} ago`;
}
