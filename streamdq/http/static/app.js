// What the pages do beyond forms and links. They work without it: it keeps them live, and saves clicks.
"use strict";

const state = document.getElementById("live-state");

// A screen reader reads it out when it is written, be it the same as before.
function tell(word, text) {
  if (state.dataset.state === word) return;
  state.dataset.state = word;
  state.textContent = text;
}

// A region is not replaced while someone works in it; a column's head that was pressed is no work.
function busy(region) {
  const active = document.activeElement;
  return (region.contains(active) && !active.matches("button.sort"))
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

// Times come as UTC; the reader may have them in the zone of the browser, which is remembered.
const two = (number) => String(number).padStart(2, "0");
let local = false;
try { local = localStorage.getItem("streamdq-zone") === "local"; } catch { /* no storage: UTC */ }

function written(ms, parts) {
  const at = new Date(ms);
  const of = local
    ? [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds()]
    : [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()];
  const clock = `${two(of[3])}:${two(of[4])}`;
  if (parts === "clock") return clock;
  return `${of[0]}-${two(of[1])}-${two(of[2])} ${clock}:${two(of[5])}.${String(at.getMilliseconds()).padStart(3, "0")}`;
}

function showTimes() {
  const zone = local ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC";
  for (const time of document.querySelectorAll("time[data-ms]")) {
    const ms = Number(time.dataset.ms);
    if ("relative" in time.dataset) time.title = `${written(ms)} ${zone}`;
    else time.textContent = written(ms, "clock" in time.dataset ? "clock" : "");
  }
  document.getElementById("zone").textContent = zone;
  zoneSwitch.textContent = local ? "Show UTC" : "Show local times";
}

const zoneSwitch = document.getElementById("zone-switch");
zoneSwitch.hidden = false;
zoneSwitch.addEventListener("click", () => {
  local = !local;
  try { localStorage.setItem("streamdq-zone", local ? "local" : "utc"); } catch { /* not remembered */ }
  showTimes();
});

// Tables are sorted by a column when its head is pressed; once more turns it round. What is new is sorted likewise.
const orders = new Map();

function valueIn(row, column) {
  const cell = row.cells[column];
  if (cell === undefined) return "";
  const text = cell.dataset.sort ?? cell.textContent.trim();
  const number = Number(text.replace(/[\s,]/g, ""));
  return text !== "" && !Number.isNaN(number) ? number : text.toLowerCase();
}

function sortTable(table) {
  const order = orders.get(table.caption.textContent);
  if (!order) return;
  const compare = (a, b) => (typeof a === typeof b ? (a < b ? -1 : Number(a > b)) : typeof a === "number" ? -1 : 1);
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => order.sign * compare(valueIn(a, order.column), valueIn(b, order.column)));
  table.tBodies[0].append(...rows);
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (column === order.column) head.setAttribute("aria-sort", order.sign > 0 ? "ascending" : "descending");
    else head.removeAttribute("aria-sort");
  });
}

function prepareTables() {
  for (const table of document.querySelectorAll("table[data-sortable]")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.querySelector("button, input") || !head.textContent.trim()) return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = head.textContent;
      button.addEventListener("click", () => {
        const name = table.caption.textContent, before = orders.get(name);
        const numbers = head.classList.contains("num");
        const sign = before?.column === column ? -before.sign : numbers ? -1 : 1;
        orders.set(name, { column, sign });
        sortTable(table);
      });
      head.replaceChildren(button);
    });
    sortTable(table);
  }
}

// Buttons that act on ticked rows wait until there are some.
function prepare() {
  showTimes();
  prepareTables();
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
