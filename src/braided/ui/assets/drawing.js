// Small drawings: lines, stacked bars, heat maps, tables. Text is always inserted as text, never as markup.
"use strict";

const COLORS = 8;
const colorOf = (number) => `w${number % COLORS}`;
const SVG = "http://www.w3.org/2000/svg";

function put(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  for (const child of [children ?? []].flat()) node.append(child instanceof Node ? child : String(child));
  return node;
}
const html = (tag, attributes, children) => put(document.createElement(tag), attributes, children);
const svg = (tag, attributes, children) => put(document.createElementNS(SVG, tag), attributes, children);

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const plain = new Intl.NumberFormat("en");
const count = (value) => (value === null || value === undefined ? "-" : plain.format(Math.round(value)));
const short = (value) => (value === null || value === undefined || !isFinite(value) ? "-" : compact.format(value));
const bytes = (value) => (value < 1000 ? `${short(value)} B` : value < 1e6 ? `${(value / 1e3).toFixed(1)} kB` : value < 1e9 ? `${(value / 1e6).toFixed(1)} MB` : `${(value / 1e9).toFixed(2)} GB`);
function duration(micros) {
  if (micros === null || micros === undefined) return "-";
  if (micros === 0) return "0 s";
  for (const [size, unit] of [[86400e6, "d"], [3600e6, "h"], [60e6, "min"], [1e6, "s"], [1e3, "ms"]]) {
    if (Math.abs(micros) >= size) return `${+(micros / size).toFixed(2)} ${unit}`;
  }
  return `${micros} µs`;
}
function moment(micros) {
  if (micros === null || micros === undefined) return "-";
  const date = new Date(micros / 1000);
  return isNaN(date) ? `${micros} µs` : date.toISOString().replace("T", " ").slice(0, -5);
}

function step(most, ticks) {
  if (!(most > 0)) return 1;
  const size = 10 ** Math.floor(Math.log10(most / ticks));
  return [1, 2, 5, 10].map((factor) => factor * size).find((found) => found >= (most / ticks) * (1 - 1e-9));
}

// The positions of batches and values on a chart of a given width.
function frame(width, height, numbers, most) {
  const left = 46, right = 12, top = 20, bottom = 22, every = step(most, 4);
  const ceiling = Math.max(every, every * Math.ceil(most / every - 1e-9));
  const first = numbers[0] ?? 0, last = numbers[numbers.length - 1] ?? 1, slots = Math.max(1, last - first + 1);
  const band = (width - left - right) / slots;
  return {
    width, height, left, right, top, bottom, every, ceiling, band, first, last,
    x: (number) => left + (number - first + 0.5) * band,
    y: (value) => height - bottom - (value / ceiling) * (height - top - bottom),
  };
}

function axes(at, show) {
  const parts = [];
  for (let value = 0; value <= at.ceiling * 1.0001; value += at.every) {
    parts.push(svg("path", { class: "grid", d: `M${at.left} ${at.y(value)}H${at.width - at.right}` }));
    parts.push(svg("text", { class: "end", x: at.left - 6, y: at.y(value) + 4 }, show(value)));
  }
  const every = Math.max(1, Math.round(step(at.last - at.first, Math.max(2, at.width / 110))));
  for (let number = Math.ceil(at.first / every) * every; number <= at.last; number += every) {
    parts.push(svg("text", { class: "mid", x: at.x(number), y: at.height - 6 }, number));
  }
  return parts;
}

function marks(at, model) {
  const seen = new Map();
  for (const decision of model.decisions) {
    if (decision.batch >= at.first && decision.batch <= at.last) seen.set(decision.batch, [...(seen.get(decision.batch) || []), decision]);
  }
  const parts = [...seen].map(([batch, made]) => svg("g", {}, [
    svg("title", {}, made.map((one) => `batch ${batch}: ${one.action}, ${one.reason}`).join("\n")),
    svg("path", { class: "mark", d: `M${at.x(batch)} ${at.top - 8}V${at.height - at.bottom}` }),
    svg("path", { class: "marker", d: `M${at.x(batch) - 5} ${at.top - 14}h10l-5 8z` }),
  ]));
  if (model.at) parts.push(svg("path", { class: "chosen", d: `M${at.x(model.at.batch)} ${at.top}V${at.height - at.bottom}` }));
  return parts;
}

function chart(place, at, model, label, parts) {
  const drawn = svg("svg", { class: "chart", viewBox: `0 0 ${at.width} ${at.height}`, height: at.height, role: "img", "aria-label": label,
    onclick: (event) => {
      const box = drawn.getBoundingClientRect();
      model.choose(Math.round(at.first + ((event.clientX - box.left) * (at.width / box.width) - at.left) / at.band - 0.5));
    } }, parts);
  place.append(drawn);
}

function legend(names) {
  return html("ul", { class: "legend" }, names.map((name, number) => html("li", {}, [
    svg("svg", { viewBox: "0 0 11 11", "aria-hidden": "true" }, svg("rect", { class: `fill ${colorOf(number)}`, width: 11, height: 11, rx: 3 })), name,
  ])));
}

// The numbers of a chart as a table, for screen readers; created when it is opened.
function numbers(place, model, heads, row) {
  const details = html("details", { ontoggle: () => {
    if (details.open && details.children.length === 1) {
      details.append(table("The last batches", ["batch", ...heads], model.batches.slice(-15).reverse().map((batch) => [batch.batch, ...row(batch)])));
    }
  } }, html("summary", {}, "Numbers"));
  place.append(details);
}

// The first batch of a run starts processes and may be much slower: the others set the scale, and its bar is cut.
const CUT = 3;
function scale(model, total) {
  const known = model.batches.map((batch) => [batch.batch, total(batch)]);
  const rest = Math.max(0, ...known.slice(1).map(([, value]) => value)), first = known[0]?.[1] ?? 0;
  return known.length > 3 && rest > 0 && first > CUT * rest ? { most: rest, cut: [known[0][0], first] } : { most: Math.max(0, first, rest) };
}
// A bar above the top of the chart is cut there, and has its value as text.
function cutMark(at, cut, show) {
  return cut ? [svg("g", { class: "cut" }, [svg("title", {}, `batch ${cut[0]}: ${show(cut[1])}, above this chart`),
    svg("path", { class: "marker", d: `M${at.x(cut[0]) - 5} ${at.y(at.ceiling) - 2}h10l-5 -8z` }),
    svg("text", { x: at.x(cut[0]) + 8, y: at.y(at.ceiling) - 2 }, show(cut[1]))])] : [];
}

// series: a name and a function of a batch, which may return null.
function lines(place, model, series, { show = short, height = 190 } = {}) {
  const width = Math.max(280, place.clientWidth - 32);
  const found = series.map(([name, value]) => [name, model.batches.map((batch) => [batch.batch, value(batch)]).filter(([, y]) => y !== null && y !== undefined && isFinite(y))]);
  const { most, cut } = scale(model, (batch) => Math.max(0, ...series.map(([, value]) => value(batch)).filter((y) => isFinite(y))));
  const at = frame(width, height, model.batches.map((batch) => batch.batch), most);
  const top = (y) => at.y(Math.min(y, at.ceiling));
  const paths = found.map(([, points], number) => points.length === 1
    ? svg("circle", { class: `fill ${colorOf(number)}`, cx: at.x(points[0][0]), cy: top(points[0][1]), r: 3 })
    : svg("path", { class: `line ${colorOf(number)}`, d: points.map(([x, y], i) => `${i ? "L" : "M"}${at.x(x).toFixed(1)} ${top(y).toFixed(1)}`).join("") }));
  place.append(legend(found.map(([name, points]) => `${name} ${show(chosenValue(model, points))}`)));
  const label = found.map(([name, points]) => `${name}: ${show(chosenValue(model, points))} in the chosen batch, at most ${show(Math.max(0, ...points.map(([, y]) => y)))}`).join("; ");
  chart(place, at, model, label, [...axes(at, show), ...paths, ...cutMark(at, cut, show), ...marks(at, model)]);
  numbers(place, model, series.map(([name]) => name), (batch) => series.map(([, value]) => show(value(batch))));
}

const chosenValue = (model, points) => (points.find(([x]) => x === model.at.batch) ?? points[points.length - 1] ?? [0, null])[1];

function stacks(place, model, names, value, { show, height = 190 }) {
  const width = Math.max(280, place.clientWidth - 32);
  const { most, cut } = scale(model, (batch) => names.reduce((sum, name) => sum + value(batch, name), 0));
  const at = frame(width, height, model.batches.map((batch) => batch.batch), most);
  const bars = model.batches.flatMap((batch) => {
    let base = 0;
    return names.map((name, number) => {
      const low = base;
      base = Math.min(at.ceiling, base + value(batch, name));
      const height = base - low;
      return height > 0 ? svg("rect", { class: `fill ${colorOf(number)}`, x: at.x(batch.batch) - at.band * 0.45, y: at.y(low + height), width: Math.max(0.5, at.band * 0.9), height: at.y(low) - at.y(low + height) }) : null;
    }).filter((bar) => bar !== null);
  });
  place.append(legend(names.map((name) => `${name} ${show(value(model.at, name))}`)));
  chart(place, at, model, names.map((name) => `${name}: ${show(value(model.at, name))} in the chosen batch`).join("; "), [...axes(at, show), ...bars, ...cutMark(at, cut, show), ...marks(at, model)]);
  numbers(place, model, names, (batch) => names.map((name) => show(value(batch, name))));
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const rgb = (hex) => [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
function blend(from, to, share) {
  const [a, b] = [rgb(from), rgb(to)];
  return `rgb(${a.map((part, i) => Math.round(part + (b[i] - part) * share)).join(",")})`;
}

// A canvas with cells by column and row, which are too many for elements.
function cells(place, columns, rows, color, { height, label }) {
  const canvas = html("canvas", { role: "img", "aria-label": label });
  const scale = window.devicePixelRatio || 1, width = Math.max(280, place.clientWidth - 32);
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const draw = canvas.getContext("2d"), across = canvas.width / Math.max(1, columns), down = canvas.height / Math.max(1, rows);
  const gap = across > 5 * scale ? scale : 0;
  for (let column = 0; column < columns; column++) {
    for (let row = 0; row < rows; row++) {
      const found = color(column, row);
      if (found === null) continue;
      draw.fillStyle = found;
      draw.fillRect(column * across, row * down, Math.max(1, across - gap), Math.max(1, down - (down > 5 * scale ? scale : 0)));
    }
  }
  place.append(canvas);
}

// A table of rows; numbers are aligned right.
function table(title, heads, rows) {
  const isNumber = heads.map((_, at) => rows.every((row) => typeof row[at] === "number" || /^[-\d.,]+( ?[a-zA-Zµ%]+)?$/.test(String(row[at]))));
  const style = (at) => (isNumber[at] && at ? { class: "number" } : {});
  // A wide table can be scrolled, also with keys; shadows at its sides show this.
  return html("div", { class: "scroll", role: "region", "aria-label": title, tabindex: 0 }, html("table", {}, [
    html("caption", {}, title),
    html("thead", {}, html("tr", {}, heads.map((head, at) => html("th", { scope: "col", ...style(at) }, head)))),
    html("tbody", {}, rows.map((row) => html("tr", {}, row.map((cell, at) => (at ? html("td", style(at), cell) : html("th", { scope: "row" }, cell)))))),
  ]));
}
