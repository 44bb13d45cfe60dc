// The live table of decisions.

import { json } from "./api.js";
import { $, el, facts, INK, MARKS, place, say, suggestion, time, WORDS } from "./dom.js";

/** How many decisions are kept, and how many of them are rows at once. */
const KEPT = 2000;
const ROWS = 250;

const kept = [];
const known = new Set();
const arrived = { all: 0, deny: 0 };
let held = null;
let drawing = false;

/** What was asked for, as text. */
export function asked(decision) {
  const { scheme, host, port, path, query_bytes: query, shown } = decision.target ?? {};
  if (shown !== undefined) return { before: "", host: shown, after: "" };
  const named = host?.includes(":") ? `[${host}]` : (host ?? "");
  if (!scheme) return { before: "", host: named, after: port ? `:${port}` : "" };
  const usual = { http: 80, https: 443, ws: 80, wss: 443 }[scheme];
  const after = `${port && port !== usual ? `:${port}` : ""}${path ?? ""}${query !== undefined ? `?(${query} bytes)` : ""}`;
  return { before: `${scheme}://`, host: named, after };
}

const input = (decision) => {
  const { before, host, after } = asked(decision);
  return before + host + after.replace(/\?\(\d+ bytes\)$/, "");
};

/** Takes a decision in; those that are here already are left out. */
export function take(decision) {
  if (decision.kind !== "decision" || known.has(decision.event_id)) return;
  known.add(decision.event_id);
  decision.text = input(decision).toLowerCase();
  kept.push(decision);
  while (kept.length > KEPT) known.delete(kept.shift().event_id);
  if (decision.verdict === "report") $("verdict-report").hidden = false;
  arrived.all += 1;
  if (decision.verdict !== "allow") arrived.deny += 1;
  offer($("filter-reason"), decision.reason);
  if (decision.session_id && offer($("filter-session"), decision.session_id)) {
    $("session-label").hidden = $("filter-session").options.length < 3;
  }
  schedule();
}

function offer(select, value) {
  if (!value || [...select.options].some((option) => option.value === value)) return false;
  const option = el("option", { value }, value);
  const after = [...select.options].slice(1).find((other) => other.value > value);
  select.insertBefore(option, after ?? null);
  return true;
}

function schedule() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
  });
}

function filter() {
  const verdict = document.querySelector('input[name="verdict"]:checked').value;
  const text = $("filter-text").value.trim().toLowerCase();
  const [reason, session] = [$("filter-reason").value, $("filter-session").value];
  const is = (decision) =>
    (!verdict || decision.verdict === verdict) &&
    (!reason || decision.reason === reason) &&
    (!session || decision.session_id === session) &&
    (!text || decision.text.includes(text));
  return { is, any: Boolean(verdict || text || reason || session) };
}

function draw() {
  const body = $("decisions-rows");
  const from = held ?? kept;
  const { is, any } = filter();
  const found = from.filter(is);
  const wanted = found.slice(-ROWS).reverse();
  const rows = new Map([...body.querySelectorAll("tr.decision")].map((row) => [row.dataset.id, row]));
  const keep = new Set(wanted.map((decision) => decision.event_id));
  for (const [id, row] of rows) {
    if (!keep.has(id)) {
      if (row.nextElementSibling?.classList.contains("detail")) row.nextElementSibling.remove();
      row.remove();
    }
  }
  // Newest first; what stands there already stays, with whatever is open or has the focus.
  let before = body.firstElementChild;
  for (const decision of wanted) {
    const there = rows.get(decision.event_id);
    if (there) {
      before = there.nextElementSibling;
      if (before?.classList.contains("detail")) before = before.nextElementSibling;
    } else {
      body.insertBefore(line(decision, rows.size > 0), before);
    }
  }
  rove();
  const waiting = held ? kept.length - held.length : 0;
  const shown = any ? `${found.length} of ${from.length}` : `${from.length}`;
  say($("decisions-count"), from.length ? `${shown} kept${waiting > 0 ? `, ${waiting} more since the pause` : ""}` : "");
  empty(from.length, found.length);
}

function empty(all, found) {
  const box = $("decisions-empty");
  box.hidden = found > 0;
  if (all && !found) {
    const clear = el("button", { type: "button", class: "quiet", onclick: reset }, "Clear the filter");
    box.replaceChildren(el("p", {}, el("strong", {}, "No decision passes the filter.")), clear);
  }
}

function reset() {
  $("filters").reset();
  schedule();
  $("filter-text").focus();
}

function line(decision, isNew) {
  const { before, host, after } = asked(decision);
  const mark = el("span", { class: "mark", "aria-hidden": "true" }, MARKS[decision.verdict] ?? "");
  const button = el(
    "button",
    { type: "button", class: "row-button", "aria-expanded": "false", tabindex: "-1" },
    mark,
    WORDS[decision.verdict] ?? decision.verdict,
  );
  return el(
    "tr",
    { class: `decision${isNew ? " new" : ""}`, "data-id": decision.event_id, onclick: open },
    el("td", { class: "time" }, el("time", { datetime: decision.timestamp }, time(decision.timestamp))),
    el("td", { class: `verdict ${INK[decision.verdict]}` }, button),
    el("td", { class: "method wide" }, decision.method || decision.entry),
    el("td", { class: "target" }, before, el("b", {}, host), after),
    el("td", { class: "why wide" }, ...why(decision)),
  );
}

/** The rule that decided, with its place, or the reason where none did. */
function why({ reason, rule }) {
  if (!rule) return [reason];
  const itself = reason === "allowed" || reason === "blocked";
  const where = `${itself ? rule.list : `${reason}, ${rule.list}`} at ${place(rule)}`;
  return [el("span", { class: "pattern" }, rule.pattern), el("span", { class: "where" }, where)];
}

function open(event) {
  const row = event.currentTarget;
  if (getSelection().toString() && !event.target.closest("button")) return;
  toggle(row);
}

function toggle(row, to) {
  const button = row.querySelector("button");
  const isOpen = button.getAttribute("aria-expanded") === "true";
  if (to === isOpen) return;
  button.setAttribute("aria-expanded", String(!isOpen));
  row.classList.toggle("open", !isOpen);
  if (isOpen) {
    row.nextElementSibling.remove();
    return;
  }
  const decision = kept.find((one) => one.event_id === row.dataset.id) ?? held?.find((one) => one.event_id === row.dataset.id);
  row.after(el("tr", { class: "detail" }, el("td", { colspan: columns() }, detail(decision))));
}

/** How many columns there are: a narrow window has fewer. */
const columns = () => [...document.querySelectorAll(".decisions th")].filter((cell) => cell.offsetParent).length;

function detail(decision) {
  const { rule, addresses = {}, policy } = decision;
  const list = facts([
    ["Reason", decision.reason],
    ["Method", decision.method],
    ["Rule", rule && `${JSON.stringify(rule.pattern)}, ${rule.list} of ${rule.layer}, ${place(rule)}`],
    ["What happened", decision.detail],
    ["Way in", decision.entry],
    ["Server", decision.server],
    ["Fields put on", decision.injected?.join(", ")],
    ["Client", addresses.client && [addresses.client, decision.user].filter(Boolean).join(", ")],
    ["Went to", addresses.upstream],
    ["Tunnel", decision.tunnel],
    ["Policy", policy && `generation ${policy.generation}, ${policy.digest.slice(0, 19)}…`],
    ["Event", `${decision.event_id} at ${decision.timestamp}`],
  ]);
  const box = el("div", {}, list);
  if (["deny", "report"].includes(decision.verdict) && decision.target?.shown === undefined) advise(decision, box);
  return box;
}

/** Adds what would permit it under the policy in force now. */
async function advise(decision, box) {
  const query = new URLSearchParams({ input: input(decision) });
  if (decision.target?.scheme && decision.method) query.set("method", decision.method);
  if (!decision.target?.scheme && !decision.target?.port) return;
  try {
    const answer = await json(`/v1/check?${query}`);
    const now = answer.verdict !== "deny";
    box.append(now ? el("p", { class: "suggestion" }, "The policy in force now permits it.") : suggestion(answer));
  } catch (error) {
    box.append(el("p", { class: "error" }, `No suggestion: ${error.message}`));
  }
}

// --- Keyboard: one stop for the whole table, arrows within it --------------------------------------------------------------

const buttons = () => [...document.querySelectorAll("#decisions-rows .row-button")];

function rove() {
  const all = buttons();
  if (!all.some((button) => button.tabIndex === 0)) all[0]?.setAttribute("tabindex", "0");
}

function onKey(event) {
  const button = event.target.closest(".row-button");
  if (!button || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = buttons();
  const at = all.indexOf(button);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  const row = button.closest("tr");
  if (to !== undefined && all[to]) {
    button.tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  } else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
    toggle(row, event.key === "ArrowRight");
  } else if (event.key === "Escape") {
    toggle(row, false);
  } else if (to === undefined) return;
  event.preventDefault();
}

export function begin() {
  $("filters").addEventListener("input", schedule);
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("decisions-rows").addEventListener("keydown", onKey);
  $("pause").addEventListener("click", () => {
    held = held ? null : [...kept];
    $("pause").setAttribute("aria-pressed", String(Boolean(held)));
    say($("pause"), held ? "Resume" : "Pause");
    schedule();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      $("filter-text").focus();
    }
  });
  // Once in a while, in one sentence: a voice that reads every line would never end.
  setInterval(() => {
    if (!arrived.all) return;
    say($("announce"), `${arrived.all} new decisions, ${arrived.deny} of them not let through`);
    arrived.all = arrived.deny = 0;
  }, 10_000);
}
