"use strict";
document.documentElement.classList.add("js");
for (const table of document.querySelectorAll("table.data")) {
  const body = table.tBodies[0], rows = [...body.rows], tools = table.parentElement.previousElementSibling;
  const number = text => { const found = text.replace("−", "-").match(/-?\d+(\.\d+)?(e[-+]?\d+)?/); return found ? +found[0] : NaN; };
  table.tHead.addEventListener("click", event => {
    const head = event.target.closest("th"), column = head.cellIndex, up = head.ariaSort !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.ariaSort = null;
    head.ariaSort = up ? "ascending" : "descending";
    const text = row => row.cells[column].textContent, filled = rows.filter(text), empty = rows.filter(row => !text(row));
    const numbers = filled.every(row => /^[≤≥≈~[\s]*[-−]?\d/.test(text(row)));
    const order = (a, b) => numbers ? number(text(a)) - number(text(b)) : text(a).localeCompare(text(b));
    body.append(...filled.sort((a, b) => up ? order(a, b) : order(b, a)), ...empty);
  });
  for (const head of table.tHead.rows[0].cells) head.tabIndex = 0;
  table.tHead.addEventListener("keydown", event => { if (event.key === "Enter") event.target.click(); });
  tools.querySelector("input").addEventListener("input", event => {
    const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every(word => row.textContent.toLowerCase().includes(word));
    tools.querySelector(".count").textContent = words.length ? `${rows.filter(row => !row.hidden).length} of ${rows.length} rows` : "";
  });
}
