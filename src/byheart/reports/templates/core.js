// What every page needs: the data, elements and SVG without markup from strings, a tooltip.
const DATA = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const KINDS = { u1: Uint8Array, i1: Int8Array, u2: Uint16Array, i4: Int32Array, f4: Float32Array };

// Numbers that Python packed (`packed` in page.py).
function unpack(p) {
  if (!p) return null;
  const text = atob(p.b), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new KINDS[p.t](bytes.buffer);
}

// User text on one line: control characters and direction overrides become visible.
function shown(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]/gu,
    (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
}

function make(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

const count = (x) => Number(x).toLocaleString("en-US");

// Three significant digits, as Python's .3g.
function short(x, digits = 3) {
  if (x === null || x === undefined || Number.isNaN(x)) return "-";
  if (x === 0) return "0";
  const size = Math.abs(x);
  if (size >= 1e-4 && size < 10 ** Math.max(digits, 4)) return String(Number(x.toPrecision(digits)));
  return x.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
}

const tip = $("tip");
function tell(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
}
const hush = () => { tip.hidden = true; };
addEventListener("keydown", (e) => { if (e.key === "Escape") hush(); });

// Orange works against, blue carries; the middle is the page's own background.
const DARK = matchMedia("(prefers-color-scheme: dark)");
function hue(v) {
  const [mid, plus, minus] = DARK.matches && !matchMedia("print").matches
    ? [[36, 39, 43], [110, 195, 245], [240, 145, 90]]
    : [[244, 244, 242], [0, 80, 138], [179, 71, 0]];
  const to = v < 0 ? minus : plus, t = Math.min(1, Math.abs(v));
  return mid.map((m, i) => Math.round(m + (to[i] - m) * t));
}
