// Uploads by dropping, pasting and choosing; the box; clean addresses. Pages work without it, except for
// drawing, dropping and pasting.
"use strict";

const alertBox = document.getElementById("alert");

function complain(text) {
  alertBox.textContent = text;
  if (text) alertBox.scrollIntoView({ block: "nearest" });
}

async function upload(file) {
  const most = Number(document.body.dataset.uploadBytes);
  complain("");
  if (file.size > most) {
    complain(`the upload has ${file.size.toLocaleString()} bytes, at most ${most.toLocaleString()} are accepted`);
    return;
  }
  document.body.classList.add("busy");
  try {
    const response = await fetch("/api/uploads", { method: "POST", body: file });
    const answer = await response.json();
    if (response.ok) location.assign(answer.address);
    else complain(answer.error);
  } catch {
    complain("the server did not answer: is it still running?");
  } finally {
    document.body.classList.remove("busy");
  }
}

// The image that was dropped or pasted: a file, or one of this server's own images.
function take(transfer) {
  const file = [...transfer.files].find((it) => it.size);
  if (file) {
    upload(file);
    return true;
  }
  return false;
}

addEventListener("dragover", (event) => {
  if (![...event.dataTransfer.types].includes("Files")) return;
  event.preventDefault();
  document.body.classList.add("dragging");
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
addEventListener("drop", (event) => {
  document.body.classList.remove("dragging");
  if (take(event.dataTransfer)) event.preventDefault();
});
addEventListener("paste", (event) => {
  if (take(event.clipboardData)) event.preventDefault();
});
for (const input of document.querySelectorAll("input[type=file]")) {
  input.addEventListener("change", () => input.files.length && upload(input.files[0]));
  input.form.querySelector("button").hidden = true; // choosing is enough
}

// Addresses without empty fields.
for (const form of document.querySelectorAll("form[method=get]")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) field.disabled ||= field.name && !field.value;
  });
  for (const field of form.querySelectorAll("select, input[type=radio]")) {
    field.addEventListener("change", () => form.requestSubmit());
  }
}
// A form that comes back from the history has its fields again.
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
});

// The box: drawn with mouse or finger, or typed.
function prepareBox(picture) {
  const field = document.querySelector("input[name=box]");
  const typed = field.closest(".field");
  const rect = picture.querySelector("rect");
  const size = [Number(picture.dataset.width), Number(picture.dataset.height)];
  const numbers = document.createElement("div");
  numbers.className = "numbers";
  const inputs = ["left", "top", "right", "bottom"].map((name, place) => {
    const input = document.createElement("input");
    Object.assign(input, { type: "number", min: 0, max: size[place % 2], inputMode: "numeric", placeholder: name });
    input.setAttribute("aria-label", `${name} edge of the part, in pixels`);
    input.addEventListener("input", () => show(inputs.map((it) => it.value)));
    numbers.append(input);
    return input;
  });
  field.hidden = true;
  typed.append(numbers);
  const begin = field.value.split(",");
  if (begin.length === 4) inputs.forEach((input, place) => (input.value = begin[place]));

  function show(values) {
    const [x0, y0, x1, y1] = values.map(Number);
    const whole = values.every((it) => String(it).trim() !== "") && x1 > x0 && y1 > y0;
    field.value = whole ? [x0, y0, x1, y1].join(",") : "";
    rect.toggleAttribute("hidden", !whole);
    const place = { x: x0, y: y0, width: x1 - x0, height: y1 - y0 };
    if (whole) for (const [name, value] of Object.entries(place)) rect.setAttribute(name, value);
  }

  let start = null;
  const at = (event) => {
    const seen = picture.getBoundingClientRect();
    return [
      Math.round(Math.min(Math.max((event.clientX - seen.left) / seen.width, 0), 1) * size[0]),
      Math.round(Math.min(Math.max((event.clientY - seen.top) / seen.height, 0), 1) * size[1]),
    ];
  };
  const box = (event) => {
    const end = at(event);
    const order = (place) => [start[place], end[place]].sort((a, b) => a - b);
    const [x, y] = [order(0), order(1)];
    return [x[0], y[0], x[1], y[1]];
  };
  picture.addEventListener("dragstart", (event) => event.preventDefault());
  picture.addEventListener("pointerdown", (event) => {
    start = at(event);
    picture.setPointerCapture(event.pointerId);
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    if (start) show(box(event));
  });
  picture.addEventListener("pointerup", (event) => {
    if (!start) return;
    const values = box(event);
    start = null;
    show(values);
    // A click is no box.
    if (Math.min((values[2] - values[0]) / size[0], (values[3] - values[1]) / size[1]) < 0.01) return;
    inputs.forEach((input, place) => (input.value = values[place]));
    field.form.requestSubmit();
  });
  picture.addEventListener("pointercancel", () => (start = null));
}
document.querySelectorAll("[data-draw]").forEach(prepareBox);
