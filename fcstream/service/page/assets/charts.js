// Elements, numbers and times as text, and charts over time in plain SVG. Text goes into text nodes and attributes
// only, so nothing that a stream is called can become markup.

const NS = "http://www.w3.org/2000/svg";
const MANY = 120; // windows up to which each has an error bar of its own
const HEIGHT = 168;
const MARGIN = { left: 62, right: 12, top: 10, bottom: 30 };
export const WIDTHS = 2; // standard deviations of the noise, on each side
const STEPS_S = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 172800, 604800, 2592000];

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export function html(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return filled(document.createElementNS(NS, name), attributes, children);
}

const usual = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 6 });
const rough = new Intl.NumberFormat("en-US", { minimumSignificantDigits: 2, maximumSignificantDigits: 2 });

function written(x, format, digits) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  if (size === 0 || (size >= 1e-4 && size < 1e12)) return format.format(x + 0);
  return x.toExponential(digits).replace(/\.?0+e/, "e");
}

// A number with as many decimals as two digits of its noise have.
function fitted(x, sigma) {
  const places = 1 - Math.floor(Math.log10(WIDTHS * sigma));
  if (typeof x !== "number" || !(sigma > 0) || places < 0 || places > 12 || Math.abs(x) >= 1e12) return number(x);
  const format = { minimumFractionDigits: places, maximumFractionDigits: places };
  return (Number(x.toFixed(places)) + 0).toLocaleString("en-US", format);
}

export const number = (x) => written(x, usual, 4);
export const noise = (sigma) => written(WIDTHS * sigma, rough, 1);

export function data(x, sigma = null) {
  return x === null || x === undefined ? "–" : html("data", { value: String(x) }, fitted(x, sigma));
}

export function dataWithNoise(value, sigma) {
  return html("span", {}, data(value, sigma), sigma ? ` ± ${noise(sigma)}` : "");
}

export function withNoise(value, sigma) {
  return sigma ? `${fitted(value, sigma)} ± ${noise(sigma)}` : number(value);
}

export function iso(ms) {
  return Math.abs(ms) < 8.6e15 ? new Date(ms).toISOString() : String(ms);
}

export function when(ms) {
  const text = iso(ms);
  const fine = ms % 1000 !== 0;
  return text.replace("T", " ").replace("Z", "").slice(0, fine ? undefined : text.length - 5);
}

export function moment(ms) {
  return html("time", { datetime: iso(ms) }, when(ms));
}

export function table(caption, heads, rows, attributes = {}) {
  const found = html("table", attributes);
  if (caption) found.append(html("caption", {}, caption));
  const head = html("tr", {}, ...heads.map((text) => html("th", { scope: "col", class: numeric(text) }, plain(text))));
  const body = rows.map(([first, ...rest]) => {
    const cells = rest.map((cell, i) => {
      const own = { "data-head": plain(heads[i + 1]), class: numeric(heads[i + 1]) };
      return html("td", own, cell);
    });
    return html("tr", {}, html("th", { scope: "row" }, first), ...cells);
  });
  found.append(html("thead", {}, head), html("tbody", {}, ...body));
  return found;
}

// A head that begins with # is over numbers.
const numeric = (head) => (head.startsWith("#") ? "num" : null);
export const tick = (x) => number(Number(x.toPrecision(12)));
const plain = (head) => head.replace(/^#/, "");

// -- scales -----------------------------------------------------------------------------------------------------------

export function niceTicks(low, high, most) {
  const span = high - low;
  const rawStep = span / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rawStep));
  const step = [1, 2, 5, 10].map((k) => k * power).find((each) => each >= rawStep) ?? rawStep;
  const found = [];
  for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9 && found.length < 20; k++) found.push(k * step);
  return found;
}

function timeTicks(low, high, most) {
  const step = 1000 * (STEPS_S.find((each) => (high - low) / (1000 * each) <= most) ?? 31536000);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high && found.length < 40; at += step) found.push(at);
  return [found, step];
}

function timeLabel(ms, step) {
  const text = iso(ms);
  if (step >= 86400000) return text.slice(0, 10);
  if (step >= 60000) return text.slice(11, 16);
  return text.slice(11, 19);
}

export function linear(low, high, from, to) {
  const k = (to - from) / (high - low || 1);
  return (x) => from + (x - low) * k;
}

export function extent(values) {
  let low = Infinity;
  let high = -Infinity;
  for (const x of values) {
    if (x === null || x === undefined || !Number.isFinite(x)) continue;
    if (x < low) low = x;
    if (x > high) high = x;
  }
  if (low > high) return [0, 1];
  if (low === high) return [low - (Math.abs(low) / 100 || 1), high + (Math.abs(high) / 100 || 1)];
  const pad = (high - low) * 0.06;
  return [low - pad, high + pad];
}

// -- a chart over time ------------------------------------------------------------------------------------------------

// spec: title, windows (open, close, reason), lines of { values, sigmas } by window, bands as pairs of lines, cursor
// (the index of a window or -1), cap (a horizontal line or null), onPick(index). Returns the figure.
export function timeChart(host, spec) {
  const width = Math.max(260, host.clientWidth || 600);
  const { windows, lines } = spec;
  const found = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": summary(spec) });
  const figure = html("div", { class: "figure" }, html("h3", {}, spec.title), found);
  host.append(figure);
  if (windows.length === 0) return figure;
  const x = linear(windows[0].open, windows.at(-1).close, MARGIN.left, width - MARGIN.right);
  const bottom = HEIGHT - MARGIN.bottom;
  const y = linear(...reachOf(spec), bottom, MARGIN.top);
  axes(found, x, y, windows, width, reachOf(spec));
  const at = windows.map((each) => x((each.open + each.close) / 2));
  const isDense = windows.length > (width - MARGIN.left - MARGIN.right) * 0.75;
  for (const [low, high] of spec.bands ?? []) {
    found.append(svg("path", { class: "band", d: bandPath(at, lines[low].values, lines[high].values, y, isDense) }));
  }
  for (const line of lines) drawLine(found, at, line, y, isDense, lines.length > 1 && (spec.bands ?? []).length > 0);
  const refused = windows.flatMap((each, i) => (each.reason ? [Math.round(at[i])] : []));
  if (refused.length) {
    const marks = [...new Set(refused)].map((column) => `M${column - 1.5} ${bottom + 3}h3v5h-3z`).join("");
    found.append(svg("path", { class: "refused", d: marks }));
  }
  if (spec.cap !== null && spec.cap !== undefined) {
    found.append(svg("path", { class: "cap", d: `M${MARGIN.left} ${y(spec.cap)}H${width - MARGIN.right}` }));
  }
  if (spec.cursor >= 0 && spec.cursor < at.length) {
    found.append(svg("path", { class: "at", d: `M${at[spec.cursor].toFixed(1)} ${MARGIN.top}V${bottom}` }));
  }
  if (spec.onPick) {
    const pick = (event) => {
      const box = found.getBoundingClientRect();
      spec.onPick(nearest(at, ((event.clientX - box.left) / box.width) * width));
    };
    found.addEventListener("pointerdown", pick);
    found.addEventListener("pointermove", (event) => event.buttons === 1 && pick(event));
  }
  return figure;
}

function reachOf(spec) {
  const ends = [];
  for (const { values, sigmas } of spec.lines) {
    for (let i = 0; i < values.length; i++) {
      if (values[i] === null) continue;
      const half = WIDTHS * (sigmas?.[i] ?? 0);
      ends.push(values[i] - half, values[i] + half);
    }
  }
  if (spec.cap !== null && spec.cap !== undefined) ends.push(spec.cap, 0);
  return extent(ends);
}

function axes(found, x, y, windows, width, [low, high]) {
  const bottom = HEIGHT - MARGIN.bottom;
  for (const mark of niceTicks(low, high, 5)) {
    const level = y(mark).toFixed(1);
    found.append(svg("path", { class: "grid", d: `M${MARGIN.left} ${level}H${width - MARGIN.right}` }));
    const label = svg("text", { x: MARGIN.left - 6, y: level, "text-anchor": "end", "dominant-baseline": "middle" });
    label.append(tick(mark));
    found.append(label);
  }
  const [ticks, step] = timeTicks(windows[0].open, windows.at(-1).close, Math.max(2, width / 110));
  for (const mark of ticks) {
    const anchor = x(mark) > width - 40 ? "end" : "middle";
    const label = svg("text", { x: Math.min(x(mark), width - 2).toFixed(1), y: HEIGHT - 6, "text-anchor": anchor });
    label.append(timeLabel(mark, step));
    found.append(label);
  }
  found.append(svg("path", { class: "grid", d: `M${MARGIN.left} ${bottom}H${width - MARGIN.right}` }));
}

function drawLine(found, at, line, y, isDense, isThin) {
  const { values, sigmas } = line;
  const hasNoise = sigmas?.some((sigma) => sigma);
  const few = at.length <= MANY;
  if (hasNoise && few) {
    let bars = "";
    for (let i = 0; i < at.length; i++) {
      if (values[i] === null || !sigmas[i]) continue;
      const [low, high] = [y(values[i] - WIDTHS * sigmas[i]), y(values[i] + WIDTHS * sigmas[i])];
      bars += `M${at[i].toFixed(1)} ${low.toFixed(1)}V${high.toFixed(1)}`;
    }
    found.append(svg("path", { class: "error", d: bars }));
  } else if (hasNoise) {
    const ends = [-WIDTHS, WIDTHS].map((k) => values.map((v, i) => (v === null ? null : v + k * (sigmas[i] ?? 0))));
    found.append(svg("path", { class: "band", d: bandPath(at, ends[0], ends[1], y, isDense) }));
  }
  const path = isDense ? densePath(at, values, y) : plainPath(at, values, y);
  found.append(svg("path", { class: isThin ? "thin" : "line", d: path }));
  if (few) {
    let dots = "";
    for (let i = 0; i < at.length; i++) {
      if (values[i] === null) continue;
      dots += `M${(at[i] - 2.2).toFixed(1)} ${y(values[i]).toFixed(1)}a2.2 2.2 0 1 0 4.4 0a2.2 2.2 0 1 0-4.4 0`;
    }
    found.append(svg("path", { class: "dot", d: dots }));
  }
}

// A line that is interrupted by refused windows.
function plainPath(at, values, y) {
  let path = "";
  let isOpen = false;
  for (let i = 0; i < at.length; i++) {
    if (values[i] === null) {
      isOpen = false;
      continue;
    }
    path += `${isOpen ? "L" : "M"}${at[i].toFixed(1)} ${y(values[i]).toFixed(1)}`;
    isOpen = true;
  }
  return path;
}

// The least and the largest of each column of pixels, by column.
function columns(at, lows, highs) {
  const found = new Map();
  for (let i = 0; i < at.length; i++) {
    if (lows[i] === null || highs[i] === null) continue;
    const column = Math.round(at[i]);
    const ends = found.get(column);
    if (ends === undefined) found.set(column, [lows[i], highs[i]]);
    else {
      if (lows[i] < ends[0]) ends[0] = lows[i];
      if (highs[i] > ends[1]) ends[1] = highs[i];
    }
  }
  return [...found].sort((one, two) => one[0] - two[0]);
}

function densePath(at, values, y) {
  let path = "";
  let before = NaN;
  for (const [column, [low, high]] of columns(at, values, values)) {
    path += `${column - before <= 3 ? "L" : "M"}${column} ${y(low).toFixed(1)}V${y(high).toFixed(1)}`;
    before = column;
  }
  return path;
}

function bandPath(at, lows, highs, y, isDense) {
  const ends = isDense
    ? columns(at, lows, highs)
    : at.flatMap((column, i) => (lows[i] === null || highs[i] === null ? [null] : [[column, [lows[i], highs[i]]]]));
  let path = "";
  let part = [];
  const flush = () => {
    if (part.length === 1) part = [-1.5, 1.5].map((by) => [part[0][0] + by, part[0][1]]);
    if (part.length) {
      const upper = part.map(([column, [, high]]) => `${column.toFixed(1)} ${y(high).toFixed(1)}`);
      const lower = part.reverse().map(([column, [low]]) => `${column.toFixed(1)} ${y(low).toFixed(1)}`);
      path += `M${upper.concat(lower).join("L")}z`;
    }
    part = [];
  };
  for (const each of ends) {
    if (each === null || (isDense && part.length && each[0] - part.at(-1)[0] > 3)) flush();
    if (each !== null) part.push(each);
  }
  flush();
  return path;
}

function nearest(at, place) {
  let low = 0;
  let high = at.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (at[middle] < place) low = middle + 1;
    else high = middle;
  }
  return low > 0 && place - at[low - 1] < at[low] - place ? low - 1 : low;
}

// What somebody who cannot see the chart should know.
function summary({ title, windows, lines }) {
  if (windows.length === 0) return `${title}: no windows`;
  const values = lines[0].values.filter((value) => value !== null);
  const span = `${windows.length} windows from ${when(windows[0].open)} to ${when(windows.at(-1).close)}`;
  if (values.length === 0) return `${title}: ${span}, none with a value`;
  const [low, high] = values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  return `${title}: ${span}, between ${number(low)} and ${number(high)}, last ${number(values.at(-1))}`;
}
