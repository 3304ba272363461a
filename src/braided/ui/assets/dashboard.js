// Keeps the events, bounded as on the server, and draws the chosen run.
"use strict";

const KEPT = 1000, KEPT_RUNS = 20, KEPT_DECISIONS = 200, EVERY_MS = 250;
const runs = new Map();
let newestFleet = null, mark = null, connected = null, chosenRun = null, chosenOperator = null, chosenBatch = null, waiting = false;
const find = (id) => document.getElementById(id);

function runOf(id) {
  if (!runs.has(id)) {
    runs.set(id, { id, name: id.slice(0, 8), started: null, ended: null, graph: null, note: null, tables: new Map(), batches: [], decisions: [] });
    while (runs.size > KEPT_RUNS) runs.delete(runs.keys().next().value);
  }
  return runs.get(id);
}

function take(event) {
  if (event.event === "fleet") { newestFleet = event; return; }
  const run = runOf(event.query);
  if (event.event === "started") Object.assign(run, { name: event.name, started: event.time });
  else if (event.event === "ended") run.ended = event;
  else if (event.event === "graph") run.graph = event.boxes.length ? event : null;
  else if (event.event === "note") run.note = event;
  else if (event.event === "table") run.tables.set(event.operator, event);
  else if (event.event === "decision") {
    run.decisions.push(event);
    run.decisions.splice(0, run.decisions.length - KEPT_DECISIONS);
  } else if (event.event === "batch") {
    const newest = run.batches[run.batches.length - 1];
    if (newest && event.batch <= newest.batch) return;
    run.batches.push(event);
    run.batches.splice(0, run.batches.length - KEPT);
  }
}

// The model of the page: the chosen run, batch and operator.
function modelOf(run) {
  const names = new Map(run.batches.flatMap((batch) => batch.operators.map((part) => [part.operator, part.name])));
  for (const [operator] of run.tables) if (!names.has(operator)) names.set(operator, operator);
  const operator = names.has(chosenOperator) ? chosenOperator : [...names.keys()].pop() ?? null;
  const withPart = run.batches.filter((batch) => batch.operators.some((part) => part.operator === operator));
  const batches = operator === null || !withPart.length ? run.batches : withPart;
  const at = batches.find((batch) => batch.batch === chosenBatch) ?? batches[batches.length - 1] ?? null;
  const model = { run, names, operator, batches, at, fleet: newestFleet, table: run.tables.get(operator) ?? null, noted: [...runs.values()].filter((one) => one.note).reverse() };
  model.part = at ? partOf(model, at) : null;
  model.newest = batches.length ? partOf(model, batches[batches.length - 1]) : null;
  model.decisions = run.decisions.filter((made) => made.operator === operator);
  model.show = (id) => { chosenRun = id; chosenBatch = null; soon(); };
  model.choose = (batch) => {
    const nearest = batches.reduce((best, one) => (Math.abs(one.batch - batch) < Math.abs(best.batch - batch) ? one : best), batches[batches.length - 1]);
    chosenBatch = nearest === batches[batches.length - 1] ? null : nearest.batch;
    soon();
  };
  return model;
}

// The name of a run is that of its operators, because people name these more often than queries.
function nameOf(run) {
  const names = new Set(run.batches.slice(-1).flatMap((batch) => batch.operators.map((part) => part.name)));
  return [...names, run.name].join(", ");
}

function choices(select, entries, chosen) {
  const wanted = JSON.stringify(entries);
  if (select.dataset.entries !== wanted) {
    select.dataset.entries = wanted;
    select.replaceChildren(...entries.map(([value, name]) => html("option", { value }, name)));
  }
  select.value = chosen ?? "";
  select.parentElement.hidden = entries.length < 2;
}

function say(run) {
  const state = find("state");
  const broken = (newestFleet?.components ?? []).filter((job) => ["failing", "failed", "orphaned"].includes(job.state));
  const wrong = broken.map((job) => `, ${job.name} ${job.state}`).join("");
  let [text, style] = newestFleet ? [`A fleet of ${newestFleet.peers.length} peers${wrong}`, newestFleet.error || wrong ? "bad" : "good"] : ["Waiting for a query", "done"];
  if (run?.ended) [text, style] = run.ended.error ? [`${nameOf(run)} failed: ${run.ended.error}`, "bad"] : [`${nameOf(run)} ended`, "done"];
  else if (run) [text, style] = connected === null ? [`${nameOf(run)}, as it was saved`, "done"] : wrong ? [`${nameOf(run)} runs${wrong}`, "bad"] : [`${nameOf(run)} runs`, "good"];
  if (connected === false) [text, style] = ["The connection is lost; trying again", "bad"];
  // Screen readers read a status whenever it is written, so write it only when it changes.
  if (state.textContent !== text) state.textContent = text;
  state.className = style;
}

function draw() {
  waiting = false;
  const newest = [...runs.values()].pop() ?? null, run = runs.get(chosenRun) ?? newest;
  say(run);
  choices(find("query"), [...runs.values()].map((one) => [one.id, nameOf(one) + (one.ended ? " (ended)" : "")]), run?.id);
  const model = run ? modelOf(run) : { at: null, part: null, decisions: [], table: null, fleet: newestFleet, names: new Map(), batches: [], noted: [] };
  choices(find("operator"), [...model.names], model.operator);
  find("scrub").hidden = model.batches.length < 2;
  find("at").max = Math.max(0, model.batches.length - 1);
  find("at").value = Math.max(0, model.batches.indexOf(model.at));
  find("shown").textContent = model.at ? `${model.at.batch}${chosenBatch === null ? " (newest)" : ""}` : "";
  find("at").setAttribute("aria-valuetext", `batch ${model.at?.batch ?? "none"}`);
  find("newest").disabled = chosenBatch === null;
  const main = find("main");
  let shown = 0;
  for (const section of SECTIONS) {
    let place = find(section.id);
    if (!section.shown(model)) { place?.remove(); continue; }
    shown++;
    const opened = place ? [...place.querySelectorAll("details")].map((details) => details.open) : [];
    if (!place) {
      place = html("section", { id: section.id, "aria-labelledby": `${section.id}-title`, class: section.wide ? "wide" : "" });
      const after = SECTIONS.slice(SECTIONS.indexOf(section) + 1).map((one) => find(one.id)).find(Boolean);
      main.insertBefore(place, after ?? null);
    }
    // Keep the focus of a button, and the scroll positions.
    const focus = place.contains(document.activeElement) ? [...place.querySelectorAll("button, summary")].indexOf(document.activeElement) : -1;
    const scrolled = [place.scrollLeft, place.querySelector("ol")?.scrollTop ?? 0];
    place.replaceChildren(html("h2", { id: `${section.id}-title` }, section.title), ...(section.words ? [html("p", {}, section.words)] : []));
    section.draw(place, model);
    place.querySelectorAll("details").forEach((details, at) => { details.open = opened[at] ?? false; });
    // Wide content is scrolled with the arrow keys, so it must be focusable.
    if (place.scrollWidth > place.clientWidth) place.tabIndex = 0; else place.removeAttribute("tabindex");
    place.scrollLeft = scrolled[0];
    if (place.querySelector("ol")) place.querySelector("ol").scrollTop = scrolled[1];
    if (focus >= 0) place.querySelectorAll("button, summary")[focus]?.focus();
  }
  find("empty").hidden = shown > 0;
}

function soon() {
  if (waiting || document.visibilityState === "hidden") return;
  waiting = true;
  setTimeout(draw, EVERY_MS);
}

function listen() {
  const source = new EventSource("events");
  source.addEventListener("hello", (event) => {
    if (mark !== null && mark !== event.data) { runs.clear(); newestFleet = null; }
    mark = event.data;
    connected = true;
    soon();
  });
  source.onmessage = (event) => { take(JSON.parse(event.data)); soon(); };
  source.onerror = () => {
    connected = false;
    soon();
    // A browser does not reconnect after an answer that is not an event stream.
    if (source.readyState === EventSource.CLOSED) { source.close(); setTimeout(listen, 3000); }
  };
}

find("query").addEventListener("change", (event) => { chosenRun = event.target.value; chosenBatch = null; soon(); });
find("operator").addEventListener("change", (event) => { chosenOperator = event.target.value; chosenBatch = null; soon(); });
find("at").addEventListener("input", (event) => {
  const run = runs.get(chosenRun) ?? [...runs.values()].pop(), model = modelOf(run), at = Number(event.target.value);
  model.choose(model.batches[at].batch);
});
find("newest").addEventListener("click", () => { chosenBatch = null; soon(); });
document.addEventListener("visibilitychange", soon);
window.addEventListener("resize", soon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);

const saved = find("history");
if (saved) { for (const event of JSON.parse(saved.textContent)) take(event); draw(); } else { draw(); listen(); }
