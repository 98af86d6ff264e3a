"use strict";
// A table that is wider than its column becomes a list of cards, with the headings beside the values.
function fit(wrapper) {
  const table = wrapper.querySelector("table");
  table.classList.remove("stacked");
  table.classList.toggle("stacked", wrapper.scrollWidth > wrapper.clientWidth + 1);
}

// Of a long list of cards the first ones, until a button shows all.
const MAX_CARDS = 12;
function fold(wrapper) {
  const table = wrapper.querySelector("table"), count = table.tBodies[0]?.rows.length ?? 0;
  if (count <= MAX_CARDS) return;
  const button = document.createElement("button");
  button.className = "all-cards";
  button.textContent = `show all ${count} rows`;
  button.addEventListener("click", () => table.classList.remove("folded"));
  table.classList.add("folded");
  table.after(button);
}

// A narrow cell breaks before ± and not after it.
function keepTogether(cell) {
  const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll("± ", "±\u00a0");
}

document.addEventListener("DOMContentLoaded", () => {
  const wrappers = [...document.querySelectorAll(".table-wrapper")].filter(each => each.querySelector("thead"));
  for (const wrapper of wrappers) {
    const headings = [...wrapper.querySelectorAll("thead th")].map(cell => cell.textContent.trim());
    for (const cell of wrapper.querySelectorAll("td")) keepTogether(cell);
    for (const row of wrapper.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, place) => { cell.dataset.heading = headings[place] || ""; });
    }
  }
  wrappers.forEach(fold);
  const fitAll = () => wrappers.forEach(fit);
  let width = 0;
  new ResizeObserver(() => {
    if (innerWidth !== width) { width = innerWidth; fitAll(); }
  }).observe(document.body);
  fitAll();
  window.MathJax?.startup?.promise?.then(fitAll);
});
