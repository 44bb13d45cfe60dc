// The console in a real Chromium: node console.mjs CHROMIUM ADMIN PROXY ORIGIN [FOLDER-FOR-SCREENSHOTS]
//
// ADMIN and PROXY are HOST:PORT, ORIGIN is a URL that the gateway permits. What does not hold ends it with 1.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import net from "node:net";
import { chromium } from "playwright-core";

const [executablePath, admin, proxy, origin, shots] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const HOSTILE = "http://hostile.test/<img/src=x/onerror=window.pwned=1><script>window.pwned=1</script>";

/** Sends one request through the proxy, byte by byte as it is given, and waits for the end of the answer. */
function send(url, method = "GET") {
  const [host, port] = proxy.split(":");
  return new Promise((resolve, reject) => {
    const socket = net.connect(Number(port), host, () => {
      socket.write(`${method} ${url} HTTP/1.1\r\nHost: ${url.split("/")[2] ?? url}\r\nConnection: close\r\n\r\n`);
    });
    socket.on("error", reject).on("close", resolve).resume();
  });
}

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});
const context = await browser.newContext({ viewport: { width: 1440, height: 1000 }, colorScheme: "light" });
const page = await context.newPage();
const complaints = [];
page.on("console", (message) => message.type() === "error" && complaints.push(message.text()));
page.on("pageerror", (error) => complaints.push(String(error)));
page.on("request", (request) => {
  if (!request.url().startsWith(`http://${admin}/`) && !request.url().startsWith("data:")) complaints.push(`asked ${request.url()}`);
});
await page.addInitScript(() => {
  window.violations = [];
  document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
});

const shot = async (name) => shots && page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
const rows = page.locator("#decisions-rows tr.decision");
const shown = () => rows.locator(".target").allTextContents();

// --- It loads, and says what there is before anything has happened ---------------------------------------------------------

await page.goto(`http://${admin}/`);
await page.locator("#state-text", { hasText: "Serving" }).waitFor();
await page.locator("#decisions-empty", { hasText: "No decision yet" }).waitFor();
assert.equal(await page.title(), "exeat console");
await shot("empty");

// --- Decisions come in by themselves ---------------------------------------------------------------------------------------

for (let round = 0; round < 3; round += 1) await send(origin);
await send("http://elsewhere.test/guide/page?key=secret", "POST");
await send("bad.test:443", "CONNECT");
await send(HOSTILE);
await send("http://10.0.0.1/");
await rows.nth(6).waitFor();
assert.equal(await rows.count(), 7);
const text = await page.locator("#decisions-rows").innerText();
assert.match(text, /POST\s+http:\/\/elsewhere\.test\/guide\/page\?\(10 bytes\)/);
assert.ok(!text.includes("secret"));
assert.match(text, /api\.example\.test\s+allowed at agent\.toml:\d+:\d+/);
assert.match(text, /bad\.test\s+blocked at agent\.toml/);

// What a client wrote is text, and nothing else.
assert.match(text, /hostile\.test/);
assert.equal(await page.locator("#decisions-rows img, #decisions-rows script").count(), 0);
assert.equal(await page.evaluate(() => window.pwned), undefined);

// --- The filter ------------------------------------------------------------------------------------------------------------

await page.getByRole("radio", { name: "Refused" }).check();
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 4);
await page.getByRole("searchbox", { name: "Host or path" }).fill("elsewhere");
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 1);
await page.getByRole("searchbox", { name: "Host or path" }).fill("nothing like it");
await page.getByRole("button", { name: "Clear the filter" }).click();
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 7);
await page.getByRole("combobox", { name: "Reason" }).selectOption("blocked");
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 1);
assert.deepEqual(await shown(), ["bad.test:443"]);
await page.getByRole("combobox", { name: "Reason" }).selectOption("");

// --- The keyboard alone: to a refused request, and to the rule that would permit it ----------------------------------------

await page.keyboard.press("Escape");
await page.locator("body").click({ position: { x: 2, y: 2 } });
await page.keyboard.press("/");
assert.equal(await page.evaluate(() => document.activeElement.id), "filter-text");
await page.keyboard.type("elsewhere");
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 1);
for (let presses = 0; presses < 6; presses += 1) {
  if (await page.evaluate(() => document.activeElement.classList.contains("row-button"))) break;
  await page.keyboard.press("Tab");
}
await page.keyboard.press("Enter");
const detail = page.locator("tr.detail");
await detail.locator(".snippet pre").waitFor();
assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-expanded")), "true");
assert.equal(await detail.locator(".snippet pre").innerText(), '[network_access]\nallowed = [\n  "http://elsewhere.test/",\n]');
assert.match(await detail.innerText(), /layer agent/);
await page.keyboard.press("Tab");
assert.equal(await page.evaluate(() => document.activeElement.textContent), "Copy");
await page.getByRole("searchbox", { name: "Host or path" }).fill("");
await page.waitForFunction(() => document.querySelectorAll("#decisions-rows tr.decision").length === 7);
assert.equal(await detail.count(), 1);
await rows.first().locator("button").focus();
await page.keyboard.press("End");
assert.equal(await page.evaluate(() => document.activeElement === [...document.querySelectorAll(".row-button")].at(-1)), true);

// --- A pause holds the table -----------------------------------------------------------------------------------------------

await page.getByRole("button", { name: "Pause" }).click();
await send("http://later.test/");
await page.locator("#decisions-count", { hasText: "1 more since the pause" }).waitFor();
assert.equal(await rows.count(), 7);
await page.getByRole("button", { name: "Resume" }).click();
await rows.nth(7).waitFor();

// --- What if ---------------------------------------------------------------------------------------------------------------

const answer = page.locator("#what-if-answer");
await page.getByRole("textbox", { name: "URL or host and port" }).fill("https://new.test/api/x");
await page.keyboard.press("Enter");
await answer.locator(".verdict-line", { hasText: "refused" }).waitFor();
assert.match(await answer.locator(".snippet pre").innerText(), /"https:\/\/new\.test\/"/);
await page.getByRole("textbox", { name: "URL or host and port" }).fill(origin);
await page.getByRole("button", { name: "Judge" }).click();
await answer.locator(".verdict-line", { hasText: "allowed" }).waitFor();
await page.getByRole("textbox", { name: "URL or host and port" }).fill("<img src=x onerror=window.pwned=1>");
await page.keyboard.press("Enter");
await answer.locator("dd", { hasText: "malformed" }).waitFor();
assert.equal(await answer.locator("img").count(), 0);
await page.getByRole("textbox", { name: "URL or host and port" }).fill("https://new.test/api/x");
await page.keyboard.press("Enter");
await answer.locator(".snippet").waitFor();

// --- Readiness and policy --------------------------------------------------------------------------------------------------

await page.getByRole("button", { name: "Check now" }).click();
await page.locator(".server .status", { hasText: "unavailable" }).waitFor();
assert.equal(await page.locator(".server", { hasText: "docs" }).locator(".checks li").count(), 10);
await page.locator("#rules tr", { hasText: "never" }).first().waitFor();
await page.waitForFunction(() => [...document.querySelectorAll("#rules tr")].some((row) => /\b3\b/.test(row.cells[3].textContent)));
await page.getByRole("checkbox", { name: "Never decided" }).check();
assert.deepEqual(await page.locator("#rules tr td:first-child").allTextContents(), ["unused.test", "bad.test"]);
await page.getByRole("checkbox", { name: "Never decided" }).uncheck();

// --- Charts are drawn of what is counted -----------------------------------------------------------------------------------

await send(origin);
await page.locator("#chart-rate path.line").first().waitFor({ state: "attached" });
assert.match(await page.locator("#chart-rate").getAttribute("aria-label"), /Per second: .* allowed/);

// --- Nobody is left out, in either theme -----------------------------------------------------------------------------------

await rows.filter({ hasText: "elsewhere.test" }).locator("button").scrollIntoViewIfNeeded();
for (const theme of ["light", "dark"]) {
  await page.getByRole("button", { name: /^Theme/ }).click();
  await page.waitForFunction((name) => document.documentElement.dataset.theme === name, theme);
  await context.newCDPSession(page).then((session) => session.send("Page.setBypassCSP", { enabled: false }));
  // Playwright evaluates in the page from outside, which its policy does not forbid.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
  assert.deepEqual(found, [], theme);
  await shot(theme);
}

for (const [name, width, height] of [["narrow", 390, 844], ["wide", 1920, 1080]]) {
  await page.setViewportSize({ width, height });
  await page.waitForTimeout(0);
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.equal(overflow, 0, `${name}: the page scrolls sideways`);
  await shot(name);
}

// --- What the page's policy forbids is not done ----------------------------------------------------------------------------

assert.deepEqual(await page.evaluate(() => window.violations), []);
assert.deepEqual(complaints, []);
await page.evaluate(() => {
  const script = document.createElement("script");
  script.textContent = "window.pwned = 1";
  document.body.append(script);
  document.body.insertAdjacentHTML("beforeend", "<img src=x onerror='window.pwned=1'>");
});
await page.waitForFunction(() => window.violations.length >= 2);
assert.equal(await page.evaluate(() => window.pwned), undefined);

// --- A gateway that is gone is said to be ----------------------------------------------------------------------------------

await context.route("**/readyz", (route) => route.abort());
await page.locator("#banner", { hasText: "cannot be asked" }).waitFor();
await shot("gone");

await browser.close();
