/** A question before something is lost. */

import { patch } from "./dom.js";

const dialog = document.getElementById("dialog");

/** Ask; resolves to whether the person said yes. Escape and the first button say no. */
export function confirmed(heading, text, yes, no = "Keep it") {
  document.getElementById("dialog-heading").textContent = heading;
  patch(document.getElementById("dialog-text"), text);
  document.getElementById("dialog-yes").textContent = yes;
  document.getElementById("dialog-no").textContent = no;
  dialog.returnValue = "no";
  dialog.showModal(); // focus goes to the first button, which loses nothing
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

document.getElementById("dialog-yes").addEventListener("click", () => dialog.close("yes"));
document.getElementById("dialog-no").addEventListener("click", () => dialog.close("no"));
