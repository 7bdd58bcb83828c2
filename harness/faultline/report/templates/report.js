"use strict";
// Only comfort: copying, sorting, filtering, and unfolding for print. Everything can be read without it.
for (const line of document.querySelectorAll(".line")) {
  if (!navigator.clipboard) break;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "copy";
  button.onclick = () => navigator.clipboard.writeText(line.querySelector("pre").textContent.trim()).then(() => {
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  });
  line.append(button);
}
for (const head of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  button.onclick = () => {
    const column = head.cellIndex, body = head.closest("table").tBodies[0];
    const isUp = head.getAttribute("aria-sort") !== "ascending";
    const text = (row) => row.cells[column].textContent.trim(), number = (row) => Number(row.cells[column].dataset.sort);
    const isNumber = body.rows.length > 0 && "sort" in body.rows[0].cells[column].dataset;
    const compare = (a, b) => isNumber ? number(a) - number(b) : text(a).localeCompare(text(b), "en", { numeric: true });
    const rows = [...body.rows].sort((a, b) => compare(a, b) * (isUp ? 1 : -1));
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
    body.append(...rows);
  };
  head.append(button);
}
const cells = document.getElementById("all-cells");
if (cells) {
  const label = document.createElement("label");
  label.className = "filter";
  label.append("filter", Object.assign(document.createElement("input"), { type: "search" }), document.createElement("output"));
  const [input, output] = label.children;
  const items = [...cells.tBodies[0].rows, ...document.querySelectorAll("#certificates details.item")];
  input.oninput = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const item of items) item.hidden = !words.every((word) => item.dataset.words.toLowerCase().includes(word));
    for (const fold of document.querySelectorAll("#certificates > details.fold")) fold.open = words.length > 0;
    output.textContent = words.length ? `${[...cells.tBodies[0].rows].filter((row) => !row.hidden).length} of ${cells.tBodies[0].rows.length}` : "";
  };
  cells.closest(".card").before(label);
}
// What a link names may lie folded.
const reveal = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let part = target; part; part = part.parentElement) if (part.localName === "details") part.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const item of unfolded) item.open = true;
});
addEventListener("afterprint", () => { for (const item of unfolded) item.open = false; });
