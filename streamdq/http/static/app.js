// What the pages do beyond forms and links. They work without it: it keeps them live, and saves clicks.
"use strict";

const state = document.getElementById("live-state");

// A screen reader reads it out when it is written, be it the same as before.
function tell(word, text) {
  if (state.dataset.state === word) return;
  state.dataset.state = word;
  state.textContent = text;
}

// A region is not replaced while someone works in it.
function busy(region) {
  return region.contains(document.activeElement)
    || region.querySelector("details[open], input:checked") !== null
    || String(window.getSelection()) !== "";
}

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.id !== "live") return;
  if (document.hidden) {
    event.preventDefault();
  } else if (busy(event.target)) {
    event.preventDefault();
    tell("held", "paused while you use the page");
  }
});
document.addEventListener("htmx:afterSwap", () => { tell("live", "live"); prepare(); });
document.addEventListener("htmx:sendError", () => tell("lost", "no connection, trying again"));
document.addEventListener("htmx:responseError", () => tell("lost", "no answer, trying again"));

// Buttons that act on ticked rows wait until there are some.
function prepare() {
  const some = document.querySelector("#chosen td.tick input:checked") !== null;
  for (const button of document.querySelectorAll("[data-needs-choice]")) button.disabled = !some;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("#chosen [data-all]")) {
    for (const box of document.querySelectorAll("#chosen td.tick input")) box.checked = event.target.checked;
  }
  prepare();
});

// "/" goes to the search field, Escape closes what asks for a confirmation.
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    const field = document.querySelector("[data-search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  }
  if (event.key === "Escape") {
    for (const open of document.querySelectorAll("details.confirm[open]")) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  }
});

// One confirmation at a time.
document.addEventListener("toggle", (event) => {
  if (!event.target.matches("details.confirm") || !event.target.open) return;
  for (const other of document.querySelectorAll("details.confirm[open]")) if (other !== event.target) other.open = false;
}, true);

const reload = document.querySelector("[data-reload]");
if (reload) setTimeout(() => location.reload(), Number(reload.dataset.reload) * 1000);
if (document.getElementById("live")) tell("live", "live");
prepare();
