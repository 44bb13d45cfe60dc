// The page put together: what is asked for, how often, and what is shown where it cannot be had.

import { every, events, json, pause, text, useToken, whenTokenIsAskedFor } from "./api.js";
import * as charts from "./charts.js";
import * as decisions from "./decisions.js";
import { $, ago, el, facts, INK, MARKS, place, say, suggestion, WORDS } from "./dom.js";

// --- Theme -----------------------------------------------------------------------------------------------------------------

const THEMES = ["system", "light", "dark"];
function theme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  localStorage.setItem("exeat-theme", name);
  say($("theme"), `Theme: ${name}`);
}
theme(THEMES.find((name) => name === localStorage.getItem("exeat-theme")) ?? "system");
$("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "system";
  theme(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
});

// --- State -----------------------------------------------------------------------------------------------------------------

const REASONS = {
  serving: "Serving",
  draining: "Shutting down",
  must_deny_failed: "Not ready: it lets out what it must refuse",
  must_deny_not_tested: "Starting",
};
function reachable(error) {
  const banner = $("banner");
  const lost = error && !$("sign-in").hidden ? null : error;
  banner.hidden = !lost;
  if (!lost) return;
  const why = lost instanceof TypeError ? "it does not answer" : lost.message;
  say(banner, `The gateway cannot be asked (${why}). What is shown may be old; trying again.`);
  $("state").dataset.ready = "false";
  say($("state-text"), "Not reachable");
}

async function showState() {
  const { ready, reason, policy } = await json("/readyz");
  $("state").dataset.ready = String(ready);
  say($("state-text"), REASONS[reason] ?? reason.replaceAll("_", " "));
  say($("policy-line"), `policy ${policy.digest.slice(0, 19)}…, generation ${policy.generation}`);
  if (policy.generation !== shown.generation) {
    shown.generation = policy.generation;
    await showPolicy().catch(() => (shown.generation = null));
  }
}

// --- Readiness -------------------------------------------------------------------------------------------------------------

const CHECK_MARKS = { passed: "✓", failed: "✗", error: "!", inconclusive: "?", not_run: "·" };

async function showReadiness(options) {
  const evidence = await json("/v1/evidence", options);
  const { capabilities } = evidence.readiness;
  const ready = capabilities.filter((capability) => capability.status === "ready").length;
  say($("readiness-count"), capabilities.length ? `${ready} of ${capabilities.length} ready${evidence.checked_at ? `, checked ${ago(evidence.checked_at)}` : ""}` : "");
  const state = JSON.stringify([capabilities, evidence.servers.map(({ server, checks }) => [server, checks])]);
  if (state === shown.readiness) return;
  shown.readiness = state;
  const named = capabilities.filter((one) => !evidence.servers.some((server) => server.capability.name === one.name));
  const rows = [...evidence.servers.map(board), ...named.map((one) => board({ server: one.name, capability: one, checks: [] }))];
  const none = el("div", { class: "empty" }, el("p", {}, el("strong", {}, "No server to check.")), el("p", {}, "The manifests name no MCP servers and no capabilities."));
  $("checks-key").hidden = evidence.servers.length === 0;
  $("servers").replaceChildren(...(rows.length ? rows : [none]));
}

function board({ server, capability, checks, tools }) {
  const told = [capability.detected_version, capability.protocol_version, tools !== null && tools !== undefined ? `${tools} tools` : null];
  const item = ({ check, status, reason, detail }) => {
    const text = `${check}: ${status.replace("_", " ")}${reason ? `, ${reason}` : ""}${detail ? `, ${detail}` : ""}`;
    return el("li", { "data-status": status, title: text }, el("span", { "aria-hidden": "true" }, CHECK_MARKS[status]), el("span", { class: "unseen" }, text));
  };
  const trouble = checks.find(({ status }) => ["failed", "error"].includes(status)) ?? checks.find(({ status }) => status === "inconclusive");
  const said = trouble
    ? `${trouble.check} ${trouble.status}${trouble.reason ? `: ${trouble.reason}` : ""}${trouble.detail ? `. ${trouble.detail}` : ""}`
    : capability.status === "ready" ? "" : capability.reason.replaceAll("_", " ");
  return el(
    "div",
    { class: "server", "data-status": capability.status },
    el("h3", {}, server, el("span", { class: "count" }, told.filter(Boolean).join(" · ")), el("span", { class: "status", "data-status": capability.status }, capability.status)),
    checks.length > 0 && el("ul", { class: "checks", "aria-label": `Checks of ${server}` }, ...checks.map(item)),
    said && el("p", { class: "muted" }, said),
  );
}

$("check-now").addEventListener("click", async () => {
  const button = $("check-now");
  button.disabled = true;
  say(button, "Checking…");
  try {
    await showReadiness({ method: "POST" });
    reachable(null);
  } catch (error) {
    reachable(error);
  }
  button.disabled = false;
  say(button, "Check now");
});

// --- Policy ----------------------------------------------------------------------------------------------------------------

const shown = { generation: undefined, readiness: "", policy: null, limit: 100 };

async function showPolicy() {
  shown.policy = await json("/v1/policy?limit=10000");
  drawPolicy();
}

function drawPolicy() {
  const { policy } = shown;
  if (!policy) return;
  const layers = policy.layers.map(({ name, allowed, blocked }) => `${name} (${allowed} allowed, ${blocked} blocked)`);
  say($("policy-count"), `${policy.rule_count} rules, ${policy.never_hit} never decided`);
  const otherwise = policy.layers.some(({ allowed }) => allowed > 0) ? "" : ` Where nothing blocks, the default decides: ${policy.default}.`;
  say($("policy-facts"), `${layers.length ? `Layers from the outside in: ${layers.join(", ")}.` : "No layers."}${otherwise} Mode: ${policy.mode}. Counted since ${ago(policy.counted_since)}.`);
  const wanted = $("rules-text").value.trim().toLowerCase();
  const never = $("rules-never").checked;
  const found = policy.rules.filter((rule) => (!never || rule.hits === 0) && [rule.pattern, rule.layer, rule.file].some((part) => part.toLowerCase().includes(wanted)));
  const most = Math.max(1, ...policy.rules.map((rule) => rule.hits));
  $("rules").replaceChildren(...found.slice(0, shown.limit).map((rule) => ruleRow(rule, most)));
  $("rules-more").hidden = found.length <= shown.limit;
  const empty = $("rules-empty");
  empty.hidden = found.length > 0;
  say(empty, policy.rule_count === 0 ? "The manifests have no rules." : never && !wanted ? "Every rule has decided something." : "No rule passes the filter.");
}

function ruleRow(rule, most) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" });
  bar.style.width = `${rule.hits ? Math.max(2, (64 * rule.hits) / most) : 0}px`;
  return el(
    "tr",
    { class: rule.hits ? null : "never" },
    el("td", {}, rule.pattern),
    el("td", {}, el("span", { class: "tag", "data-list": rule.list }, `${rule.layer} ${rule.list}`)),
    el("td", { class: "wide muted" }, place(rule)),
    el("td", { class: "number" }, bar, rule.hits ? rule.hits.toLocaleString("en") : "never"),
    el("td", { class: "wide muted" }, rule.last_hit ? ago(rule.last_hit) : "–"),
  );
}

for (const id of ["rules-text", "rules-never"]) $(id).addEventListener("input", drawPolicy);
$("rules-text").form.addEventListener("submit", (event) => event.preventDefault());
$("rules-more").addEventListener("click", () => {
  shown.limit += 500;
  drawPolicy();
});

// --- What if ---------------------------------------------------------------------------------------------------------------

$("what-if-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [input, method] = [$("what-if-input").value.trim(), $("what-if-method").value];
  const box = $("what-if-answer");
  try {
    const answer = await json(`/v1/check?${new URLSearchParams({ input, method })}`);
    const { verdict, reason, rule, inject, note } = answer;
    const word = el("p", { class: `verdict-line ${INK[verdict]}` }, el("span", { class: "mark", "aria-hidden": "true" }, MARKS[verdict]), WORDS[verdict]);
    const list = facts([
      ["Asked", answer.input],
      ["Reason", reason],
      ["Rule", rule && `${JSON.stringify(rule.pattern)}, ${rule.list} of ${rule.layer}, ${place(rule)}`],
      ["Fields put on", inject.join(", ")],
      ["Note", note],
    ]);
    box.replaceChildren(word, list, ...(verdict === "deny" ? [suggestion(answer)] : []));
  } catch (error) {
    box.replaceChildren(el("p", { class: "error" }, error.message));
  }
});

// --- Going -----------------------------------------------------------------------------------------------------------------

let following = new AbortController();

async function follow() {
  let wait = 500;
  for (;;) {
    try {
      const opened = () => (wait = 500);
      await events("/v1/decisions?limit=1000", following.signal, opened, (event) => decisions.take(event));
    } catch {
      // Said by what asks for the state.
    }
    await pause(wait);
    wait = Math.min(wait * 2, 10_000);
  }
}

whenTokenIsAskedFor((wasWrong) => {
  const first = $("sign-in").hidden;
  $("sign-in").hidden = false;
  if (wasWrong) say($("sign-in-error"), "The gateway does not take this token.");
  if (first) $("token").focus();
});
$("sign-in-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  useToken($("token").value.trim());
  say($("sign-in-error"), "");
  try {
    await showPolicy();
    $("sign-in").hidden = true;
    $("token").value = "";
    $("main").focus();
    following.abort();
    following = new AbortController();
    await showReadiness();
  } catch {
    // A wrong token is said where it was asked for.
  }
});

decisions.begin();
follow();
every(2000, showState, reachable);
every(charts.EVERY * 1000, async () => charts.add(charts.read(await text("/metrics"))));
every(5000, () => showReadiness());
every(5000, showPolicy);
