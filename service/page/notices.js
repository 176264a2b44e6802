/** What a deed came to: said once, aloud to a screen reader, and gone by itself if it went well. */

const STAYS_MS = 6_000;

const said = document.getElementById("said");
const wrong = document.getElementById("wrong");
let timer = null;

export function say(text) {
  wrong.textContent = "";
  said.textContent = text;
  clearTimeout(timer);
  timer = setTimeout(() => (said.textContent = ""), STAYS_MS);
}

/** An error's sentence; it stays until the next deed. */
export function sayWrong(error) {
  said.textContent = "";
  wrong.textContent = error.message;
}

export function hush() {
  said.textContent = "";
  wrong.textContent = "";
}
