/** The loss curve: a picture, one sentence that says the same, and the numbers. */

import { h, svg } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 120;
const LEFT = 34;
const BOTTOM = 18;
const TOP = 6;
const RIGHT = 6;
const ROWS = 12;

export function curve(run) {
  const points = run.losses;
  if (points.length < 2) return h("p", { class: "soft" }, "The curve begins with the second step.");
  const last = points.at(-1)[0];
  const steps = Math.max(run.total_steps ?? last, last);
  const most = Math.max(...points.map(([, loss]) => loss)) || 1;
  const x = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * (step - 1)) / Math.max(steps - 1, 1);
  const y = (loss) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - loss / most);
  const line = points.map(([step, loss]) => `${x(step).toFixed(1)},${y(loss).toFixed(1)}`).join(" ");
  return h("figure", { class: "curve" },
    svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": inWords(points) },
      [0, 0.5, 1].map((part) => [
        svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(most * part), y2: y(most * part), class: "rule" }),
        svg("text", { x: LEFT - 5, y: y(most * part) + 3, "text-anchor": "end" }, (most * part).toFixed(2)),
      ]),
      svg("text", { x: LEFT, y: HEIGHT - 4 }, "step 1"),
      svg("text", { x: WIDTH - RIGHT, y: HEIGHT - 4, "text-anchor": "end" }, `${steps}`),
      svg("polyline", { points: line, class: "line" }),
      svg("circle", { cx: x(last), cy: y(points.at(-1)[1]), r: 3.5, class: "tip" }),
    ),
    h("figcaption", {}, "Loss per label token; lower is better."),
    h("details", {}, h("summary", {}, "The curve in numbers"), numbers(points)),
  );
}

function inWords(points) {
  const [[first, begin], [last, end]] = [points[0], points.at(-1)];
  const [at, least] = points.reduce((best, point) => (point[1] < best[1] ? point : best));
  return `Loss per label token: ${begin.toFixed(3)} at step ${first}, ${end.toFixed(3)} at step ` +
    `${last}; lowest ${least.toFixed(3)} at step ${at}.`;
}

function numbers(points) {
  const every = Math.max(1, Math.ceil(points.length / ROWS));
  const shown = points.filter((_, place) => place % every === 0 || place === points.length - 1);
  return h("table", {},
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Step"), h("th", { scope: "col" }, "Loss"))),
    h("tbody", {}, shown.map(([step, loss]) =>
      h("tr", {}, h("td", {}, step), h("td", {}, loss.toFixed(4))))),
  );
}
