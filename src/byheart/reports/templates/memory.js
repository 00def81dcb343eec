// The page of a memory: the list of facts, the parts of one margin, the head map, the margins.
const F = DATA.facts, SPLIT = DATA.split, MAP = DATA.map;

if (F) {
  const keys = unpack(F.keys), answers = unpack(F.answers), margins = unpack(F.margins);
  const right = unpack(F.right), rows = unpack(F.rows), labels = unpack(F.labels);
  const S = F.S, ROW = 30;

  const tokenAt = (i, s) => F.tokens[keys[i * S + s]];
  const keyOf = (i) => F.vectors ? [`example ${rows[i]}`]
    : Array.from({ length: S }, (_, s) => s).filter((s) => keys[i * S + s] !== F.pad).map((s) => tokenAt(i, s));
  const answerOf = (i) => {
    if (!F.vectors) return F.tokens[answers[i]];
    if (F.classes !== null) return `class ${labels[i]}`;
    const kept = Math.min(F.width, 4);
    return Array.from(labels.slice(i * kept, (i + 1) * kept), (v) => short(v, 4)).join(", ") + (F.width > kept ? ", …" : "");
  };
  const line = (i) => `${keyOf(i).map(shown).join(" · ")} → ${shown(answerOf(i))}`;

  // Only the rows in sight exist as elements, so that 20,000 facts scroll like twenty.
  const list = $("list"), sizer = $("sizer"), search = $("search");
  let order = Int32Array.from({ length: F.count }, (_, i) => i), chosen = 0;
  const lower = F.vectors ? null : F.tokens.map((t) => t.toLowerCase());

  function draw() {
    const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
    const last = Math.min(order.length, first + Math.ceil(list.clientHeight / ROW) + 10);
    const made = [];
    for (let at = first; at < last; at++) {
      const i = order[at];
      const node = make("div", { class: right[i] ? "row" : "row lost", role: "option", id: `row-${at}`, "aria-selected": at === chosen, "aria-setsize": order.length, "aria-posinset": at + 1 });
      node.style.top = `${at * ROW}px`;
      node.dataset.at = at;
      node.append(make("span", {}, line(i)), make("span", { class: "n" }, right[i] ? (margins ? short(margins[i]) : "exact") : "lost"));
      made.push(node);
    }
    sizer.replaceChildren(...made);
    if (order.length) list.setAttribute("aria-activedescendant", `row-${chosen}`);
  }

  function choose(at, show = true) {
    if (!order.length) { $("detail").replaceChildren(make("p", { class: "quiet" }, "No fact matches.")); return; }
    chosen = Math.max(0, Math.min(order.length - 1, at));
    if (show) {
      const top = chosen * ROW;
      if (top < list.scrollTop) list.scrollTop = top;
      if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    }
    draw();
    explain(order[chosen]);
  }

  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = [];
    if (F.vectors) {
      for (let i = 0; i < F.count; i++) { const text = line(i).toLowerCase(); if (words.every((w) => text.includes(w))) kept.push(i); }
    } else {
      // Each token is looked at once, not each fact.
      const hits = words.map((w) => lower.map((t) => t.includes(w)));
      for (let i = 0; i < F.count; i++) {
        if (hits.every((hit) => { if (hit[answers[i]]) return true; for (let s = 0; s < S; s++) if (hit[keys[i * S + s]]) return true; return false; })) kept.push(i);
      }
    }
    order = kept;
    sizer.style.height = `${order.length * ROW}px`;
    list.style.height = `${Math.max(2, order.length) * ROW + 2}px`;  // at most what the style allows
    $("found").textContent = words.length ? `${count(order.length)} of ${count(F.count)}` : `${count(F.count)} fact${F.count === 1 ? "" : "s"}`;
    list.scrollTop = 0;
    choose(0);
  }

  list.addEventListener("scroll", () => requestAnimationFrame(draw), { passive: true });
  list.addEventListener("click", (e) => { const node = e.target.closest(".row"); if (node) choose(Number(node.dataset.at), false); });
  const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 };
  list.addEventListener("keydown", (e) => { if (e.key in moves) { e.preventDefault(); choose(chosen + moves[e.key]); } });
  search.addEventListener("input", find);
  search.addEventListener("keydown", (e) => { if (e.key === "ArrowDown") { e.preventDefault(); list.focus(); } });
  addEventListener("keydown", (e) => { if (e.key === "/" && document.activeElement !== search) { e.preventDefault(); search.focus(); } });
  new ResizeObserver(draw).observe(list);

  // One fact: what the skip and each head add, and where each head looks.
  let split = null;
  function splits() {
    split ??= { heads: unpack(SPLIT.heads), parts: unpack(SPLIT.parts), attention: unpack(SPLIT.attention), skip: unpack(SPLIT.skip), rest: unpack(SPLIT.rest), runners: unpack(SPLIT.runners) };
    return split;
  }

  function explain(i) {
    const detail = $("detail");
    const title = make("h3", { class: "text" }, line(i));
    const parts = [title];
    if (DATA.distribution) parts.push(distribution(i));
    if (!right[i]) parts.push(make("p", { class: "no" }, "This fact is lost: the memory answers something else."));
    if (SPLIT) parts.push(...additive(i));
    else parts.push(make("p", { class: "quiet" }, margins ? `Margin ${short(margins[i])}: the right answer minus the next best.` : "The network outputs exactly this answer's class."));
    detail.replaceChildren(...parts);
  }

  function additive(i) {
    const s = splits(), K = SPLIT.K, P = SPLIT.positions.length;
    const total = margins && !(F.vectors && F.classes === null) ? margins[i] : null;
    const name = SPLIT.runner_names[s.runners[i]], runner = F.vectors ? `class ${name}` : name;
    const items = [];
    for (let k = 0; k < K; k++) {
      const head = s.heads[i * K + k];
      if (head === 65535 || head < 0) continue;
      items.push({ name: `head ${head}`, value: s.parts[i * K + k], seen: Array.from(s.attention.slice((i * K + k) * P, (i * K + k + 1) * P), (v) => v / 255) });
    }
    const others = SPLIT.own - items.length;
    const all = [...items];
    if (others > 0) all.push({ name: `${others} more head${others === 1 ? "" : "s"}`, value: s.rest[i] });
    if (Math.abs(s.skip[i]) > 1e-9 || !F.vectors) all.push({ name: F.vectors ? "bias" : "skip", value: s.skip[i] });
    const sum = all.reduce((a, b) => a + b.value, 0);
    const words = F.vectors && F.classes === null
      ? `The label is the sum of what the heads write${F.width > 1 ? ` (coordinate ${name})` : ""}:`
      : `${DATA.distribution ? "The likeliest answer" : "The right answer"} is ${short(total ?? sum)} ahead of ${shown(runner)}. That lead is the sum of these parts:`;
    const own = SPLIT.own < SPLIT.H ? `${SPLIT.own} of ${count(SPLIT.H)} heads belong to this fact's shard; all others are silent on it.` : null;
    return [make("p", { class: "text" }, words), waterfall(all, sum), ...(own ? [make("p", { class: "small quiet" }, own)] : []),
      make("h3", {}, "Where these heads look"), looks(i, items)];
  }

  function waterfall(all, sum) {
    const step = 21, height = (all.length + 1) * step + 8, left = 112, width = 460, right = 72;
    let low = 0, high = 0, run = 0;
    for (const item of all) { run += item.value; low = Math.min(low, run); high = Math.max(high, run); }
    const x = (v) => left + ((v - low) / (high - low || 1)) * (width - left - right);
    const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": all.map((a) => `${a.name} ${short(a.value)}`).join(", ") + `; sum ${short(sum)}` });
    picture.append(svg("line", { class: "axis", x1: x(0), x2: x(0), y1: 0, y2: height }));
    run = 0;
    [...all, { name: "sum", value: sum, sum: true }].forEach((item, k) => {
      const from = item.sum ? 0 : run, to = item.sum ? sum : run + item.value;
      const bar = svg("rect", { class: item.sum ? "sum" : item.value < 0 ? "minus" : "plus", x: Math.min(x(from), x(to)), y: k * step + 4, width: Math.max(1, Math.abs(x(to) - x(from))), height: step - 7 });
      const name = svg("text", { x: left - 8, y: k * step + 16, "text-anchor": "end" }), number = svg("text", { x: width, y: k * step + 16, "text-anchor": "end" });
      name.textContent = item.name;
      number.textContent = (item.value >= 0 ? "+" : "−") + short(Math.abs(item.value));
      picture.append(bar, name, number);
      if (!item.sum) run = to;
    });
    return picture;
  }

  function looks(i, items) {
    const P = SPLIT.positions.length, few = P <= 8;
    const names = SPLIT.positions.map((p) => (typeof p === "number" ? shown(tokenAt(i, p)) : p));
    const cell = few ? Math.min(110, 340 / P) : 340 / P, step = 18, top = few ? 22 : 18, left = 62;
    const picture = svg("svg", { viewBox: `0 0 410 ${top + items.length * step + 4}`, role: "img", "aria-label": `Attention of ${items.length} heads over ${P} positions` });
    names.forEach((name, p) => {
      if (!few && p !== 0 && p !== P - 1) return;
      const label = svg("text", { x: left + (p + (few ? 0.5 : p ? 1 : 0)) * cell, y: 14, "text-anchor": few ? "middle" : p ? "end" : "start", class: "quiet" });
      const room = few ? Math.max(4, Math.floor(cell / 7)) : 20;
      label.textContent = name.length > room ? `${name.slice(0, room - 1)}…` : name;
      picture.append(label);
    });
    items.forEach((item, k) => {
      const label = svg("text", { x: left - 6, y: top + k * step + 13, "text-anchor": "end", class: "quiet" });
      label.textContent = item.name.replace("head ", "h ");
      picture.append(label);
      item.seen.forEach((a, p) => {
        const box = svg("rect", { class: "seen", x: left + p * cell, y: top + k * step, width: Math.max(1, cell - 1), height: step - 2, "fill-opacity": Math.max(0.04, a) });
        box.addEventListener("pointermove", (e) => tell(`${item.name} gives ${(100 * a).toFixed(0)} % of its attention to ${names[p]}`, e.clientX, e.clientY));
        box.addEventListener("pointerleave", hush);
        picture.append(box);
      });
    });
    return picture;
  }

  let mass = null;
  function distribution(i) {
    const D = DATA.distribution;
    mass ??= { ids: unpack(D.ids), stored: unpack(D.stored), recalled: unpack(D.recalled) };
    const body = make("tbody");
    for (let k = 0; k < D.top; k++) {
      const at = i * D.top + k;
      body.append(make("tr", {}, make("td", { class: "text" }, shown(D.names[mass.ids[at]])), make("td", { class: "n" }, mass.stored[at].toFixed(4)), make("td", { class: "n" }, mass.recalled[at].toFixed(4))));
    }
    return make("table", {}, make("thead", {}, make("tr", {}, make("th", {}, "answer"), make("th", { class: "n" }, "stored"), make("th", { class: "n" }, "recalled"))), body);
  }

  if (F.bins && $("histogram")) histogram(F.bins);
  function histogram(bins) {
    const W = 760, H = 190, left = 46, bottom = 34, top = 12, n = bins.counts.length, most = Math.max(...bins.counts);
    const range = `Smallest ${short(bins.least, 4)}, largest ${short(bins.most, 4)}.`;
    if (bins.most - bins.least <= 0.02 * Math.abs(bins.most) && bins.least > 0) {  // one spike says nothing
      $("histogram-words").textContent = `${range} All lie within ${short(100 * (bins.most - bins.least) / bins.most, 2)} % of each other.`;
      return;
    }
    const far = bins.low > 0.5 * bins.high;
    $("histogram-words").textContent = range + (far ? " Zero lies left of the picture." : "");
    const low = far ? bins.low : Math.min(bins.low, 0), high = bins.high, x = (v) => left + ((v - low) / (high - low)) * (W - left - 10);
    const picture = svg("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Histogram of margins from ${short(bins.low)} to ${short(bins.high)}` });
    const width = (bins.high - bins.low) / n;
    bins.counts.forEach((c, k) => {
      const from = bins.low + k * width, height = c ? Math.max(1.5, (c / most) * (H - bottom - top)) : 0;
      const bar = svg("rect", { class: from + width <= 0 ? "minus" : "plus", x: x(from), y: H - bottom - height, width: Math.max(1, x(from + width) - x(from) - 1), height });
      bar.addEventListener("pointermove", (e) => tell(`${count(c)} facts between ${short(from)} and ${short(from + width)}`, e.clientX, e.clientY));
      bar.addEventListener("pointerleave", hush);
      picture.append(bar);
    });
    picture.append(svg("line", { class: "axis", x1: left, x2: W - 10, y1: H - bottom, y2: H - bottom }));
    for (const [v, anchor] of [[low, "start"], [(low + high) / 2, "middle"], [high, "end"]]) {
      const label = svg("text", { x: x(v), y: H - 16, "text-anchor": anchor, class: "quiet" });
      label.textContent = short(v);
      picture.append(label);
    }
    const axis = svg("text", { x: W / 2, y: H - 2, "text-anchor": "middle", class: "quiet" }), peak = svg("text", { x: left - 6, y: top + 8, "text-anchor": "end", class: "quiet" });
    axis.textContent = "margin";
    peak.textContent = count(most);
    picture.append(axis, peak);
    $("histogram").append(picture);
  }

  if (MAP) headMap();
  function headMap() {
    const canvas = $("map"), cells = unpack(MAP.cells), lost = unpack(MAP.lost), facts = unpack(MAP.rows);
    const W = MAP.width, H = MAP.height, g = canvas.getContext("2d");
    canvas.width = W; canvas.height = H;
    if (H < 16) canvas.style.height = `${30 * H}px`;  // few facts need no tall picture
    const index = unpack(MAP.index);  // places in the list, -1 where it holds a sample without the fact
    let at = [0, 0], cursor = false;
    function paint() {
      const image = g.createImageData(W, H);
      for (let k = 0; k < W * H; k++) { const [r, b, c] = hue(cells[k] / 127); image.data.set([r, b, c, 255], 4 * k); }
      g.putImageData(image, 0, 0);
      if (cursor) { g.fillStyle = DARK.matches ? "rgba(255,255,255,.28)" : "rgba(0,0,0,.22)"; g.fillRect(0, at[1], W, 1); g.fillRect(at[0], 0, 1, H); }
      const scale = $("scale"), s = scale.getContext("2d");
      scale.width = 101; scale.height = 1;
      for (let k = 0; k <= 100; k++) { s.fillStyle = `rgb(${hue((k - 50) / 50).join(",")})`; s.fillRect(k, 0, 1, 1); }
      $("scale-text").textContent = `${short(MAP.scale)} or more`;
    }
    function words([x, y]) {
      const value = (cells[y * W + x] / 127) * MAP.scale, bit = y * W + x;
      const gone = (lost[bit >> 3] >> (7 - (bit & 7))) & 1;
      const i = index[y];
      const name = i < 0 ? `fact ${facts[y]}` : line(i);
      const head = MAP.group > 1 ? `heads ${x * MAP.group} to ${Math.min(MAP.heads, (x + 1) * MAP.group) - 1}` : `head ${x}`;
      const size = Math.abs(cells[bit]) === 127 ? `${short(Math.abs(value))} or more` : short(Math.abs(value));
      return `${name}\nwithout ${head}: ${value >= 0 ? "loses" : "gains"} ${size} ${MAP.what}${gone ? "; the fact is lost" : ""}`;
    }
    const under = (e) => { const b = canvas.getBoundingClientRect(); return [Math.max(0, Math.min(W - 1, Math.floor(((e.clientX - b.left) / b.width) * W))), Math.max(0, Math.min(H - 1, Math.floor(((e.clientY - b.top) / b.height) * H)))]; };
    canvas.addEventListener("pointermove", (e) => { at = under(e); tell(words(at), e.clientX, e.clientY); });
    canvas.addEventListener("pointerleave", hush);
    canvas.addEventListener("click", (e) => { at = under(e); select(index[at[1]]); });
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    canvas.addEventListener("keydown", (e) => {
      if (e.key === "Enter") { select(index[at[1]]); return; }
      if (!(e.key in steps)) return;
      e.preventDefault();
      const far = e.shiftKey ? 10 : 1;
      at = [Math.max(0, Math.min(W - 1, at[0] + far * steps[e.key][0])), Math.max(0, Math.min(H - 1, at[1] + far * steps[e.key][1]))];
      cursor = true; paint();
      const b = canvas.getBoundingClientRect();
      tell(words(at), b.left + ((at[0] + 0.5) / W) * b.width, b.top + ((at[1] + 0.5) / H) * b.height);
    });
    canvas.addEventListener("blur", () => { cursor = false; hush(); paint(); });
    DARK.addEventListener("change", paint);
    for (const event of ["beforeprint", "afterprint"]) addEventListener(event, paint);  // paper is light
    paint();
  }

  function select(i) {
    if (i < 0) return;
    search.value = "";
    find();
    choose(i);
    $("facts").scrollIntoView({ block: "start" });
  }

  find();
}
