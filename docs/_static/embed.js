"use strict";
// The explorer on the home page: as high as what it shows, in the colours of the site.
const frame = document.getElementById("explorer");
const dark = matchMedia("(prefers-color-scheme: dark)");

function sendTheme() {
  const chosen = document.body.dataset.theme;
  const theme = chosen === "dark" || (chosen !== "light" && dark.matches) ? "dark" : "light";
  frame.contentWindow.postMessage({theme}, "*");
}

addEventListener("message", event => {
  if (event.source !== frame.contentWindow) return;
  if (event.data.height) frame.style.height = `${event.data.height + 2}px`;
  if (event.data.isReady) sendTheme();
});
new MutationObserver(sendTheme).observe(document.body, {attributes: true, attributeFilter: ["data-theme"]});
dark.addEventListener("change", sendTheme);
