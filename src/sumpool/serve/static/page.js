// Uploads by dropping, pasting and choosing; the box; clean URLs. Pages work without this script, except
// for drawing, dropping and pasting.
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

// Whether a file was dropped or pasted; the first one is uploaded.
function take(transfer) {
  const [file] = transfer.files;
  if (file) upload(file);
  return Boolean(file);
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
  input.form.querySelector("button").hidden = true; // choosing a file uploads it
}

// Keep empty fields out of URLs.
for (const form of document.querySelectorAll("form[method=get]")) {
  form.addEventListener("submit", () => {
    for (const field of form.elements) field.disabled ||= field.name && !field.value;
  });
  for (const field of form.querySelectorAll("select, input[type=radio]")) {
    field.addEventListener("change", () => form.requestSubmit());
  }
}
// Enable the fields again when a page is restored from the history.
addEventListener("pageshow", () => {
  for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
});

// On a phone, results come first.
if (matchMedia("(max-width: 48rem)").matches) {
  for (const fold of document.querySelectorAll(".side details")) fold.open = false;
}

// The box: drawn with mouse or finger, or typed.
function prepareBox(picture) {
  const field = document.querySelector("input[name=box]");
  const rect = picture.querySelector("rect");
  const size = [picture.viewBox.baseVal.width, picture.viewBox.baseVal.height];
  const numbers = document.createElement("div");
  numbers.className = "numbers";
  const inputs = ["left", "top", "right", "bottom"].map((name, place) => {
    const input = document.createElement("input");
    Object.assign(input, { type: "number", min: 0, max: size[place % 2], placeholder: name });
    input.setAttribute("aria-label", `${name} edge of the part, in pixels`);
    input.addEventListener("input", () => show(inputs.map((it) => it.value)));
    numbers.append(input);
    return input;
  });
  field.hidden = true;
  field.after(numbers);
  field.labels[0].removeAttribute("for");
  const typed = field.value.split(",");
  if (typed.length === 4) inputs.forEach((input, place) => (input.value = typed[place]));

  function show(values) {
    const [x0, y0, x1, y1] = values.map(Number);
    const whole = values.every((it) => String(it).trim()) && x1 > x0 && y1 > y0;
    field.value = whole ? [x0, y0, x1, y1].join(",") : "";
    const place = whole ? { x: x0, y: y0, width: x1 - x0, height: y1 - y0 } : { width: 0 };
    for (const [name, value] of Object.entries(place)) rect.setAttribute(name, value);
  }

  let start = null;
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(picture.getScreenCTM().inverse());
    return [point.x, point.y].map((value, place) => Math.round(Math.min(Math.max(value, 0), size[place])));
  };
  const box = (event) => {
    const end = at(event);
    const low = start.map((value, place) => Math.min(value, end[place]));
    const high = start.map((value, place) => Math.max(value, end[place]));
    return [...low, ...high];
  };
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
    // A click is not a box.
    if (Math.min((values[2] - values[0]) / size[0], (values[3] - values[1]) / size[1]) < 0.02) {
      show(inputs.map((it) => it.value));
      return;
    }
    inputs.forEach((input, place) => (input.value = values[place]));
    show(values);
    field.form.requestSubmit();
  });
  picture.addEventListener("pointercancel", () => {
    start = null;
    show(inputs.map((it) => it.value));
  });
}
document.querySelectorAll("[data-draw]").forEach(prepareBox);
