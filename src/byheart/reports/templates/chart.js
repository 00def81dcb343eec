// A chart of rows: choose the axes, logarithms, what is shown of the seeds; hover a row.
// table: {columns, rows, numeric, parameters, x, y, logs, lines, split, filter}
function rowChart(holder, table) {
  const at = Object.fromEntries(table.columns.map((c, i) => [c, i]));
  const state = { x: table.x, y: table.y, logx: table.logs[0], logy: table.logs[1], seeds: true, mean: true, filter: "", hidden: new Set() };
  const narrow = holder.clientWidth < 600, W = narrow ? 440 : 900, H = narrow ? 330 : 430, left = 66, bottom = 46, top = 14, right = 16;
  const values = (name) => [...new Set(table.rows.map((r) => r[at[name]]))];
  const filters = table.filter && at[table.filter] !== undefined ? values(table.filter) : [];
  if (filters.length > 1) state.filter = filters[0];

  const controls = make("div", { class: "controls" }), legend = make("div", { class: "legend-items", role: "group", "aria-label": "Series" });
  const pick = (label, options, value, set) => {
    const select = make("select", { "aria-label": label });
    for (const [name, text] of options) select.append(make("option", { value: name }, text));
    select.value = value;
    select.addEventListener("change", () => { set(select.value); draw(); });
    controls.append(make("label", {}, label, select));
    return select;
  };
  const tick = (label, value, set) => {
    const box = make("input", { type: "checkbox" });
    box.checked = value;
    box.addEventListener("change", () => { set(box.checked); draw(); });
    controls.append(make("label", {}, box, label));
  };
  const named = table.numeric.map((n) => [n, n]);
  pick("x", named, state.x, (v) => { state.x = v; });
  pick("y", named, state.y, (v) => { state.y = v; });
  if (filters.length > 1) pick(table.filter, [["", "all"], ...filters.map((f) => [f, shown(f)])], state.filter, (v) => { state.filter = v; });
  tick("log x", state.logx, (v) => { state.logx = v; });
  tick("log y", state.logy, (v) => { state.logy = v; });
  if (table.columns.includes("seed")) tick("seeds", state.seeds, (v) => { state.seeds = v; });
  tick("means", state.mean, (v) => { state.mean = v; });
  const place = make("div", { class: "plot", tabindex: 0, role: "group", "aria-label": "Chart of rows; arrow keys go from row to row" });
  holder.append(controls, legend, place);

  // Rows with the same parameters but x and seed belong to one series.
  function series() {
    const kept = table.rows.filter((r) => state.filter === "" || r[at[table.filter]] === state.filter);
    const different = (c) => new Set(kept.map((r) => r[at[c]])).size;
    let apart = table.split.filter((c) => c !== state.x && different(c) > 1), found;
    for (;;) {
      found = new Map();
      for (const row of kept) {
        const x = row[at[state.x]], y = row[at[state.y]];
        if (typeof x !== "number" || typeof y !== "number" || (state.logx && x <= 0) || (state.logy && y <= 0)) continue;
        const name = apart.map((c) => (typeof row[at[c]] === "number" ? `${c} = ${row[at[c]]}` : shown(row[at[c]]))).join(", ") || "all rows";
        if (!found.has(name)) found.set(name, []);
        found.get(name).push({ x, y, row });
      }
      // A size that decides x (heads, where x counts parameters) would leave points, not lines.
      const single = [...found.values()].filter((points) => new Set(points.map((p) => p.x)).size === 1).length;
      const sizes = apart.filter((c) => kept.every((r) => typeof r[at[c]] === "number" || r[at[c]] === null));
      if (2 * single <= found.size || !sizes.length) break;
      const most = sizes.reduce((a, b) => (different(b) > different(a) ? b : a));
      apart = apart.filter((c) => c !== most);
    }
    return [...found].map(([name, points], i) => ({ name, points, colour: `s${i % 9}` }));
  }

  const ticks = (low, high, log) => {
    if (log) {
      const found = [];
      for (let p = Math.floor(Math.log10(low)); p <= Math.ceil(Math.log10(high)); p++) for (const m of [1, 2, 5]) found.push(m * 10 ** p);
      const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
      return inside.length > 9 ? inside.filter((v) => Number.isInteger(Math.log10(v) + 1e-9 - ((Math.log10(v) + 1e-9) % 1)) && /^1/.test(v.toExponential())) : inside;
    }
    const raw = (high - low) / (narrow ? 4 : 6) || 1, unit = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map((m) => m * unit).find((s) => s >= raw);
    const found = [];
    for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-6; v += step) found.push(Number(v.toPrecision(12)));
    return found;
  };

  let dots = [], chosen = -1;
  function draw() {
    const all = series(), visible = all.filter((s) => !state.hidden.has(s.name));
    legend.replaceChildren(...(all.length > 1 ? all.map((s) => {
      const button = make("button", { type: "button", "aria-pressed": !state.hidden.has(s.name) }, svg("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("circle", { class: s.colour, cx: 6, cy: 6, r: 4.5 })), s.name);
      button.addEventListener("click", () => { if (!state.hidden.delete(s.name)) state.hidden.add(s.name); draw(); });
      return button;
    }) : []));
    const points = visible.flatMap((s) => s.points);
    if (!points.length) { place.replaceChildren(make("p", { class: "quiet" }, "No row has these two numbers (logarithms need positive ones).")); dots = []; return; }
    const own = state.x === table.x && state.y === table.y;
    const span = (key, log) => {
      let low = Infinity, high = -Infinity;
      for (const p of points) { low = Math.min(low, p[key]); high = Math.max(high, p[key]); }
      if (!log && key === "y" && low >= 0 && low < 0.5 * high) low = 0;
      if (low === high) { low = log ? low / 2 : low - 0.5 * (Math.abs(low) || 1); high = log ? high * 2 : high + 0.5 * (Math.abs(high) || 1); }
      const pad = log ? (high / low) ** 0.04 : 0.04 * (high - low);
      return log ? [low / pad, high * pad] : [low === 0 ? 0 : low - pad, high + pad];
    };
    const [x0, x1] = span("x", state.logx), [y0, y1] = span("y", state.logy);
    const scale = (v, a, b, log, from, to) => from + ((log ? Math.log(v / a) / Math.log(b / a) : (v - a) / (b - a)) * (to - from));
    const px = (v) => scale(v, x0, x1, state.logx, left, W - right), py_ = (v) => scale(v, y0, y1, state.logy, H - bottom, top);
    const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${state.y} against ${state.x}, ${points.length} rows in ${visible.length} series` });
    for (const v of ticks(x0, x1, state.logx)) { const t = svg("text", { x: px(v), y: H - bottom + 18, "text-anchor": "middle", class: "quiet" }); t.textContent = short(v); picture.append(svg("line", { class: "gridline", x1: px(v), x2: px(v), y1: top, y2: H - bottom }), t); }
    for (const v of ticks(y0, y1, state.logy)) { const t = svg("text", { x: left - 8, y: py_(v) + 4, "text-anchor": "end", class: "quiet" }); t.textContent = short(v); picture.append(svg("line", { class: "gridline", x1: left, x2: W - right, y1: py_(v), y2: py_(v) }), t); }
    const xl = svg("text", { x: (left + W - right) / 2, y: H - 6, "text-anchor": "middle" }), yl = svg("text", { x: 14, y: (H - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(H - bottom) / 2})` });
    xl.textContent = own && table.x_label ? table.x_label : state.x;
    yl.textContent = own && table.y_label ? table.y_label : state.y;
    picture.append(xl, yl);
    const inside = (p) => p[0] >= x0 && p[0] <= x1 && p[1] >= y0 && p[1] <= y1;
    if (own) for (const line of table.lines) {
      const kept = line.points.filter(inside);
      if (kept.length > 1) { const path = svg("polyline", { class: "said", points: kept.map((p) => `${px(p[0])},${py_(p[1])}`).join(" ") }); path.addEventListener("pointermove", (e) => tell(line.name || "bound or fit of the study", e.clientX, e.clientY)); path.addEventListener("pointerleave", hush); picture.append(path); }
    }
    dots = [];
    for (const s of visible) {
      const groups = new Map();
      for (const p of s.points) { if (!groups.has(p.x)) groups.set(p.x, []); groups.get(p.x).push(p.y); }
      const means = [...groups].map(([x, ys]) => { const m = ys.reduce((a, b) => a + b, 0) / ys.length; return { x, m, sd: ys.length > 1 ? Math.sqrt(ys.reduce((a, b) => a + (b - m) ** 2, 0) / (ys.length - 1)) : 0 }; }).sort((a, b) => a.x - b.x);
      if (state.mean) {
        picture.append(svg("polyline", { class: `line ${s.colour}`, points: means.map((p) => `${px(p.x)},${py_(p.m)}`).join(" ") }));
        for (const p of means) if (p.sd > 0 && (!state.logy || p.m - p.sd > 0)) picture.append(svg("line", { class: `line ${s.colour}`, x1: px(p.x), x2: px(p.x), y1: py_(Math.min(y1, p.m + p.sd)), y2: py_(Math.max(y0, p.m - p.sd)) }));
      }
      if (state.seeds) for (const p of s.points) {
        const dot = svg("circle", { class: `dot ${s.colour}`, cx: px(p.x), cy: py_(p.y), r: 3.6, "fill-opacity": 0.55, "stroke-width": 0 });
        const words = table.columns.filter((c) => p.row[at[c]] !== null && p.row[at[c]] !== "").map((c) => `${c} = ${typeof p.row[at[c]] === "number" ? short(p.row[at[c]], 5) : shown(p.row[at[c]])}`).join("\n");
        dot.addEventListener("pointermove", (e) => tell(words, e.clientX, e.clientY));
        dot.addEventListener("pointerleave", hush);
        dots.push({ dot, words });
        picture.append(dot);
      }
    }
    place.replaceChildren(picture);
    chosen = -1;
  }
  place.addEventListener("keydown", (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step || !dots.length) return;
    e.preventDefault();
    if (chosen >= 0) dots[chosen].dot.classList.remove("hot");
    chosen = (chosen + step + dots.length) % dots.length;
    dots[chosen].dot.classList.add("hot");
    const b = dots[chosen].dot.getBoundingClientRect();
    tell(dots[chosen].words, b.left, b.top);
  });
  place.addEventListener("blur", hush);
  draw();
}
