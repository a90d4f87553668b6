// The map of the collection on a canvas. The chosen point and the view are kept in the URL.
"use strict";

const canvas = document.getElementById("map");
const state = document.getElementById("state");
const found = document.getElementById("found");
const context = canvas.getContext("2d");
const address = new URL(location);
const near = 28; // maximum distance of a click from its point, in pixels
let points = [];
let chosen = null;
// The view: its center, in 0..1 of the map, and its zoom factor.
let view = (address.searchParams.get("view") ?? "").split(",").map(Number);
if (view.length !== 3 || !view.every(Number.isFinite) || view[2] < 1) view = [0.5, 0.5, 1];

const sides = () => [canvas.clientWidth, canvas.clientHeight];
function place(point) {
  const [width, height] = sides();
  const room = 0.94 * view[2];
  return [(point.x - view[0]) * room * width + width / 2, (point.y - view[1]) * room * height + height / 2];
}

// Hues of labels, each far from those of its neighbors in the alphabet.
const hues = new Map();

function draw() {
  const [width, height] = sides();
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.scale(ratio, ratio);
  const light = matchMedia("(prefers-color-scheme: dark)").matches ? "68%" : "42%";
  const only = canvas.dataset.label;
  for (const point of points) {
    const [x, y] = place(point);
    const seen = !only || point.label === only;
    context.globalAlpha = seen ? 0.85 : 0.12;
    context.fillStyle = point.label ? `hsl(${hues.get(point.label)} 60% ${light})` : `hsl(176 60% ${light})`;
    context.beginPath();
    context.arc(x, y, seen ? 4 : 3, 0, 7);
    context.fill();
  }
  context.globalAlpha = 1;
  if (chosen) {
    const [x, y] = place(chosen);
    context.lineWidth = 3;
    context.strokeStyle = getComputedStyle(canvas).color;
    context.beginPath();
    context.arc(x, y, 9, 0, 7);
    context.stroke();
  }
}

function remember() {
  if (chosen) address.searchParams.set("image", chosen.id);
  if (view[2] > 1) address.searchParams.set("view", view.map((it) => Number(it.toFixed(4))).join(","));
  else address.searchParams.delete("view");
  history.replaceState(null, "", address);
}

function link(text, href) {
  const it = document.createElement("a");
  it.textContent = text;
  it.href = href;
  return it;
}

function choose(point) {
  chosen = point;
  const image = document.createElement("img");
  image.src = point.thumbnail;
  image.alt = "";
  const text = document.createElement("div");
  const name = document.createElement("b");
  name.textContent = point.label || `image ${point.id}`;
  const path = document.createElement("div");
  path.className = "dim small";
  path.textContent = point.path;
  text.append(name, path, link("Search by it", `/search?image=${point.id}`), " · ", link("Details", `/image/${point.id}`));
  found.replaceChildren(image, text);
  remember();
  draw();
}

function nearest(x, y, most = Infinity, accepted = () => true) {
  let best = null;
  let least = most ** 2;
  for (const point of points) {
    const [px, py] = place(point);
    const away = (px - x) ** 2 + (py - y) ** 2;
    if (away < least && accepted(px - x, py - y)) [best, least] = [point, away];
  }
  return best;
}

function zoom(factor, x, y) {
  const [width, height] = sides();
  const next = Math.min(Math.max(view[2] * factor, 1), 40);
  // Keep what is under the pointer in place.
  const shift = 1 / (0.94 * view[2]) - 1 / (0.94 * next);
  view = next === 1 ? [0.5, 0.5, 1] : [view[0] + (x / width - 0.5) * shift, view[1] + (y / height - 0.5) * shift, next];
  remember();
  draw();
}

const middle = () => sides().map((it) => it / 2);
document.getElementById("closer").addEventListener("click", () => zoom(1.6, ...middle()));
document.getElementById("farther").addEventListener("click", () => zoom(1 / 1.6, ...middle()));
canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? 1.25 : 0.8, event.offsetX, event.offsetY);
  },
  { passive: false },
);

let held = null;
canvas.addEventListener("pointerdown", (event) => {
  held = { x: event.offsetX, y: event.offsetY, view: [...view], moved: false };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", (event) => {
  if (!held) return;
  const [dx, dy] = [event.offsetX - held.x, event.offsetY - held.y];
  held.moved ||= Math.hypot(dx, dy) > 6;
  if (!held.moved || view[2] === 1) return;
  const [width, height] = sides();
  view = [held.view[0] - dx / (0.94 * view[2] * width), held.view[1] - dy / (0.94 * view[2] * height), view[2]];
  draw();
});
canvas.addEventListener("pointerup", (event) => {
  const point = held && !held.moved && nearest(event.offsetX, event.offsetY, near);
  held = null;
  if (point) choose(point);
  else remember();
});

const arrows = {
  ArrowLeft: (dx, dy) => dx < -1 && Math.abs(dy) <= -dx,
  ArrowRight: (dx, dy) => dx > 1 && Math.abs(dy) <= dx,
  ArrowUp: (dx, dy) => dy < -1 && Math.abs(dx) <= -dy,
  ArrowDown: (dx, dy) => dy > 1 && Math.abs(dx) <= dy,
};
canvas.addEventListener("keydown", (event) => {
  if (event.key in arrows) {
    const from = chosen ? place(chosen) : middle();
    const next = chosen ? nearest(...from, Infinity, arrows[event.key]) : nearest(...from);
    if (next) choose(next);
  } else if (event.key === "Enter" && chosen) location.assign(`/search?image=${chosen.id}`);
  else if (event.key === "+") zoom(1.6, ...middle());
  else if (event.key === "-") zoom(1 / 1.6, ...middle());
  else return;
  event.preventDefault();
});
addEventListener("resize", draw);

async function load() {
  const response = await fetch("/api/map");
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  points = answer.points;
  const labels = [...new Set(points.map((it) => it.label))].sort();
  labels.forEach((label, place) => hues.set(label, (place * 137.5) % 360));
  state.textContent = answer.caption;
  const id = Number(address.searchParams.get("image") ?? -1);
  const there = points.find((it) => it.id === id);
  if (there) choose(there);
  draw();
}
load().catch((error) => (state.textContent = error.message));
