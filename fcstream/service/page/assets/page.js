// The live page: keeps a connection to `events`, and draws what comes. It sends nothing but the name of the series that
// it shows and how far it has come, so it changes nothing.

import { data, dataWithNoise, html, moment, number, table, timeChart, when, withNoise } from "./charts.js";
import { draw } from "./forms.js";

const KEPT = 5000; // windows, as the server keeps them
const LISTED = 30;
const PANELS = 6;
const AGAIN_MS = 2000;
const SILENCE_MS = 25000; // the server says something every 10 s
const BEFORE = 20; // earlier windows whose places are drawn
const METER = { min: "0", max: "1", low: "0.8", high: "0.95", optimum: "0" };
const SIGNS = { serving: ["✓", "good"], standby: ["·", ""], starting: ["…", ""], trouble: ["✗", "bad"] };

const byId = (id) => document.getElementById(id);
const nothing = () => ({ about: {}, names: [], places: new Map(), kind: "", rows: [], newest: null });
const known = { state: null, index: [], ...nothing() };
let chosen = fromHash();
let source = null;
let cursor = "";
let version = null;
let ahead = 0; // this clock minus the server's, in milliseconds
let picked = null; // when the window opened that was picked; null for the newest one, whichever it is
let isPaused = false;
let isAsked = false;
let lastHeard = 0;
let width = 0;

// -- the connection ---------------------------------------------------------------------------------------------------

function connect() {
  disconnect();
  const wanted = new URLSearchParams({ stream: chosen.stream ?? "", after: cursor });
  if (chosen.answer) wanted.set("answer", chosen.answer);
  source = new EventSource(`events?${wanted}`);
  const mine = source;
  for (const [name, take] of Object.entries({ state: onState, index: onIndex, about: onAbout, windows: onWindows })) {
    mine.addEventListener(name, (event) => {
      lastHeard = Date.now();
      if (mine === source) take(JSON.parse(event.data));
    });
  }
  mine.onopen = () => {
    lastHeard = Date.now();
    say("Connected: what you see is live");
  };
  mine.onerror = () => mine === source && retry();
  lastHeard = Date.now();
}

function disconnect() {
  source?.close();
  source = null;
}

function retry() {
  disconnect();
  say(`Connection lost at ${when(Date.now() - (Date.now() % 1000))} UTC: trying again`);
  setTimeout(() => isPaused || source || connect(), AGAIN_MS);
}

function say(text) {
  const place = byId("connection");
  if (place.textContent !== text) place.textContent = text;
}

setInterval(() => {
  if (source && Date.now() - lastHeard > SILENCE_MS) retry();
  if (!isPaused) tellDue();
}, 1000);

// -- what comes -------------------------------------------------------------------------------------------------------

function onState(state) {
  version ??= state.version;
  if (state.version !== version) {
    location.reload();
    return;
  }
  ahead = Date.now() - state.now_ms;
  known.state = state;
  later();
}

function onIndex({ series }) {
  known.index = series;
  const isChosen = ({ stream, answer }) => stream === chosen.stream && answer === (chosen.answer ?? null);
  const nearest = series.find(({ stream }) => stream === chosen.stream) ?? series[0];
  if (nearest && !series.some(isChosen)) choose(nearest);
  later();
}

function onAbout(about) {
  known.about = about;
  later();
}

function onWindows({ kind, names, whole, last, cursor: reached, points, newest }) {
  if (whole) known.rows = [];
  Object.assign(known, { kind, names, places: new Map(names.map((name, k) => [name, k])) });
  const until = known.rows.at(-1)?.open ?? -Infinity;
  for (const [open, close, reason, values, sigmas, count, rho, spent, labels] of points) {
    if (open > until) known.rows.push({ open, close, reason, values, sigmas, count, rho, spent, labels });
  }
  if (known.rows.length > KEPT) known.rows = known.rows.slice(-KEPT);
  if (last) {
    known.newest = newest;
    cursor = reached;
  }
  later();
}

function choose({ stream, answer }) {
  if (stream === chosen.stream && (answer ?? null) === (chosen.answer ?? null)) return;
  chosen = { stream, answer: answer ?? null };
  Object.assign(known, nothing());
  cursor = "";
  picked = null;
  byId("number").replaceChildren();
  const hash = new URLSearchParams({ stream });
  if (answer) hash.set("answer", answer);
  history.replaceState(null, "", `#${hash}`);
  if (!isPaused) connect();
  later();
}

function fromHash() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  return { stream: wanted.get("stream"), answer: wanted.get("answer") };
}

// -- drawing ----------------------------------------------------------------------------------------------------------

function later() {
  if (isAsked) return;
  isAsked = true;
  requestAnimationFrame(() => {
    isAsked = false;
    drawAll();
  });
}

function drawAll() {
  drawStreams();
  drawChoices();
  const shown = known.rows.slice(-Number(byId("range").value));
  const at = drawCursor(shown);
  drawCharts(shown, at);
  drawValue(shown, at);
  drawRefusals();
  drawBudget(shown);
  drawLast();
  drawExact();
}

// Puts children in place of others, unless they say the same, so that nobody's selection is lost for nothing.
function put(place, ...children) {
  const holder = html("div", {}, ...children);
  if (place.shown === holder.innerHTML) return;
  place.shown = holder.innerHTML;
  place.replaceChildren(...holder.childNodes);
}

function drawStreams() {
  if (!known.state) return;
  byId("version").textContent = known.state.version;
  const rows = known.state.streams.map((each) => {
    const [sign, tone] = SIGNS[each.state] ?? ["?", ""];
    const cells = [
      ["state", html("span", { class: tone }, html("span", { "aria-hidden": "true" }, `${sign} `), each.state)],
      ["next window", html("span", { class: "due", "data-due": each.due_ms, "data-state": each.state })],
      ["last window closed", each.last_close_ms === null ? "–" : moment(each.last_close_ms)],
      ["released", data(each.released)],
      ["refused", data(each.refused)],
      ["restarts", data(each.restarts)],
    ];
    return html(
      "tr",
      {},
      html("th", { scope: "row" }, each.name),
      ...cells.map(([head, cell]) => html("td", { "data-head": head }, cell)),
    );
  });
  put(byId("streams"), ...rows);
  const notes = known.state.streams.flatMap(({ name, state, trouble, standby, warnings }) => [
    ...(trouble && state !== "starting" ? [html("li", { class: "bad" }, `${name} does not work now: ${trouble}`)] : []),
    ...(standby ? [html("li", {}, `${name} stands by: ${standby}`)] : []),
    ...warnings.map((text) => html("li", { class: "warm" }, `${name}, warning: ${text}`)),
  ]);
  put(byId("notes"), ...notes);
  tellDue();
}

function tellDue() {
  const now = Date.now() - ahead;
  for (const each of document.querySelectorAll(".due")) {
    const due = each.dataset.due;
    let text = "–";
    if (due !== undefined && each.dataset.state !== "standby") {
      const left = (Number(due) - now) / 1000;
      text = left >= -1 ? `due in ${span(Math.max(0, left))}` : `late by ${span(-left)}`;
    }
    if (each.textContent !== text) each.textContent = text;
    each.classList.toggle("bad", text.startsWith("late"));
  }
}

function span(seconds) {
  const sizes = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of sizes) {
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

function options(select, entries, value) {
  const text = JSON.stringify(entries);
  if (select.shown !== text) {
    select.shown = text;
    select.replaceChildren(...entries.map(([key, name]) => html("option", { value: key }, name)));
  }
  if (entries.some(([key]) => key === value)) select.value = value;
}

function drawChoices() {
  const streams = [...new Set(known.index.map((each) => each.stream))];
  options(byId("stream"), streams.map((name) => [name, name]), chosen.stream);
  const answers = known.index.filter((each) => each.stream === chosen.stream);
  options(byId("answer"), answers.map((each) => [each.answer ?? "", each.answer ?? each.kind]), chosen.answer ?? "");
  byId("answer-label").hidden = answers.length < 2;
  const names = namesNow();
  const many = names.length > PANELS && known.kind !== "quantiles";
  byId("number-label").hidden = !many;
  options(byId("number"), many ? names.map((name) => [name, name]) : [], byId("number").value || names[0]);
  byId("nothing").hidden = known.rows.length > 0;
}

// The names of numbers; where each window has its own, those of the newest one.
function namesNow() {
  const row = known.rows.findLast((each) => each.values);
  return row?.labels ?? known.names;
}

// A number of a window and its sigma.
function numberOf(row, name) {
  const at = row.labels ? row.labels.indexOf(name) : (known.places.get(name) ?? -1);
  if (!row.values || at < 0 || at >= row.values.length) return [null, null];
  return [row.values[at], Array.isArray(row.sigmas) ? row.sigmas[at] : row.sigmas];
}

function drawCursor(shown) {
  const slider = byId("cursor");
  slider.max = String(Math.max(0, shown.length - 1));
  slider.disabled = shown.length === 0;
  const at = picked === null ? shown.length - 1 : Math.max(0, shown.findIndex((row) => row.open === picked));
  slider.value = String(Math.max(0, at));
  const text = at < 0 ? "" : told(shown[at]);
  slider.setAttribute("aria-valuetext", text);
  byId("readout").textContent = text;
  byId("readout").hidden = at < 0;
  return at;
}

function pick(shown, index) {
  picked = index >= shown.length - 1 ? null : shown[index].open;
  later();
}

function told(row) {
  const time = `${when(row.open)} to ${when(row.close)} UTC`;
  if (row.reason) return `${time}: refused, ${row.reason}`;
  const names = row.labels ?? known.names;
  const few = names.slice(0, PANELS).map((name) => `${name} ${withNoise(...numberOf(row, name))}`);
  const more = names.length > PANELS ? [`and ${names.length - PANELS} more`] : [];
  const count = row.count === null || known.kind === "count" ? [] : [`${number(row.count)} records, a noisy number`];
  return `${time}: ${[...few, ...more, ...count].join("; ") || "released"}`;
}

function drawCharts(shown, at) {
  const host = byId("charts");
  host.replaceChildren();
  if (!shown.length) return;
  const line = (name) => {
    const found = shown.map((row) => numberOf(row, name));
    return { values: found.map(([value]) => value), sigmas: found.map(([, sigma]) => sigma) };
  };
  const about = { windows: shown, cursor: picked === null ? -1 : at, onPick: (index) => pick(shown, index) };
  const names = namesNow();
  if (known.kind === "quantiles") {
    const bands = Array.from({ length: Math.floor(names.length / 2) }, (_, k) => [k, names.length - 1 - k]);
    timeChart(host, { ...about, title: names.join(", "), lines: names.map(line), bands });
  } else {
    const wanted = names.length > PANELS ? [byId("number").value || names[0]] : names;
    for (const name of wanted) timeChart(host, { ...about, title: name, lines: [line(name)] });
  }
  if (known.kind !== "count" && shown.some((row) => row.count !== null)) {
    const counts = { values: shown.map((row) => row.count), sigmas: null };
    timeChart(host, { ...about, title: "records in a window (a noisy number, drawn without its noise)", lines: [counts] });
  } else if (!names.length) {
    timeChart(host, { ...about, title: "windows", lines: [{ values: shown.map(() => null), sigmas: null }] });
  }
  const bars = "Bars, or bands, are two standard deviations of the noise (about 95%), on each side.";
  const bands = known.kind === "quantiles" ? "Bands lie between pairs of quantiles." : bars;
  byId("legend").textContent = `${bands} Marks below a chart are refusals.`;
}

function drawValue(shown, at) {
  const host = byId("value");
  const row = shown[at];
  const details = known.newest;
  const isNewest = !row || !details || row.open === details.open_ms;
  const isListed = details && (details.form === "numbers" || details.form === "bars") && known.kind !== "synthetic";
  let made = details;
  if (row?.values && !isNewest && (isListed || !details)) made = ofRow(row, details);
  const key = JSON.stringify(made) + (made?.form === "places" ? at + shown.length : "");
  if (host.shown === key) return;
  host.shown = key;
  if (!made) {
    host.replaceChildren();
    byId("value-about").textContent = known.rows.length ? "No window that is kept has a value." : "";
    return;
  }
  const which = made === details ? "The newest window with a value" : "The window that you chose";
  const many = made.rows_drawn ? ` Shares of ${number(made.rows_drawn)} synthetic rows, which belong to nobody.` : "";
  byId("value-about").textContent = `${which}, ${when(made.open_ms)} to ${when(made.close_ms)} UTC.${many}`;
  draw(host, made, { before: made.form === "places" ? earlier(made) : [] });
}

// What the history knows of a window: its numbers, by name.
function ofRow(row, details) {
  const names = row.labels ?? known.names;
  const heads = new Set(names.map((name) => name.split("/")[0]));
  const short = (name) => (heads.size === 1 && name.includes("/") ? name.slice(name.indexOf("/") + 1) : name);
  const rows = names.map((name) => [short(name), ...numberOf(row, name)]);
  const title = details?.groups?.[0]?.title ?? known.kind;
  return { form: details?.form ?? "numbers", groups: [{ title, rows }], open_ms: row.open, close_ms: row.close };
}

// The places of earlier windows, as far as their points have them.
function earlier(details) {
  const width = details.features.length;
  const rows = known.rows.filter((row) => row.values && row.open < details.open_ms).slice(-BEFORE);
  return rows.flatMap(({ values }) =>
    Array.from({ length: Math.floor(values.length / width) }, (_, i) => values.slice(i * width, i * width + 2)),
  );
}

function drawRefusals() {
  const found = new Map();
  for (const row of known.rows) {
    if (row.reason) found.set(row.reason, { count: (found.get(row.reason)?.count ?? 0) + 1, last: row });
  }
  const total = known.rows.length;
  const refused = [...found.values()].reduce((sum, each) => sum + each.count, 0);
  const said = `${number(refused)} of ${number(total)} windows that are kept were refused.`;
  byId("refusals-about").textContent = total ? said : "";
  const rows = [...found].sort((one, two) => two[1].count - one[1].count);
  const heads = ["reason", "#windows", "last", "what helps"];
  const cells = rows.map(([reason, { count, last }]) => [
    reason,
    data(count),
    moment(last.open),
    prose(known.about.hints?.[reason] || "The package that declares this kind of release says what helps."),
  ]);
  put(byId("refusals"), ...(rows.length ? [table(null, heads, cells, { class: "stack" })] : []));
}

// A text whose parts between backticks are code.
function prose(text) {
  const parts = text.split(/`([^`\n]*)`/);
  return html("span", {}, ...parts.map((part, i) => (i % 2 ? html("code", {}, part) : part)));
}

const short = (x) => (x === null ? "unbounded" : number(Number(x.toPrecision(3))));

function drawBudget(shown) {
  const budget = known.about.budget;
  const place = byId("budget");
  const host = byId("burn");
  host.replaceChildren();
  if (!budget) {
    put(place);
    return;
  }
  const heads = ["whose", "guarantee, for ever", "spent", "remaining", "runs out"];
  const promise = ({ guarantee: { rho, delta, epsilon, at_delta: at }, cap }) =>
    `ρ ${number(rho)}, δ ${number(delta)}: ε ${short(epsilon)} at δ ${number(at)}` +
    (cap.rho === rho ? "" : `, of which this key may spend ρ ${number(cap.rho)}`);
  const rows = budget.gauges.map(({ whose, guarantee, cap, spent, remaining, outlook }) => [
    whose,
    promise({ guarantee, cap }),
    html("span", {}, "ρ ", data(spent.rho)),
    html("span", {}, "ρ ", data(remaining.rho)),
    outlook,
  ]);
  const group = budget.group ? `All streams of the group ${budget.group} share it.` : null;
  const meters = budget.gauges.map(({ whose, share, state }) => {
    if (state === "own_filters") {
      return html("p", {}, "Each slice of time has a budget of its own and may use all of it: that stops nothing.");
    }
    const label = `${whose}: ${(100 * share).toFixed(share < 0.1 ? 2 : 1)} % spent`;
    return html("p", {}, html("label", {}, `${label} `, html("meter", { ...METER, value: String(share) }, label)));
  });
  put(place, group && html("p", {}, group), ...meters, table(null, heads, rows, { class: "stack" }));
  for (const gauge of budget.gauges) {
    const values = shown.length ? leftOf(gauge, shown) : null;
    if (!values) continue;
    const title = `What is left of ρ after each window: ${gauge.whose}`;
    timeChart(host, { title, windows: shown, lines: [{ values, sigmas: null }], cap: gauge.cap.rho, cursor: -1 });
  }
  const dashed = "Dashed lines are what there was to spend, at which budgets began.";
  if (host.childElementCount) host.append(html("p", { class: "made" }, dashed));
}

// What a privacy filter had left after each window; null where that is not one line, or the windows do not tell.
function leftOf({ block, state, cap, remaining }, shown) {
  if (block !== "total") return state === "own_filters" ? null : shown.map((row) => cap.rho - row.spent);
  if (known.index.filter((each) => each.stream === chosen.stream).length > 1) return null;
  let left = remaining.rho;
  return shown.map((row) => row.rho).reverse().map((rho) => (left += rho) - rho).reverse();
}

function drawLast() {
  const names = namesNow();
  const listed = names.length <= PANELS ? names : [];
  const rows = known.rows.slice(-LISTED).reverse();
  const heads = ["window", "result", ...listed.map((name) => `#${name}`), "#records (noisy)", "#ρ"];
  const cells = rows.map((row) => [
    html("span", { class: "when" }, moment(row.open)),
    row.reason ? html("span", { class: "warm" }, `refused: ${row.reason}`) : "released",
    ...listed.map((name) => dataWithNoise(...numberOf(row, name))),
    data(row.count),
    data(row.rho),
  ]);
  const made = table(null, heads, cells);
  put(byId("last"), ...made.childNodes);
}

function drawExact() {
  const found = (known.state?.streams ?? []).filter((each) => each.exact);
  byId("exact-section").hidden = found.length === 0;
  const made = found.map(({ name, exact }) =>
    table(name, ["what", "#number"], Object.entries(exact).map(([what, n]) => [what, data(n)])),
  );
  put(byId("exact"), ...made);
}

// -- hands ------------------------------------------------------------------------------------------------------------

byId("stream").addEventListener("change", ({ target }) => {
  choose(known.index.find((each) => each.stream === target.value));
});
byId("answer").addEventListener("change", ({ target }) => {
  choose({ stream: chosen.stream, answer: target.value || null });
});
byId("number").addEventListener("change", later);
byId("range").addEventListener("change", later);
byId("cursor").addEventListener("input", ({ target }) => {
  pick(known.rows.slice(-Number(byId("range").value)), Number(target.value));
});
byId("pause").addEventListener("click", ({ target }) => {
  isPaused = !isPaused;
  target.setAttribute("aria-pressed", String(isPaused));
  if (isPaused) {
    disconnect();
    say("Paused: what you see is not live");
  } else connect();
});
new ResizeObserver(() => {
  if (document.body.clientWidth !== width) later();
  width = document.body.clientWidth;
}).observe(document.body);
connect();
