// The numbers of one window, in a form that fits the kind of release: tables with bars, contingency tables, places in
// the plane, matrices. Every drawing stands beside a table with the same numbers.

import { WIDTHS, data, dataWithNoise, extent, html, linear, niceTicks, noise, svg, table, tick } from "./charts.js";

const PLANE = 360;

export function draw(host, details, options = {}) {
  const focused = [...host.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
  const scrolled = document.activeElement.scrollLeft;
  host.replaceChildren();
  if (details.form === "places") places(host, details, options);
  else if (details.form === "matrix") matrix(host, details);
  else {
    for (const each of details.tables ?? []) contingency(host, each, details.sigma);
    for (const group of details.groups ?? []) bars(host, group, details.form === "numbers");
  }
  if (details.left_out) host.append(html("p", { class: "made" }, `${details.left_out} more are not shown here.`));
  const again = host.querySelectorAll("[tabindex]")[focused]; // what a keyboard had reached stays reached
  again?.focus({ preventScroll: true });
  if (again) again.scrollLeft = scrolled;
}

// -- numbers with bars ------------------------------------------------------------------------------------------------

function bars(host, group, isPlain) {
  const rows = group.rows;
  const ends = rows.flatMap(([, value, sigma]) => [value - WIDTHS * (sigma ?? 0), value + WIDTHS * (sigma ?? 0)]);
  const low = Math.min(0, ...ends);
  const high = Math.max(0, ...ends);
  const hasNoise = rows.some(([, , sigma]) => sigma);
  const isDrawn = !isPlain && rows.length > 1;
  const heads = ["name", "#value", ...(hasNoise ? ["#noise (2 σ)"] : [])];
  const cells = rows.map(([name, value, sigma]) => {
    const around = sigma ? `± ${noise(sigma)}` : "–";
    return [name, data(value, sigma), ...(hasNoise ? [around] : [])];
  });
  const made = table(group.title, heads, cells, { class: "bars" });
  if (isDrawn) {
    made.tHead.rows[0].append(html("td", {}));
    [...made.tBodies[0].rows].forEach((row, i) => row.append(html("td", { class: "drawn" }, bar(rows[i], low, high))));
  }
  host.append(html("div", { class: "wide group", role: "group", tabindex: "0", "aria-label": group.title }, made));
}

function bar([, value, sigma], low, high) {
  const x = linear(low, high, 0, 200);
  const [from, to] = [Math.min(x(0), x(value)), Math.max(x(0), x(value))];
  const found = svg("svg", { viewBox: "0 0 200 14", preserveAspectRatio: "none", height: "14", "aria-hidden": "true" });
  found.append(svg("rect", { class: "dot", x: from, y: 2, width: Math.max(0.5, to - from), height: 10 }));
  if (sigma) {
    const ends = [-WIDTHS, WIDTHS].map((k) => x(value + k * sigma));
    const width = Math.max(0.5, ends[1] - ends[0]);
    found.append(svg("rect", { class: "refused", x: ends[0], y: 6, width, height: 2 }));
  }
  return found;
}

// -- contingency tables and matrices ----------------------------------------------------------------------------------

function contingency(host, { title, rows, columns, cells }, sigma) {
  const most = Math.max(1e-12, ...cells.flat().map(Math.abs));
  const caption = `${title.join(" and ")}${sigma ? ` (each ± ${noise(sigma)} at most)` : ""}`;
  const found = table(
    caption,
    [`${title[0]} \\ ${title[1]}`, ...columns.map((name) => `#${name}`)],
    rows.map((name, i) => [name, ...cells[i].map((value) => data(value))]),
  );
  shade(found, cells, most);
  host.append(html("div", { class: "wide", role: "group", tabindex: "0", "aria-label": caption }, found));
}

function matrix(host, { features, cells, sigmas }) {
  const deviations = cells.map((row, i) => Math.sqrt(Math.max(0, row[i])));
  const related = cells.map((row, i) => row.map((value, j) => value / (deviations[i] * deviations[j])));
  const heads = ["feature", ...features.map((name) => `#${name}`)];
  const values = cells.map((row, i) => [
    features[i],
    ...row.map((value, j) => dataWithNoise(value, sigmas[i]?.[j])),
  ]);
  const covariances = table("Covariances", heads, values);
  const correlations = table(
    "Correlations",
    heads,
    related.map((row, i) => [features[i], ...row.map((value) => (Number.isFinite(value) ? value.toFixed(2) : "–"))]),
  );
  shade(correlations, related, 1);
  for (const [found, name] of [[covariances, "Covariances"], [correlations, "Correlations"]]) {
    host.append(html("div", { class: "wide", role: "group", tabindex: "0", "aria-label": name }, found));
  }
}

function shade(found, cells, most) {
  [...found.tBodies[0].rows].forEach((row, i) => {
    [...row.cells].slice(1).forEach((cell, j) => {
      const share = Math.min(1, Math.abs(cells[i][j]) / most);
      cell.classList.add("cell");
      cell.style.setProperty("--share", Number.isFinite(share) ? share.toFixed(3) : "0");
    });
  });
}

// -- places -----------------------------------------------------------------------------------------------------------

function places(host, details, { before = [] }) {
  const { features, places: found } = details;
  if (features.length >= 2) host.append(plane(details, before));
  const hasSize = found.some((place) => place.size !== null);
  const heads = ["number", ...features.map((name) => `#${name}`), ...(hasSize ? ["#records or weight"] : [])];
  const rows = found.map((place, i) => [
    String(i),
    ...place.at.map((value, k) => dataWithNoise(value, place.sigma?.[k])),
    ...(hasSize ? [data(place.size)] : []),
  ]);
  const region = { class: "wide", role: "group", tabindex: "0", "aria-label": "Places" };
  host.append(html("div", region, table("Places", heads, rows)));
}

// The first two features; earlier windows are faint, bars are two standard deviations, rings the widths of components.
function plane({ features, places: found }, before) {
  const ends = [0, 1].map((k) =>
    extent([
      ...found.flatMap(({ at, sigma, width }) => {
        const reach = Math.max(WIDTHS * (sigma?.[k] ?? 0), width?.[k] ?? 0);
        return [at[k] - reach, at[k] + reach];
      }),
      ...before.map((point) => point[k]),
    ]),
  );
  const x = linear(...ends[0], 60, PLANE * 1.6 - 12);
  const y = linear(...ends[1], PLANE - 40, 10);
  const label = `${found.length} places by ${features[0]} and ${features[1]}; their numbers are in the table below`;
  const drawing = svg("svg", { viewBox: `0 0 ${PLANE * 1.6} ${PLANE}`, role: "img", "aria-label": label });
  const middle = { "text-anchor": "middle" };
  for (const mark of niceTicks(...ends[0], 5)) {
    drawing.append(svg("path", { class: "grid", d: `M${x(mark)} 10V${PLANE - 40}` }));
    drawing.append(svg("text", { x: x(mark), y: PLANE - 24, ...middle }, tick(mark)));
  }
  for (const mark of niceTicks(...ends[1], 5)) {
    drawing.append(svg("path", { class: "grid", d: `M60 ${y(mark)}H${PLANE * 1.6 - 12}` }));
    const own = { x: 54, y: y(mark), "text-anchor": "end", "dominant-baseline": "middle" };
    drawing.append(svg("text", own, tick(mark)));
  }
  drawing.append(svg("text", { x: PLANE * 0.8, y: PLANE - 6, ...middle }, features[0]));
  const turned = { x: 14, y: PLANE / 2, transform: `rotate(-90 14 ${PLANE / 2})` };
  drawing.append(svg("text", { ...turned, ...middle }, features[1]));
  for (const point of before) drawing.append(svg("circle", { class: "faint", cx: x(point[0]), cy: y(point[1]), r: 3 }));
  const most = Math.max(1e-12, ...found.map(({ size }) => size ?? 0));
  for (const { at, sigma, size, width } of found) {
    const radius = size === null ? 5 : 3 + 7 * Math.sqrt(Math.max(0, size) / most);
    if (width) {
      const [rx, ry] = [Math.abs(x(width[0]) - x(0)), Math.abs(y(width[1]) - y(0))];
      drawing.append(svg("ellipse", { class: "ring", cx: x(at[0]), cy: y(at[1]), rx, ry }));
    }
    drawing.append(svg("circle", { class: "dot", cx: x(at[0]), cy: y(at[1]), r: radius }));
    if (sigma) {
      const [left, right] = [x(at[0] - WIDTHS * sigma[0]), x(at[0] + WIDTHS * sigma[0])];
      const [low, high] = [y(at[1] - WIDTHS * sigma[1]), y(at[1] + WIDTHS * sigma[1])];
      drawing.append(svg("path", { class: "error", d: `M${left} ${y(at[1])}H${right}M${x(at[0])} ${low}V${high}` }));
    }
  }
  const signs = [
    before.length ? "Faint: earlier windows." : null,
    found.some(({ sigma }) => sigma) ? "Crosses: two standard deviations of the noise." : null,
    found.some(({ width }) => width) ? "Rings: one standard deviation of the records of a component." : null,
  ];
  const legend = html("p", { class: "made" }, signs.filter(Boolean).join(" "));
  return html("div", { class: "figure plane" }, drawing, legend);
}
