// The page of studies: a chart, a table and a download for each.
function csv(study) {
  const quote = (v) => { const t = v === null ? "" : String(v); return /[",\r\n]/.test(t) ? `"${t.replaceAll('"', '""')}"` : t; };
  const constants = Object.entries(study.constants), head = ["study", ...study.columns, ...constants.map(([k]) => k)];
  const lines = study.rows.map((row) => [study.name, ...row, ...constants.map(([, v]) => v)].map(quote).join(","));
  return [head.map(quote).join(","), ...lines].join("\n") + "\n";
}

DATA.studies.forEach((study, i) => {
  if (study.x && study.y) rowChart($(`chart-${i}`), { ...study, split: ["variant", "experiment", ...study.parameters].filter((c) => study.columns.includes(c)), filter: "variant" });
  else $(`chart-${i}`).append(make("p", { class: "quiet" }, "These rows have no two numbers to draw."));
  const [head, body] = [$(`rows-${i}`).querySelector("thead"), $(`rows-${i}`).querySelector("tbody")];
  const number = study.columns.map((_, c) => study.rows.some((r) => typeof r[c] === "number"));
  head.append(make("tr", {}, ...study.columns.map((c, k) => make("th", { class: number[k] ? "n" : null }, shown(c)))));
  const SHOWN = 300;
  for (const row of study.rows.slice(0, SHOWN)) body.append(make("tr", {}, ...row.map((v, k) => make("td", { class: number[k] ? "n" : "text" }, v === null ? "" : typeof v === "number" ? short(v, 5) : shown(v)))));
  const left = study.all > study.rows.length ? `; ${count(study.all - study.rows.length)} more are in the store only` : "";
  $(`kept-${i}`).textContent = `${count(study.rows.length)} rows in this page${left}${study.rows.length > SHOWN ? `, the first ${SHOWN} shown` : ""}.`;
  $(`download-${i}`).addEventListener("click", () => {
    const link = make("a", { href: URL.createObjectURL(new Blob([csv(study)], { type: "text/csv" })), download: `${study.name.replaceAll("/", "-")}.csv` });
    document.body.append(link);
    link.click();
    link.remove();
  });
});
