// The page of an audit: what a cell means, and the numbers from layer to layer.
for (const cell of document.querySelectorAll("td[data-words]")) {
  const say = (e) => { const b = cell.getBoundingClientRect(); tell(cell.dataset.words, e.clientX || b.left, e.clientY || b.top); };
  cell.addEventListener("pointermove", say);
  cell.addEventListener("focus", say);
  cell.addEventListener("pointerleave", hush);
  cell.addEventListener("blur", hush);
}
const numeric = DATA.columns.filter((c, i) => c !== "weights" && DATA.rows.some((r) => typeof r[i] === "number"));
rowChart($("chart"), { columns: DATA.columns, rows: DATA.rows, numeric, parameters: [], x: "layer", y: numeric.includes("saturated heads") ? "saturated heads" : "Q", logs: [false, false], lines: [], split: ["weights"], filter: null });
