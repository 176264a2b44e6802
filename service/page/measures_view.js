/** Before and after: what base, simple guesses and a version score on the same held-out examples. */

import { h, svg } from "./dom.js";
import { wilson } from "./interval.js";
import { count, percent } from "./words.js";

const LEAST = 30; // as the daemon's verdict has it: with fewer rows nothing is decided

/** A table of the measurements, with bars for shares and what is sure about them in words. */
export function measuresView(version) {
  const { metrics } = version;
  if (version.verdict === "imported") return null;
  if (metrics.holdout === 0) {
    return h("p", { class: "soft" }, "Nothing was held out, so nothing could be measured.");
  }
  const rows = rowsOf(version);
  const withAccuracy = rows.some((row) => row.accuracy !== null);
  const withNll = rows.some((row) => row.nll !== null);
  const score = withNll ? "Label NLL" : "Loss";
  return h("div", { class: "measures" },
    h("table", {},
      h("caption", {}, `Version ${version.number} on ${count(metrics.holdout, "held-out example")}`),
      h("thead", {}, h("tr", {},
        h("th", { scope: "col" }, "Answer by"),
        withAccuracy ? h("th", { scope: "col" }, "Right") : null,
        h("th", { scope: "col", class: "number" }, score, h("span", { class: "soft" }, " ↓")))),
      h("tbody", {}, rows.map((row) => rowOf(row, metrics.holdout, withAccuracy, withNll)))),
    h("p", { class: "soft" }, confidence(version, withAccuracy)));
}

function rowsOf({ number, metrics }) {
  const guess = (name, accuracy) =>
    accuracy === undefined || accuracy === null ? [] : [{ name, accuracy, nll: null, loss: null }];
  const model = (name, measures, kind) =>
    !measures ? [] : [{
      name,
      kind,
      accuracy: measures.accuracy ?? null,
      nll: measures.label_nll ?? null,
      loss: measures.loss ?? null,
    }];
  return [
    ...guess("Most frequent label", metrics.majority_accuracy),
    ...guess("Most frequent of late", metrics.recency_prior_accuracy),
    ...model("Base model: before", metrics.before, "before"),
    ...model("The version active then", metrics.active, "before"),
    ...model(`Version ${number}: after`, metrics.after, "after"),
  ];
}

function rowOf(row, n, withAccuracy, withNll) {
  const score = withNll ? row.nll : row.loss;
  return h("tr", { class: row.kind ?? "guess" },
    h("th", { scope: "row" }, row.name),
    withAccuracy
      ? h("td", {}, row.accuracy === null ? "–" : [bar(row, n), share(row.accuracy, n)]) : null,
    h("td", { class: "number" }, score === null ? "–" : score.toFixed(3)));
}

function share(accuracy, n) {
  const [low, high] = wilson(accuracy, n);
  return h("span", { class: "share" }, h("strong", {}, percent(accuracy)), " ",
    h("span", { class: "soft" }, `${Math.round(low * 100)} to ${Math.round(high * 100)}`));
}

function bar({ accuracy }, n) {
  const [low, high] = wilson(accuracy, n).map((one) => one * 100);
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true", class: "bar" },
    svg("rect", { x: 0, y: 0, width: 100, height: 10, class: "ground" }),
    svg("rect", { x: 0, y: 0, width: (accuracy * 100).toFixed(2), height: 10, class: "fill" }),
    svg("rect", { x: low.toFixed(2), y: 4, width: (high - low).toFixed(2), height: 2, class: "whisker" }));
}

function confidence({ verdict, metrics }, withAccuracy) {
  const parts = [];
  if (verdict === "insufficient") {
    parts.push(`${count(metrics.holdout, "held-out example")} are too few to say whether it is ` +
      `better: ${LEAST} are needed. You may still decide yourself.`);
  }
  if (withAccuracy) {
    parts.push("The thin lines are 95 % intervals (Wilson): another such handful of examples could " +
      "well have scored anywhere in them. All answered the same examples, so differences are " +
      "surer than the lines look.");
  }
  return parts.join(" ");
}
