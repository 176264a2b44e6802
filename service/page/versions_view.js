/** The versions of an adapter: verdict, numbers, and what may be done with each. */

import { button, h } from "./dom.js";
import { may } from "./session.js";
import { state } from "./state.js";
import { count, moment, percent, sentence } from "./words.js";

const FORMATS = { peft: "PEFT", gguf: "GGUF" };
const VERDICTS = {
  promoted: ["better", "good"],
  rejected: ["no better", "bad"],
  insufficient: ["too few to tell", "unsure"],
  imported: ["imported, not measured", "unsure"],
};

export function versionsView(adapter) {
  const known = state.versions.get(adapter.key);
  if (!known || known.list.length === 0) return null;
  const active = adapter.active_version?.number ?? null;
  return h("details", { class: "fold" },
    h("summary", {}, count(known.list.length, "version"), known.more ? " and older ones" : ""),
    h("ol", { class: "versions" },
      known.list.map((version) => versionItem(adapter, version, active))));
}

export function verdictChip(version) {
  const [words, tone] = VERDICTS[version.verdict] ?? [version.verdict, "unsure"];
  return h("span", { class: `chip ${tone}` }, words);
}

function versionItem(adapter, version, active) {
  const { before, after, holdout } = version.metrics;
  const data = { key: adapter.key, version: version.number };
  const name = `version ${version.number} of ${adapter.name}`;
  const shares = [before.accuracy, after.accuracy];
  return h("li", { "data-item": version.number },
    h("h4", {}, `Version ${version.number} `,
      version.active ? h("span", { class: "chip accent" }, "active") : null, verdictChip(version)),
    h("p", { class: "soft" },
      h("time", { datetime: version.created_at }, moment(version.created_at)),
      shares.some((one) => one === null || one === undefined) ? null
        : ` · ${percent(shares[0])} → ${percent(shares[1])} of ${holdout} right`),
    h("p", {}, sentence(version.verdict_reason)),
    version.active && version.activated_by
      ? h("p", { class: "soft" }, `${version.activated_by} made it the active one.`) : null,
    version.files_gone ? h("p", { class: "error" }, "Its files are gone from the home folder.") : null,
    version.seen_deleted > 0
      ? h("p", { class: "soft" },
          `It has seen ${count(version.seen_deleted, "example")} that you deleted since; train anew ` +
          "and delete it to be rid of what it learned of them.") : null,
    h("div", { class: "buttons" },
      may("adapters:manage") ? choosing(version, active, data, name) : null,
      may("adapters:download") && !version.files_gone
        ? ["peft", "gguf"].map((format) =>
            button(FORMATS[format], "download", { ...data, format },
              { "aria-label": `Download ${name} as ${FORMATS[format]}` })) : null,
      may("adapters:manage") && !version.active
        ? button("Delete…", "delete-version", data,
            { class: "quiet", "aria-label": `Delete ${name}` }) : null));
}

function choosing(version, active, data, name) {
  if (version.active) {
    return button("Use none", "deactivate", data, { "aria-label": `Use none instead of ${name}` });
  }
  if (version.files_gone) return null;
  const words = active !== null && version.number < active ? "Roll back to it" : "Activate";
  return button(words, "activate", data, { "aria-label": `${words}: ${name}` });
}
