// The sections of the page for a run. A model has the run's batches, the chosen one (`at`) and operator.
"use strict";

const seconds = (batch) => Math.max(1, batch.ms.triggerExecution ?? 0) / 1000;
const sum = (values) => (values || []).reduce((total, value) => total + (value || 0), 0);
const partOf = (model, batch) => batch.operators.find((part) => part.operator === model.operator) ?? null;
const workersOf = (part) => part?.workers?.worker ?? [];
const last = (part, name) => part?.workers?.last?.[name] ?? [];
const streamsOf = (model) => model.newest?.streams ?? [];
const streamAt = (model, batch, number) => partOf(model, batch)?.streams[number];
const rowsOf = (model, batch) => {
  const part = partOf(model, batch);
  return part ? sum(part.streams.map((stream) => stream.last_rows)) : sum(batch.sources.map((source) => source.rows));
};
const LONGEST = 40;
const keyName = (key) => (key.label === null || key.label === undefined ? `#${key.key.slice(0, 8)}` : [...key.label].length > LONGEST ? `${[...key.label].slice(0, LONGEST - 1).join("")}…` : key.label);
const keyCell = (key) => html("span", { title: key.label ?? null }, keyName(key));
// Spark's names for the parts of a batch, the largest first.
const PHASES = ["addBatch", "queryPlanning", "latestOffset", "getBatch", "walCommit", "commitOffsets", "commitBatch"];
const BUCKET_ROWS = 32;

function facts(place, model) {
  const batch = model.at, part = model.part, shares = part?.workers?.share ?? [];
  if (model.run.ended?.error) place.append(html("p", { class: "wrong", role: "alert" }, `It failed: ${model.run.ended.error}`));
  const found = [
    ["rows per second", short(rowsOf(model, batch) / seconds(batch))],
    ["batch", `${seconds(batch).toFixed(2)} s`],
    ["state", bytes(part ? sum(last(part, "stored_bytes")) : batch.state_bytes ?? 0)],
  ];
  if (part) {
    found.splice(1, 0, ["results per second", short(sum(last(part, "results")) / seconds(batch))]);
    found.push(["results in total", count(part.query.results)], ["late rows", count(sum(part.streams.map((stream) => stream.late)))]);
    if (part.streams.some((stream) => stream.late && stream.lost !== undefined)) found.push(["of them may have lost pairs", count(sum(part.streams.map((stream) => stream.lost)))]);
    if (shares.length > 1) found.push(["busiest worker", `${Math.max(...shares).toFixed(2)} of the mean`]);
    if (part.copies) found.push(["copies per row", part.copies.toFixed(2)]);
    if (part.query.recall !== undefined) found.push(["recall", recall(part.query.recall)]);
    if (part.query.matches !== undefined) found.push(["matches", count(part.query.matches)], ["open matches", count(part.query.open_matches)]);
  }
  const behind = (batch.sources ?? []).map(lagOf).filter((lag) => lag !== null);
  if (behind.length) found.push(["offsets behind", short(Math.max(...behind))]);
  const commit = sum(["walCommit", "commitOffsets", "commitBatch"].map((name) => batch.ms[name]));
  found.push(["checkpoint", `${(commit / 1000).toFixed(2)} s per batch`]);
  place.append(html("dl", {}, found.map(([name, value]) => html("div", {}, [html("dt", {}, name), html("dd", {}, value)]))));
}

// Notes of all runs, the newest first; a button shows the run's charts.
function notes(place, model) {
  for (const { id, note } of model.noted) {
    place.append(html("h3", {}, note.title), html("p", {}, note.text), html("pre", {}, note.code));
    place.append(html("table", {}, html("tbody", {}, Object.entries(note.facts).map(([label, text]) => html("tr", {}, [
      html("th", { scope: "row" }, label), html("td", { class: label === "checked" ? (note.right ? "right" : "wrong") : null }, text),
    ])))));
    if (model.noted.length > 1) place.append(html("button", { type: "button", disabled: id === model.run.id ? "" : null, onclick: () => model.show(id) }, id === model.run.id ? "Shown below" : "Show below"));
  }
}

const recall = (value) => (value === null || value === undefined ? "-" : `${(100 * value).toFixed(1)}%`);

function rates(place, model) {
  const streams = streamsOf(model);
  const series = streams.length
    ? streams.map((stream, at) => [stream.name, (batch) => rate(streamAt(model, batch, at)?.last_rows, batch)])
    : (model.at.sources || []).map((source, at) => [`source ${at + 1}`, (batch) => rate(batch.sources[at]?.rows, batch)]);
  if (streams.length) series.push(["results", (batch) => rate(partOf(model, batch) ? sum(last(partOf(model, batch), "results")) : null, batch)]);
  lines(place, model, series);
}
// How far a Kafka source is behind, in offsets of the partition that is furthest behind.
const lagOf = (source) => (source?.lag?.maxOffsetsBehindLatest === undefined ? null : Number(source.lag.maxOffsetsBehindLatest));
function lags(place, model) {
  lines(place, model, model.at.sources.map((source, at) => [`source ${at + 1}`, (batch) => lagOf(batch.sources[at])]));
}
const rate = (rows, batch) => (rows === null || rows === undefined ? null : rows / seconds(batch));

function times(place, model) {
  const names = PHASES.filter((name) => model.batches.some((batch) => batch.ms[name] > 0));
  stacks(place, model, names, (batch, name) => (batch.ms[name] || 0) / 1000, { show: (value) => `${+value.toFixed(2)} s` });
}

function bars(place, model) {
  const part = model.part, rows = last(part, "rows"), results = last(part, "results"), width = Math.max(280, place.clientWidth - 32);
  const mean = (sum(rows) + sum(results)) / Math.max(1, rows.length) || 1;
  const most = Math.max(1, ...rows.map((value, at) => (value + results[at]) / mean));
  const left = 72, right = 52, unit = (width - left - right) / most, thick = rows.length > 24 ? 10 : 18, gap = thick / 2;
  const height = rows.length * (thick + gap) + 8;
  const parts = rows.flatMap((value, at) => {
    const y = at * (thick + gap) + 4, share = (value + results[at]) / mean;
    return [
      svg("text", { x: 0, y: y + thick / 2 + 4 }, `worker ${workersOf(part)[at]}`),
      svg("rect", { class: `fill ${colorOf(at)}`, x: left, y, width: (value / mean) * unit, height: thick }, svg("title", {}, `${count(value)} rows`)),
      svg("rect", { class: `fill pale ${colorOf(at)}`, x: left + (value / mean) * unit, y, width: (results[at] / mean) * unit, height: thick }, svg("title", {}, `${count(results[at])} results`)),
      svg("text", { class: "strong", x: left + share * unit + 6, y: y + thick / 2 + 4 }, share.toFixed(2)),
    ];
  });
  parts.push(svg("path", { class: "mean", d: `M${left + unit} 0V${height}` }));
  const label = rows.map((value, at) => `worker ${workersOf(part)[at]}: ${((value + results[at]) / mean).toFixed(2)} of the mean`).join("; ");
  place.append(svg("svg", { class: "chart", id: "bars", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }, parts));
  const columns = ["rows", "results", "cpu_ms", "stored_rows", "stored_bytes"];
  place.append(html("details", {}, [html("summary", {}, "Numbers"), table(`Workers in batch ${model.at.batch}`,
    ["worker", "rows", "results", "CPU ms", "stored rows", "stored bytes", "load now", "5 batches", "15 batches"],
    workersOf(part).map((worker, at) => [worker, ...columns.map((name) => count(last(part, name)[at])), ...[0, 1, 2].map((span) => part.loads?.[at]?.[span]?.toFixed(2) ?? "-")]))]));
}

function heat(place, model) {
  const workers = workersOf(model.newest), colors = ["--cold", "--even", "--hot"].map(css);
  const shares = model.batches.map((batch) => partOf(model, batch)?.workers?.share ?? []);
  // One colour from 0 to the mean, and another one from the mean to twice the mean.
  const color = (column, row) => {
    const share = shares[column][row];
    if (share === undefined) return null;
    return share <= 1 ? blend(colors[0], colors[1], share) : blend(colors[1], colors[2], Math.min(1, share - 1));
  };
  const label = `Shares of ${workers.length} workers in batches ${model.batches[0].batch} to ${model.batches[model.batches.length - 1].batch}; the largest of the last batch is ${Math.max(0, ...shares[shares.length - 1]).toFixed(2)} of the mean`;
  cells(place, shares.length, workers.length, color, { height: Math.min(320, Math.max(60, workers.length * 18)), label });
  place.append(html("p", {}, `Batch ${model.batches[0].batch} at the left, ${model.batches[model.batches.length - 1].batch} at the right; worker 0 at the top.`));
  numbers(place, model, workers.map((worker) => `worker ${worker}`), (batch) => workers.map((_, at) => partOf(model, batch)?.workers?.share?.[at]?.toFixed(2) ?? "-"));
}

function groups(place, model) {
  const routing = model.table, owned = new Map();
  for (const owner of routing.owners) owned.set(owner, (owned.get(owner) || 0) + 1);
  const summary = [...owned].sort(([a], [b]) => a - b).map(([owner, many]) => (owner < 0 ? `${many} on grids` : `worker ${owner}: ${many}`)).join(", ");
  place.append(html("p", {}, `Scheme ${routing.scheme}, table ${routing.version}: ${routing.in_use.length} of ${routing.workers} workers in use` + (routing.moving ? `, ${routing.moving} buckets still probe where they were.` : ".")));
  if (routing.owners.length) {
    const colors = Array.from({ length: COLORS }, (_, at) => css(`--w${at}`)), columns = Math.ceil(routing.owners.length / BUCKET_ROWS);
    cells(place, columns, BUCKET_ROWS, (column, row) => {
      const owner = routing.owners[column * BUCKET_ROWS + row];
      return owner === undefined ? null : owner < 0 ? css("--ink") : colors[owner % COLORS];
    }, { height: 128, label: `Buckets of keys and their workers. ${summary}` });
    place.append(html("p", {}, `${routing.owners.length} buckets, each in its worker's colour. ${summary}.`));
  }
  place.append(html("div", { class: "grids" }, routing.grids.map(gridTable)));
}

function gridTable(grid) {
  const heights = grid.columns.map((column) => column.length), rows = Math.max(...heights);
  const even = heights.every((height) => height === rows);
  const shape = even ? `${rows} x ${heights.length}` : heights.join("+");
  const what = grid.key === null ? "All rows" : `Hot key ${keyName(grid)}`;
  return html("table", {}, [
    html("caption", {}, `${what}: grid ${shape}`),
    html("tbody", {}, Array.from({ length: rows }, (_, row) => html("tr", {}, grid.columns.map((column) => (row < column.length
      ? html("td", { class: `cell fill ${colorOf(column[row])}`, title: `worker ${column[row]}` }, column[row]) : html("td")))))),
  ]);
}

function hotKeys(place, model) {
  const total = sum(last(model.part, "rows")) + sum(last(model.part, "results")) || 1, fair = total / Math.max(1, workersOf(model.part).length);
  const spread = new Map((model.table?.grids ?? []).map((grid) => [grid.key, grid]));
  const grid = (key) => (spread.has(key.key) ? spread.get(key.key).columns.map((column) => column.length).join("+") + " workers" : "");
  const heavy = model.part.keys.filter((key, at) => at < 3 || sum(key.counts) > 0.01 * fair);
  place.append(table(`The heaviest keys of batch ${model.at.batch}; a worker's fair share is ${short(fair)} rows and results`,
    ["key", "first stream", "others", "results", "of a fair share", "grid"],
    heavy.map((key) => [keyCell(key), ...key.counts.map(count), (sum(key.counts) / fair).toFixed(2), grid(key)])));
}

function decisions(place, model) {
  place.append(html("ol", { class: "decisions" }, model.decisions.slice().reverse().map((made) => html("li", {}, [
    html("button", { type: "button", onclick: () => model.choose(made.batch) }, `batch ${made.batch}`),
    html("strong", {}, [made.action, made.value ?? (made.key ? `#${made.key.slice(0, 8)}` : ""), made.grid ? `grid ${made.grid}` : "", made.buckets ? `${made.buckets} buckets` : ""].filter(Boolean).join(" ")),
    `: ${made.reason}`,
  ]))));
}

function time(place, model) {
  const streams = streamsOf(model);
  place.append(html("h3", {}, "Lateness (K)"));
  lines(place, model, streams.map((stream, at) => [stream.name, (batch) => streamAt(model, batch, at)?.lateness]), { show: duration, height: 150 });
  if (streams.some((stream) => stream.late)) {
    place.append(html("h3", {}, "Rows later than that, in total"));
    lines(place, model, streams.map((stream, at) => [stream.name, (batch) => streamAt(model, batch, at)?.late]), { height: 150 });
  }
  place.append(table(`Streams after batch ${model.at.batch}`, ["stream", "lateness", "rows", "late", "lost pairs", "waiting", "quarantined", "discarded", "clock"],
    model.part.streams.map((stream) => [stream.name, duration(stream.lateness), ...["rows", "late", "lost", "waiting", "quarantined", "discarded"].map((name) => (stream[name] === undefined ? "-" : count(stream[name]))), moment(stream.clock)])));
  const detectors = model.part.query.detectors ?? [];
  if (detectors.length) {
    place.append(html("h3", {}, "Detectors: how much earlier than its trigger an event may be (D)"));
    lines(place, model, detectors.map((one, at) => [one.name, (batch) => partOf(model, batch)?.query.detectors?.[at]?.delay]), { show: duration, height: 150 });
    place.append(table("Events, and how long after the streams a detector gets them", ["detector", "events", "late", "waiting", "delay (D)", "behind"],
      detectors.map((one) => [one.name, count(one.events), count(one.late), count(one.waiting), duration(one.delay), duration(one.behind)])));
  }
}

function memory(place, model) {
  const workers = workersOf(model.newest);
  const series = workers.length <= COLORS
    ? workers.map((worker, at) => [`worker ${worker}`, (batch) => last(partOf(model, batch), "stored_bytes")[at]])
    : [["all workers", (batch) => sum(last(partOf(model, batch), "stored_bytes"))], ["largest", (batch) => Math.max(0, ...last(partOf(model, batch), "stored_bytes"))]];
  lines(place, model, series, { show: bytes });
}

function recalls(place, model) {
  lines(place, model, [["in total", (batch) => partOf(model, batch)?.query.recall], ["recently", (batch) => partOf(model, batch)?.query.recent_recall]], { show: recall });
  const totals = model.part.workers.total ?? {}, names = ["evicted", "refused", "shed", "too_large"].filter((name) => name in totals);
  if (names.length) place.append(table("Rows evicted or not stored", names.map((name) => name.replace("_", " ")), [names.map((name) => count(sum(totals[name])))]));
}

function matches(place, model) {
  lines(place, model, [["matches", (batch) => partOf(model, batch)?.query.matches], ["open", (batch) => partOf(model, batch)?.query.open_matches]]);
}

function graph(place, model) {
  const { boxes, arrows } = model.run.graph;
  const width = Math.max(...boxes.map((box) => box.x + box.width)) + 12, height = Math.max(...boxes.map((box) => box.y + box.height)) + 12;
  const summary = [], parts = [];
  for (const [from, to] of arrows) {
    const a = boxes[from], b = boxes[to], x1 = a.x + a.width, y1 = a.y + a.height / 2, y2 = b.y + b.height / 2, middle = (x1 + b.x) / 2;
    parts.push(svg("path", { class: "arrow", d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${b.x - 7} ${y2}` }), svg("path", { class: "head", d: `M${b.x - 8} ${y2 - 4}L${b.x} ${y2}L${b.x - 8} ${y2 + 4}z` }));
    const label = flow(model, boxes, arrows, from, to);
    if (label) parts.push(svg("text", { class: "mid strong", x: middle, y: (y1 + y2) / 2 - 6 }, label));
    summary.push(`${a.title} to ${b.title}${label ? ` at ${label}` : ""}`);
  }
  for (const box of boxes) {
    parts.push(svg("rect", { class: `box ${box.kind}`, x: box.x, y: box.y, width: box.width, height: box.height, rx: 7 }), svg("text", { class: "strong", x: box.x + 10, y: box.y + 22 }, box.title));
    box.lines.forEach((line, at) => parts.push(svg("text", { x: box.x + 10, y: box.y + 39 + 17 * at }, line)));
  }
  place.append(svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": summary.join("; ") }, parts));
}

// Rows per second on an arrow: a stream into an operator of Braided, or its results.
function flow(model, boxes, arrows, from, to) {
  const into = model.at.operators.find((part) => part.operator === boxes[to].operator), outOf = model.at.operators.find((part) => part.operator === boxes[from].operator);
  if (into && boxes[to].operator) {
    const inputs = arrows.filter(([, target]) => target === to);
    const at = inputs.findIndex(([source]) => source === from);
    return inputs.length === into.streams.length ? `${short(into.streams[at].last_rows / seconds(model.at))}/s` : "";
  }
  return outOf && boxes[from].operator ? `${short(sum(last(outOf, "results")) / seconds(model.at))}/s` : "";
}

// The load of a peer: the parts of its jobs in their colours, and the rest pale; 1 is all of its cores.
function meter(peer, jobs, colors) {
  const width = 220, full = Math.max(1, peer.load, sum(jobs.map((job) => job.load))), unit = width / full;
  let x = 0;
  const parts = jobs.map((job) => {
    const part = svg("rect", { class: `fill ${colors.get(job.name)}`, x, y: 0, width: (job.load ?? 0) * unit, height: 14 }, svg("title", {}, `${job.name}: ${(job.load ?? 0).toFixed(2)}`));
    x += (job.load ?? 0) * unit;
    return part;
  });
  const rest = svg("rect", { class: "fill pale w7", x, y: 0, width: Math.max(0, peer.load * unit - x), height: 14 }, svg("title", {}, "the rest of its process"));
  const points = peer.loads.map((load, at) => `${at ? "L" : "M"}${((at + 0.5) * width / peer.loads.length).toFixed(1)} ${(46 - 26 * load / Math.max(1, ...peer.loads)).toFixed(1)}`).join("");
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} 50`, role: "img", "aria-label": `Load of ${peer.name}: ${peer.load.toFixed(2)}, where 1 is all of its cores; at most ${Math.max(0, ...peer.loads).toFixed(2)} lately` },
    [svg("rect", { class: "box", x: 0, y: 0, width, height: 14 }), ...parts, rest, svg("path", { class: "mean", d: `M${unit} -3V17` }), svg("path", { class: "line w0", d: points })]);
}

function peerCard(peer, jobs, colors) {
  const listed = jobs.map((job) => html("li", {}, [
    svg("svg", { viewBox: "0 0 11 11", "aria-hidden": "true" }, svg("rect", { class: `fill ${colors.get(job.name)}`, width: 11, height: 11, rx: 3 })),
    `${job.name}${job.rate === undefined ? "" : `, ${short(job.rate)} rows/s`}${(job.state ?? "running") === "running" ? "" : `, ${job.state}`}`,
  ]));
  return html("div", { class: "peer" }, [
    html("h3", {}, peer.name), html("p", {}, `${peer.address}, ${Math.round(100 * peer.load)}% of ${peer.cores} ${peer.cores === 1 ? "core" : "cores"}`),
    meter(peer, jobs, colors), jobs.length ? html("ul", { class: "legend" }, listed) : html("p", {}, "hosts nothing"),
  ]);
}

function stateOf(job) {
  const state = job.state ?? (job.failed ? "failed" : "running");
  const times = job.failures > 1 ? ` (${job.failures} times)` : "";
  return `${state}${times}${job.since ? `, since ${moment(1000 * job.since)} UTC` : ""}`;
}

function fleet(place, model) {
  const { peers, components, happened, error, more } = model.fleet, names = new Set(peers.map((peer) => peer.name));
  const colors = new Map(components.map((job, at) => [job.name, colorOf(at)]));
  if (error) place.append(html("p", { class: "wrong", role: "status" }, `The fleet does not answer: ${error}. Below is its last answer.`));
  place.append(html("div", { class: "peers" }, peers.map((peer) => peerCard(peer, components.filter((job) => job.peer === peer.name), colors))));
  if (more) place.append(html("p", {}, `${more} more peers and jobs are not shown.`));
  if (components.length) {
    const figure = (value, show) => (value === undefined ? "-" : show(value));
    place.append(table("Jobs; busy is the batch time divided by the trigger interval, and above 1 a job falls behind", ["job", "state", "peer", "operator", "epoch", "load", "busy", "rows that wait", "rows/s written", "output"],
      components.map((job) => [job.name, stateOf(job), names.has(job.peer) ? job.peer : job.peer ? `${job.peer}, which does not answer` : "nobody", job.operator, job.epoch < 0 ? "-" : job.epoch,
        figure(job.load, (value) => value.toFixed(2)), figure(job.busy, (value) => value.toFixed(2)), figure(job.backlog, count), figure(job.rate, short), job.output])));
  }
  for (const job of components.filter((one) => one.failures && one.problem)) place.append(html("p", { class: "wrong" }, `${job.name} failed: ${job.problem}`));
  if (happened.length) {
    place.append(html("h3", {}, "Moves and other events; newest first"));
    place.append(html("ol", { class: "decisions" }, happened.slice().reverse().map((one) => html("li", {}, [
      html("time", { datetime: new Date(one.time).toISOString() }, `${moment(1000 * one.time)} UTC `), html("strong", {}, `${one.component} `), `at ${one.peer}: ${one.what}`,
    ]))));
  }
}

const ours = (model) => model.part !== null;
const SECTIONS = [
  { id: "notes", title: "What ran", wide: true, shown: (model) => model.noted.length, draw: notes },
  { id: "facts", title: "The chosen batch", wide: true, shown: (model) => model.at, draw: facts },
  { id: "rates", title: "Rows per second", words: "Per stream, and results. Triangles are decisions of the routing; click to choose a batch.", shown: (model) => model.at, draw: rates },
  { id: "lag", title: "Source lag", words: "Kafka offsets that were not read yet when a batch began, in the partition that is furthest behind.", shown: (model) => (model.at?.sources ?? []).some((source) => lagOf(source) !== null), draw: lags },
  { id: "times", title: "Batch times", words: "Seconds by phase. addBatch is the work itself.", shown: (model) => model.at, draw: times },
  { id: "workers", title: "Workers", words: "Rows (dark) and results (pale) of each in the chosen batch. The dashed line is the mean.", shown: (model) => ours(model) && workersOf(model.part).length, draw: bars },
  { id: "heat", title: "Workers over time", words: "The share of each worker: pale is idle, the middle colour is the mean, the strong colour is twice the mean.", shown: (model) => ours(model) && workersOf(model.newest).length, draw: heat },
  { id: "decisions", title: "Decisions", words: "The changes of the routing after a batch, with reasons. Newest first.", shown: (model) => model.decisions.length, draw: decisions },
  { id: "keys", title: "Hot keys", shown: (model) => ours(model) && model.part.keys.length, draw: hotKeys },
  { id: "groups", title: "Key groups and grids", shown: (model) => model.table, draw: groups },
  { id: "time", title: "Time and lateness", shown: (model) => ours(model) && streamsOf(model).length, draw: time },
  { id: "memory", title: "Memory", words: "Bytes of state.", shown: (model) => ours(model) && workersOf(model.newest).length, draw: memory },
  { id: "recall", title: "Recall", words: "The estimated share of the exact result with this budget.", shown: (model) => ours(model) && model.part.query.recall !== undefined, draw: recalls },
  { id: "matches", title: "Matches", words: "Matches in total, and open matches.", shown: (model) => ours(model) && model.part.query.matches !== undefined, draw: matches },
  { id: "graph", title: "The compiled query", words: "The arrows have the rows per second of the chosen batch.", wide: true, shown: (model) => model.at && model.run.graph, draw: graph },
  { id: "fleet", title: "Fleet", words: "The jobs of each peer. Bars are loads, with one colour per job; the dashed line is all cores of a peer. Lines are the loads of the last minutes.", wide: true, shown: (model) => model.fleet, draw: fleet },
];
