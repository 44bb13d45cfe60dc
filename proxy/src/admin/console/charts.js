// Throughput and latency, from the differences of what /metrics counts.

import { $, say } from "./dom.js";

const NS = "http://www.w3.org/2000/svg";
const WIDTH = 600;
const HEIGHT = 116;
const LEFT = 38;
const BOTTOM = 16;
/** How many samples a chart shows at most, and how many it leaves room for from the start. */
const SHOWN = 150;
const ROOM = 30;
/** Over how many samples a figure or a quantile is made. */
const WINDOW = 15;

/** Seconds between samples. */
export const EVERY = 2;

const samples = [];

/** The sums that the page shows, of the text format of Prometheus. */
export function read(text) {
  const sample = { at: performance.now(), allow: 0, deny: 0, error: 0, report: 0, buckets: new Map(), tunnels: 0, connections: 0 };
  for (const line of text.split("\n")) {
    const value = () => Number(line.slice(line.lastIndexOf(" ") + 1));
    if (line.startsWith("exeat_requests_total{")) {
      const verdict = /verdict="(\w+)"/.exec(line)?.[1];
      if (verdict in sample) sample[verdict] += value();
    } else if (line.startsWith("exeat_request_seconds_bucket{")) {
      const bound = /le="([^"]+)"/.exec(line)?.[1];
      sample.buckets.set(bound === "+Inf" ? Infinity : Number(bound), value());
    } else if (line.startsWith("exeat_tunnels_active ")) sample.tunnels = value();
    else if (line.startsWith("exeat_connections_active ")) sample.connections = value();
  }
  return sample;
}

export function add(sample) {
  const last = samples.at(-1);
  // A gateway that was started anew counts from zero.
  if (last && total(sample) < total(last)) samples.length = 0;
  samples.push(sample);
  if (samples.length > SHOWN + WINDOW) samples.shift();
  draw();
}

const total = (sample) => sample.allow + sample.deny + sample.error + sample.report;

/** A quantile of the requests between two samples, by linear interpolation within its bucket; none without requests. */
export function quantile(from, to, q) {
  const counts = [...to.buckets].map(([bound, count]) => [bound, count - (from.buckets.get(bound) ?? 0)]);
  counts.sort(([a], [b]) => a - b);
  const all = counts.at(-1)?.[1] ?? 0;
  if (all <= 0) return null;
  let [lower, below] = [0, 0];
  for (const [bound, count] of counts) {
    if (count >= q * all) {
      if (bound === Infinity) return lower;
      return lower + ((bound - lower) * (q * all - below)) / Math.max(count - below, 1);
    }
    [lower, below] = [bound, count];
  }
  return lower;
}

const number = (value) => String(Number(value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2)));
const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(part && part < whole ? 1 : 0)} %` : "–");
const duration = (seconds) => (seconds < 0.001 ? `${(seconds * 1e6).toFixed(0)} µs` : seconds < 1 ? `${(seconds * 1e3).toFixed(seconds < 0.01 ? 1 : 0)} ms` : `${seconds.toFixed(1)} s`);

function draw() {
  const last = samples.at(-1);
  const since = samples.find((sample) => last.at - sample.at <= 60_500) ?? last;
  const span = (last.at - since.at) / 1000;
  const counted = total(last) - total(since);
  say($("f-rate"), span > 0 ? number(counted / span) : "–");
  say($("f-denied"), percent(last.deny - since.deny, counted));
  say($("f-failed"), percent(last.error - since.error, counted));
  say($("f-tunnels"), String(last.tunnels));
  say($("f-connections"), `${last.connections} connections`);

  const rate = (key) => between(1, (from, to) => (to[key] - from[key]) / Math.max((to.at - from.at) / 1000, 0.001));
  const rates = [["allow", rate("allow")], ["deny", rate("deny")], ["error-ink", rate("error")]];
  if (last.report > 0) {
    $("legend-report").hidden = false;
    rates.push(["second", rate("report")]);
  }
  plot($("chart-rate"), rates, number);
  const now = (values) => values.at(-1) ?? 0;
  const [allowed, refused, failed] = rates.map(([, values]) => number(now(values)));
  describe($("chart-rate"), `Per second: ${allowed} allowed, ${refused} refused, ${failed} not served`);

  const times = [["accent", between(WINDOW, (from, to) => quantile(from, to, 0.5))], ["second", between(WINDOW, (from, to) => quantile(from, to, 0.95))]];
  plot($("chart-time"), times, duration);
  const [median, most] = times.map(([, values]) => values.at(-1));
  describe($("chart-time"), median === null || median === undefined ? "No requests in the last half minute" : `Half of the answers began within ${duration(median)}, nineteen in twenty within ${duration(most)}`);
}

/** A value for each sample from itself and the one `back` before it. */
function between(back, value) {
  return samples.slice(1).map((to, index) => value(samples[Math.max(0, index + 1 - back)], to));
}

function describe(svg, text) {
  if (svg.getAttribute("aria-label") !== text) svg.setAttribute("aria-label", text);
}

/** Rounds up to a number that reads well on an axis. */
function nice(value) {
  if (!(value > 0)) return 1;
  const magnitude = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * magnitude).find((step) => step >= value * 0.999);
}

function plot(svg, lines, format) {
  const width = svg.clientWidth || WIDTH;
  const shown = lines.map(([name, values]) => [name, values.slice(-SHOWN)]);
  const top = nice(Math.max(0, ...shown.flatMap(([, values]) => values.filter((value) => value !== null))));
  const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - BOTTOM - 8);
  const room = Math.min(SHOWN, Math.max(ROOM, ...shown.map(([, values]) => values.length)));
  const x = (index, count) => width - ((count - 1 - index) / (room - 1)) * (width - LEFT);
  const minutes = Math.max(1, Math.round((room * EVERY) / 60));
  const empty = shown.every(([, values]) => values.every((value) => value === null || value === 0));
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const parts = [];
  for (const share of empty ? [0] : [0, 0.5, 1]) {
    parts.push(shape("line", { class: "grid", x1: LEFT, x2: width, y1: y(top * share), y2: y(top * share) }));
    parts.push(label(LEFT - 6, y(top * share) + 3.5, "end", share ? format(top * share) : "0"));
  }
  parts.push(label(LEFT, HEIGHT - 2, "start", `${minutes} min ago`), label(width, HEIGHT - 2, "end", "now"));
  if (empty) parts.push(label((LEFT + width) / 2, y(top * 0.45), "middle", "No traffic yet"));
  for (const [name, values] of empty ? [] : shown) {
    let path = "";
    values.forEach((value, index) => {
      if (value === null) return;
      const begins = index === 0 || values[index - 1] === null;
      path += `${begins ? "M" : "L"}${x(index, values.length).toFixed(1)} ${y(value).toFixed(1)}`;
    });
    parts.push(shape("path", { class: `line ${name}`, d: path }));
  }
  svg.replaceChildren(...parts);
}

function shape(name, attributes) {
  const element = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function label(x, y, anchor, text) {
  const element = shape("text", { x, y, "text-anchor": anchor });
  element.textContent = text;
  return element;
}
