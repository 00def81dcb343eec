// The capacity explorer. `theory` is byheart.theory in JavaScript (reports/explorer.py).
const SIZES = [
  { id: "d", label: "width d", low: 1, high: 16384 },
  { id: "H", label: "heads H", low: 1, high: 4096 },
  { id: "d_h", label: "head width d_h", low: 1, high: 4096 },
  { id: "n", label: "tokens of a key, n", low: 1, high: 131072 },
  { id: "N", label: "vocabulary N", low: 2, high: 1000000 },
  { id: "T", label: "facts", low: 1, high: 1000000000 },
];

const plainly = (value) => {
  if (typeof value === "bigint") return { int: value.toString() };
  if (value instanceof Map) return Object.fromEntries([...value].map(([k, v]) => [k, plainly(v)]));
  return value === undefined ? null : value;
};

// All answers for sizes {d, H, d_h, n, N, T, reads, shared}; an error that a user can mend is text.
function explore(s) {
  const of = (name) => BigInt(s[name]);
  const found = { error: null, size_error: null, parameters: null, bounds: [], sizes: [] };
  try {
    const spec = s.reads === "vectors"
      ? py.call(theory.MultiHeadSpec, [], [["d", of("d")], ["n", of("n")], ["d_h", of("d_h")], ["H", of("H")], ["shared", s.shared]])
      : py.call(theory.AttentionOnlySpec, [], [["N", of("N")], ["S", of("n")], ["d", of("d")], ["d_h", of("d_h")], ["H", of("H")]]);
    found.parameters = spec.parameters;
    found.bounds = theory.ask(theory.case_of(spec, of("T")));
  } catch (error) {
    if (!error.python) throw error;
    found.error = error.message;
  }
  try {
    found.sizes = theory.sizes(theory.facts_case(null, of("T"), of("N"), of("n")));
  } catch (error) {
    if (!error.python) throw error;
    found.size_error = error.message;
  }
  return found;
}

// The same as JSON, for programs: whole numbers as {int: "digits"}.
function exploreJson(s) {
  const found = explore(s), rows = (list, names) => list.map((row) => Object.fromEntries(names.map((n) => [n, plainly(row[n])])));
  return {
    error: found.error, size_error: found.size_error, parameters: plainly(found.parameters),
    bounds: rows(found.bounds, ["id", "applies", "reason", "capacity", "unit", "parameters", "kind", "note", "holds", "facts_per_parameter", "bits_per_parameter"]),
    sizes: rows(found.sizes, ["family", "parameters", "sizes", "bits", "note", "facts_per_parameter", "bits_per_parameter"]),
  };
}

const settings = {};
const many = (x) => {
  if (x === null) return "-";
  if (typeof x === "bigint") return x < 10n ** 15n ? count(x) : short(Number(x));
  return Math.abs(x) >= 1000 && Math.abs(x) < 1e15 ? count(Math.round(x)) : short(x);
};
const SIGN = { "lower bound": "≥ ", "upper bound": "≤ ", "necessary size": "≤ ", measurement: "≈ " };


// What is read from an input or an address: a whole number between the ends of its slider, or null.
function whole(size, text) {
  const value = /^\d{1,15}$/.test(text) ? Number(text) : NaN;
  return value >= size.low && value <= size.high ? value : null;
}

// Settings stand in the address behind "#": d=768&H=12&..., so that a copied address brings them back.
const address = (s) => "#" + SIZES.map(({ id }) => `${id}=${s[id]}`).join("&") + `&reads=${s.reads}` + (s.shared ? "&shared=yes" : "");

// The settings of an address. What is missing in it, or wrong, is as at the start; wrong ones are named.
function settingsOf(text) {
  const found = { ...DATA.start }, wrong = [], given = new URLSearchParams(text.slice(1));
  for (const size of SIZES) {
    if (!given.has(size.id)) continue;
    const value = whole(size, given.get(size.id));
    if (value === null) wrong.push(size.id);
    else found[size.id] = value;
  }
  const choices = { reads: ["tokens", "vectors"], shared: ["yes", "no"] };
  for (const [name, allowed] of Object.entries(choices)) {
    if (!given.has(name)) continue;
    if (!allowed.includes(given.get(name))) wrong.push(name);
    else found[name] = name === "shared" ? given.get(name) === "yes" : given.get(name);
  }
  return { found, wrong };
}

// An address that names no setting (the link to the content, "#main") changes none.
const speaks = (text) => text.length < 2 || [...SIZES.map(({ id }) => id), "reads", "shared"].some((name) => new URLSearchParams(text.slice(1)).has(name));

// One entry of the browser's history for a movement, not for each of its steps.
let later = null;
function keep() {
  clearTimeout(later);
  later = null;
  if (location.hash !== address(settings)) history.pushState(null, "", address(settings));
}
function changed() {
  $("ignored").textContent = "";
  clearTimeout(later);
  later = setTimeout(keep, 400);
  show();
}
function change(some) {
  Object.assign(settings, some);
  changed();
  keep();
  write();
}

// Sliders are logarithmic: position 0..1000 between low and high.
const toSlider = (size, value) => Math.round(1000 * Math.log(value / size.low) / Math.log(size.high / size.low));
const fromSlider = (size, at) => Math.round(size.low * (size.high / size.low) ** (at / 1000));
const say = (size) => $(`range-${size.id}`).setAttribute("aria-valuetext", count(settings[size.id]));
for (const size of SIZES) {
  const range = make("input", { type: "range", min: 0, max: 1000, id: `range-${size.id}`, "aria-label": size.label });
  const number = make("input", { type: "number", min: size.low, max: size.high, step: 1, id: `number-${size.id}`, "aria-label": `${size.label}, exactly` });
  range.addEventListener("input", () => { settings[size.id] = fromSlider(size, Number(range.value)); number.value = settings[size.id]; say(size); changed(); });
  number.addEventListener("input", () => {
    const value = whole(size, number.value);
    if (value === null) { $("problem").textContent = `${size.label} must be a whole number of at least ${size.low} and at most ${count(size.high)}.`; return; }
    settings[size.id] = value;
    range.value = toSlider(size, value);
    say(size); changed();
  });
  $("sliders").append(make("div", { class: "slider" }, make("label", { for: `range-${size.id}` }, size.label), make("div", { class: "two" }, range, number)));
}

// The controls as the settings are.
function write() {
  for (const size of SIZES) {
    $(`range-${size.id}`).value = toSlider(size, settings[size.id]);
    $(`number-${size.id}`).value = settings[size.id];
    say(size);
  }
  $("shared").checked = settings.shared;
}
for (const kind of ["tokens", "vectors"]) $(kind).addEventListener("click", () => change({ reads: kind }));
$("shared").addEventListener("change", () => change({ shared: $("shared").checked }));

// Models by name, and "yours": the sizes that are nobody's, those last entered.
let yours = DATA.yours;
const named = (s) => DATA.presets.find(({ sizes }) => Object.keys(sizes).every((id) => sizes[id] === s[id]));
const presets = [...DATA.presets, { name: "yours" }].map((preset) => {
  const button = make("button", { type: "button" }, preset.name);
  button.addEventListener("click", () => change(preset.sizes ?? yours));
  return { name: preset.name, button };
});
$("presets").append(...presets.map(({ button }) => button));

function showChoices() {
  const known = named(settings);
  if (!known) yours = Object.fromEntries(Object.keys(yours).map((id) => [id, settings[id]]));
  for (const { name, button } of presets) button.setAttribute("aria-pressed", name === (known ? known.name : "yours"));
  for (const kind of ["tokens", "vectors"]) $(kind).setAttribute("aria-pressed", settings.reads === kind);
  $("shared").parentElement.hidden = settings.reads !== "vectors";
  return known;
}

const fill = (id, rows) => $(id).querySelector("tbody").replaceChildren(...rows);
const cell = (text, attributes = {}) => make("td", attributes, text);

// Rows that stand as cards on a narrow screen: every cell knows the head of its column.
function row(id, cells) {
  const heads = $(id).querySelectorAll("th");
  cells.forEach((one, k) => { one.setAttribute("role", "cell"); one.dataset.head = heads[k].textContent; });
  return make("tr", { role: "row" }, ...cells);
}
const theorem = (b) => make("td", {}, b.id, make("small", { class: "quiet title" }, TITLES.get(b.id)));
const TITLES = new Map(theory.BOUNDS.map((b) => [b.id, b.statement.title]));

function show() {
  const known = showChoices(), found = explore(settings);
  $("problem").textContent = found.error || found.size_error || "";
  $("spec").replaceChildren();
  if (found.parameters !== null) $("spec").append(make("b", {}, `${many(found.parameters)} parameters`), settings.reads === "vectors" ? " in this layer, which reads given vectors." : " in this one-layer attention-only Transformer, embeddings included.");
  if (known) $("spec").append(` ${known.name} has ${known.layers} layers of these sizes; the theorems speak of one bare attention layer: no layer norm, bias or feed-forward layer.`);
  const good = found.bounds.filter((b) => b.applies === true), other = found.bounds.filter((b) => b.applies !== true);
  fill("bounds", good.map((b) => {
    const verdict = b.holds === true ? ["fit", "yes"] : b.holds === false ? ["cannot fit", "no"] : ["", ""];
    return row("bounds", [theorem(b), cell(`${SIGN[b.kind] ?? ""}${many(b.capacity)} ${b.unit}`, { class: "n" }), cell(verdict[0], { class: verdict[1] }), cell(many(b.parameters), { class: "n" }), cell(`${b.kind}${b.note ? `; ${b.note}` : ""}`, { class: "quiet" })]);
  }));
  fill("others", other.map((b) => row("others", [theorem(b), cell(b.reason, { class: "quiet" })])));
  $("others-title").textContent = `${other.length} other theorems, and why they do not apply`;
  chart(good.filter((b) => b.unit === "facts" && b.capacity !== null));
  const most = Math.max(1, ...found.sizes.map((r) => Math.log10(Number(r.parameters))));
  fill("sized", found.sizes.map((r) => {
    const bar = svg("svg", { viewBox: "0 0 200 14", preserveAspectRatio: "none", class: "bar", role: "img", "aria-label": `${r.title}: ${many(r.parameters)} parameters` }, svg("rect", { class: "size", x: 0, y: 2, width: Math.max(2, 200 * Math.log10(Number(r.parameters)) / most), height: 10 }));
    const sizes = [...r.sizes].map(([k, v]) => `${k} = ${many(v)}`).join(", ");
    return row("sized", [cell(r.title), cell(many(r.parameters), { class: "n" }), cell(bar), cell(short(r.facts_per_parameter), { class: "n" }), cell(sizes, { class: "quiet" }), cell(r.note, { class: "quiet" })]);
  }));
}

function chart(rows) {
  const holder = $("chart");
  if (!rows.length) { holder.replaceChildren(make("p", { class: "quiet" }, "No theorem counts facts for these sizes.")); return; }
  // On a narrow screen the names stand above their bars.
  const narrow = holder.clientWidth < 600, T = settings.T, step = narrow ? 42 : 26, left = narrow ? 6 : 262;
  const W = narrow ? 420 : 900, height = rows.length * step + 40;
  const top = Math.ceil(Math.log10(Math.max(T, ...rows.map((r) => Number(r.capacity)), 10)));
  const x = (v) => left + (Math.log10(Math.max(1, Number(v))) / top) * (W - left - 90);
  const picture = svg("svg", { viewBox: `0 0 ${W} ${height}`, role: "img", "aria-label": rows.map((r) => `${r.id}: ${many(r.capacity)} facts`).join("; ") });
  for (let p = 0; p <= top; p += Math.max(1, Math.ceil(top / (narrow ? 4 : 8)))) {
    const tick = svg("text", { x: x(10 ** p), y: height - 6, "text-anchor": "middle", class: "quiet" });
    tick.textContent = p < 4 ? count(10 ** p) : `10^${p}`;
    picture.append(svg("line", { class: "gridline", x1: x(10 ** p), x2: x(10 ** p), y1: 0, y2: height - 22 }), tick);
  }
  rows.forEach((r, k) => {
    const y = k * step + (narrow ? 18 : 4), lower = r.kind === "lower bound";
    const name = narrow ? svg("text", { x: left, y: y - 4 }) : svg("text", { x: left - 8, y: y + 15, "text-anchor": "end" }), value = svg("text", { x: x(r.capacity) + 6, y: y + 15 });
    name.textContent = r.id;
    value.textContent = `${SIGN[r.kind] ?? ""}${many(r.capacity)}`;
    const bar = svg("rect", { class: lower ? "lower" : r.kind === "measurement" ? "size" : "upper", x: left, y: y + 2, width: Math.max(1, x(r.capacity) - left), height: 16 });
    bar.addEventListener("pointermove", (e) => tell(`${r.id} (${r.kind}): ${many(r.capacity)} facts${r.note ? `\n${r.note}` : ""}`, e.clientX, e.clientY));
    bar.addEventListener("pointerleave", hush);
    picture.append(bar, name, value);
  });
  const mine = svg("line", { class: "axis", x1: x(T), x2: x(T), y1: 0, y2: height - 22, "stroke-width": 2 });
  const label = svg("text", { x: x(T) + 4, y: height - 24, class: "quiet" });
  label.textContent = `${count(T)} facts`;
  picture.append(mine, label);
  holder.replaceChildren(picture);
}
// At the start, and when the address changes: by hand, or back and forward.
function open() {
  if (!speaks(location.hash)) return;
  const { found, wrong } = settingsOf(location.hash);
  clearTimeout(later);
  Object.assign(settings, found);
  write();
  show();
  $("ignored").textContent = wrong.length ? `Left out of what the address asks for, because it is not a size that this page knows: ${wrong.join(", ")}.` : "";
}
Object.assign(settings, DATA.start);
write();
show();
open();
addEventListener("hashchange", open);
let wide = innerWidth;
addEventListener("resize", () => { if (innerWidth !== wide) { wide = innerWidth; show(); } });
