// Elements. Text from the gateway goes into text nodes and never becomes markup.

/** An element with properties (`class`, `on…`, attributes) and children: elements, text, or nothing. */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name === "class" ? "class" : name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const $ = (id) => document.getElementById(id);

/** Sets text only where it differs, so that what is read aloud is what has changed. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const MARKS = { allow: "✓", permit: "✓", inspect: "◎", deny: "✗", error: "!", report: "⚑" };
export const WORDS = { allow: "allowed", permit: "permitted", inspect: "inspected", deny: "refused", error: "not served", report: "reported" };
export const INK = { allow: "allow", permit: "allow", inspect: "accent", deny: "deny", error: "error-ink", report: "second" };

export const place = (rule) => `${rule.file}:${rule.line}:${rule.column}`;

/** Terms with what they are; what is missing is left out. */
export function facts(pairs) {
  const list = el("dl", { class: "facts" });
  for (const [term, value] of pairs) {
    if (value === null || value === undefined || value === "") continue;
    list.append(el("dt", {}, term), el("dd", {}, value));
  }
  return list;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
export const time = (text) => (text ? clock.format(new Date(text)) : "");

/** How long ago, in a word or two. */
export function ago(text) {
  const seconds = Math.max(0, (Date.now() - new Date(text)) / 1000);
  for (const [limit, unit, name] of [[60, 1, "s"], [3600, 60, "min"], [86400, 3600, "h"]]) {
    if (seconds < limit) return `${Math.floor(seconds / unit)} ${name} ago`;
  }
  return `${Math.floor(seconds / 86400)} d ago`;
}

/** Text to copy, with its button. */
export function snippet(text) {
  const pre = el("pre", {}, text);
  const button = el("button", { type: "button", class: "quiet", onclick: copy }, "Copy");
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }
  return el("div", { class: "snippet" }, pre, button);
}

/** What would permit something that was refused, as /v1/check suggests it. */
export function suggestion(answer) {
  const found = answer.suggestion;
  const box = el("div", { class: "suggestion" });
  if (!found) {
    box.append(el("p", { class: "muted" }, "No rule of a manifest would change this: it is below the policy, or not about it."));
    return box;
  }
  if (found.blocked_by) {
    const rule = found.blocked_by;
    box.append(
      el("p", {}, "A block stands against it, and no rule wins over a block. It would have to go or be narrowed:"),
      snippet(`${JSON.stringify(rule.pattern)}  # ${rule.list} of ${rule.layer}, ${place(rule)}`),
    );
    return box;
  }
  const lines = found.allow.map((pattern) => `  ${JSON.stringify(pattern)},`);
  const where = found.layer ? `Add this to the layer ${found.layer} to permit it:` : "Add this to a manifest to permit it:";
  box.append(el("p", {}, where), snippet(`[network_access]\nallowed = [\n${lines.join("\n")}\n]`));
  const also = found.also_permits.filter(Boolean);
  if (also.length) box.append(el("p", { class: "hint" }, `Would also permit ${also.join("; ")}.`));
  return box;
}
