"use strict";
// The page of the explorer: one state, drawn as a whole after every change.

const find = id => document.getElementById(id);
const DISTANCE = 40; // pixels of dragging for a change of 1
const ring = (count, radius = 110) => Array.from({length: count}, (_, i) => [220 + radius * Math.cos(2 * Math.PI * i / count - Math.PI / 2), 150 + radius * Math.sin(2 * Math.PI * i / count - Math.PI / 2)]);
const row = (count, y = 150) => Array.from({length: count}, (_, i) => [40 + 360 * i / (count - 1), y]);
const both = edges => edges.flatMap(([a, b]) => [[a, b], [b, a]]);
const PRESETS = {
  "two communities": [[...ring(5, 85).map(([x, y]) => [x - 110, y]), ...ring(5, 85).map(([x, y]) => [x + 110, y])], both([...[0, 1, 2, 3, 4].flatMap(a => [0, 1, 2, 3, 4].filter(b => b > a && (a + b) % 4).flatMap(b => [[a, b], [a + 5, b + 5]])), [1, 9]])],
  "path": [row(6), both([0, 1, 2, 3, 4].map(i => [i, i + 1]))],
  "ring": [ring(8), both(ring(8).map((_, i) => [i, (i + 1) % 8]))],
  "star": [[[220, 150], ...ring(6)], both([1, 2, 3, 4, 5, 6].map(i => [0, i]))],
  "grid": [Array.from({length: 12}, (_, i) => [70 + 100 * (i % 4), 60 + 90 * Math.floor(i / 4)]), both(Array.from({length: 12}, (_, i) => [[i, i + 1], [i, i + 4]].filter(([a, b]) => b < 12 && (b !== a + 1 || b % 4))).flat())],
  "directed ring": [ring(7), ring(7).map((_, i) => [i, (i + 1) % 7])],
  "path and two nodes alone": [[...row(5, 100), [150, 220], [290, 220]], both([0, 1, 2, 3].map(i => [i, i + 1]))],
};
const SIGNAL = [1, -2, 4, 0.5, -1, 2, 0, -0.5, 1.5, -3, 3, -1.5];
const state = {
  places: [], edges: [], x: [], selected: 0, pending: null, activation: BANK, hops: 2, closed: false, unshifted: false, beta: 1,
  weights: [], parameters: {}, normalize: "", operations: ["max"], taps: [], bias: 0, then: "gelu",
  time: 0, // in rounds; a whole number is the end of a round
};

function load(name) {
  const [places, edges] = PRESETS[name];
  Object.assign(state, {places: places.map(place => [...place]), edges: edges.map(edge => [...edge, 1]), x: places.map((_, i) => SIGNAL[i % SIGNAL.length]), selected: 0, pending: null});
}

function problemOf() {
  const {edges, x, activation, hops, closed, unshifted, beta, weights, parameters, normalize, operations, taps, bias, then} = state;
  const shared = {nodes: x.length, edges, x, activation, hops, closed, weights, normalize: normalize || null};
  if (activation === BANK) return {...shared, operations, taps, bias, then};
  return {...shared, beta, parameters, unshifted: unshifted && activation.endsWith("-ga")};
}

/** Blue below 0, red above, white at 0. */
function colour(value, limit) {
  const share = Math.max(-1, Math.min(1, limit ? value / limit : 0)), end = share < 0 ? [33, 102, 172] : [178, 24, 43];
  const [red, green, blue] = end.map(part => Math.round(247 + (part - 247) * Math.abs(share)));
  return {fill: `rgb(${red},${green},${blue})`, ink: Math.abs(share) > 0.6 ? "#fff" : "#111"};
}

const short = value => Number.isFinite(value) ? String(+value.toPrecision(3)) : "–";
const brief = value => Math.abs(value) < 10 ? String(+value.toFixed(2)) : short(value); // fits into a node
const limitOf = values => Math.max(1e-9, ...values.map(Math.abs));

/** A picture: edges, lines to what was chosen, nodes with values, and what lies over them. */
function draw(id, values, limit, {chosen = [], over = "", heard = null} = {}) {
  const svg = find(id), has = new Set(state.edges.map(([a, b]) => `${a},${b}`)), parts = [];
  parts.push(`<defs><marker id="arrow-${id}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>`);
  const between = (a, b, attributes) => {
    const [[x1, y1], [x2, y2]] = [state.places[a], state.places[b]], length = Math.hypot(x2 - x1, y2 - y1) || 1, gap = 18 / length;
    parts.push(`<line x1="${x1}" y1="${y1}" x2="${x2 - gap * (x2 - x1)}" y2="${y2 - gap * (y2 - y1)}" ${attributes}/>`);
  };
  for (const [a, b] of state.edges) {
    const twoWay = has.has(`${b},${a}`), isHeard = heard !== null && (b === heard || (twoWay && a === heard));
    if (a !== b && (!twoWay || a < b)) between(a, b, `class="edge ${isHeard ? "heard" : ""}" ${twoWay ? "" : `marker-end="url(#arrow-${id})"`}`);
  }
  for (const {node, from} of chosen) if (node !== from) between(from, node, `class="chosen ${has.has(`${from},${node}`) ? "" : "far"}" data-from="${from}"`);
  state.places.forEach(([x, y], i) => {
    const {fill, ink} = colour(values ? values[i] : 0, limit);
    const marked = (i === state.selected ? "selected " : "") + (i === state.pending && id === "signal" ? "pending" : "");
    const said = `node ${i}${values ? `, ${short(values[i])}` : ""}`, reached = i === state.selected ? 0 : -1; // Tab stops once in a picture
    parts.push(`<circle cx="${x}" cy="${y}" r="19" data-node="${i}" class="${marked}" fill="${fill}" role="button" tabindex="${reached}" aria-label="${said}"/><text x="${x}" y="${y + 4}" fill="${ink}">${values ? brief(values[i]) : ""}</text>`);
  });
  const focused = svg.contains(document.activeElement);
  svg.innerHTML = parts.join("") + over;
  if (focused) svg.querySelector("circle[tabindex='0']")?.focus({preventScroll: true});
}

/** The messages of the round under way, with the numbers that the selected node receives, and what nodes have computed. */
function drawRounds(problem, rounds, limit) {
  const time = Math.min(state.time, rounds.length), place = Math.ceil(time) - 1, round = rounds[place];
  const arrived = round && time === place + 1, share = round ? time - place : 0, node = state.selected, parts = [];
  const held = !round ? problem.x : arrived && round.shift ? round.shift : round.areCounts ? problem.x : round.sent;
  if (round && !arrived) {
    const moving = problem.edges.filter(([a, b]) => a !== b).sort((one, other) => (one[1] === node) - (other[1] === node));
    for (const [a, b] of moving) {
      const [[x1, y1], [x2, y2]] = [state.places[a], state.places[b]], length = Math.hypot(x2 - x1, y2 - y1) || 1, isHeard = b === node;
      const along = (24 + share * (length - 48)) / length, beside = 5 / length; // from rim to rim, each way in its own lane
      const x = x1 + along * (x2 - x1) - beside * (y2 - y1), y = y1 + along * (y2 - y1) + beside * (x2 - x1);
      parts.push(`<circle class="message ${isHeard ? "heard" : ""}" cx="${x}" cy="${y}" r="${isHeard ? 6 : 4}" data-from="${a}" data-to="${b}"/>`);
      if (isHeard) parts.push(`<text class="told" x="${x}" y="${y - 9}">${said(round, a)}</text>`);
    }
  } else if (round && round.functions.length) {
    const [shown] = round.functions;
    state.places.forEach(([x, y], i) => {
      const label = brief(shown.values[i]), width = 12 + 7 * label.length;
      parts.push(`<rect class="badge" x="${x + 8}" y="${y - 34}" width="${width}" height="18" rx="4"/><text class="badge" x="${x + 8 + width / 2}" y="${y - 21}">${label}</text>`);
    });
  }
  draw("rounds", held, limit, {over: parts.join(""), heard: round && !arrived ? node : null});
  find("roundCaption").textContent = captionOf(rounds, place, arrived);
  find("back").disabled = time === 0;
  find("next").disabled = time >= rounds.length;
  find("play").disabled = rounds.length === 0;
  showFormed(problem, rounds, place, arrived);
}

const said = (round, node) => round.areCounts ? `${round.sent[node]} values` : short(round.sent[node]);

function captionOf(rounds, place, arrived) {
  if (!rounds.length) return "no messages: each node looks at its own value";
  const count = `round ${place + 1} of ${rounds.length}`, round = rounds[place];
  if (!round) return `${rounds.length} round${rounds.length > 1 ? "s" : ""} of messages: press play`;
  if (!arrived) return `${count}: every node sends ${round.sentName}`;
  const [first] = round.functions, badge = first ? `; in the box the ${first.name}` : "; no function is computed";
  return `${count}: ${round.shift ? "every node holds its shift" : "received"}${badge}`;
}

/** A line for each round: what the selected node receives and computes; and the sum that makes its output. */
function showFormed(problem, rounds, place, arrived) {
  const node = state.selected, heard = [...new Set(problem.edges.filter(([a, b]) => b === node && a !== b).map(([a]) => a))].sort((a, b) => a - b);
  const names = [...new Set(rounds.flatMap(round => round.functions.map(({name}) => name)))], hasShift = rounds.some(({shift}) => shift);
  find("formedCaption").textContent = rounds.length ? `what node ${node} receives and computes` : `node ${node} receives nothing`;
  const head = rounds.length ? `<tr><th>round</th><th>receives</th>${hasShift ? "<th>shift</th>" : ""}${names.map(name => `<th>${name}</th>`).join("")}</tr>` : "";
  find("rows").innerHTML = head + rounds.map((round, r) => {
    const when = r > place || (r === place && !arrived) ? "later" : r === place ? "now" : "";
    const list = heard.map(j => `${said(round, j)} from ${j}`).join(", ") || "nothing";
    const cells = names.map(name => round.functions.filter(each => each.name === name).slice(0, 1).map(({values, from}) => `${short(values[node])}${from[node].length === 1 ? ` (of ${from[node][0]})` : ""}`)[0] ?? "none");
    return `<tr class="${when}"><td>${r + 1}</td><td>${list}</td>${hasShift ? `<td>${round.shift ? short(round.shift[node]) : "none"}</td>` : ""}${cells.map(cell => `<td>${cell}</td>`).join("")}</tr>`;
  }).join("");
  find("mixed").textContent = sumOf(problem, rounds, node);
}

/** The output of a node as the sum of its terms, with numbers. */
function sumOf(problem, rounds, node) {
  const times = (weight, value) => `${short(weight)}·${value < 0 ? `(${short(value)})` : short(value)}`, {outputs, before} = compute(problem);
  if (!(problem.activation in MIXED) && problem.activation !== BANK) return `output = ${problem.activation}(${short(problem.x[node])}) = ${short(outputs[node])}`;
  const readIn = ({sentName}, place) => /^(x|S.*x)$/.test(sentName) ? sentName : `x ${place + 1} away`;
  const functions = rounds.flatMap((round, place) => round.functions.map(({name, weight, values}) => `${times(weight, values[node])} [${name} ${readIn(round, place)}]`));
  if (problem.activation !== BANK) {
    const own = `${times(problem.beta, Math.max(problem.x[node], 0))} [ReLU]`;
    return `output = ${[own, ...functions].join(" + ")} = ${short(outputs[node])}`;
  }
  const shifts = [problem.x, ...rounds.map(({shift}) => shift)].map((values, k) => `${times(problem.taps[k], values[node])} [${["x", "Sx"][k] ?? `S${"⁰¹²³⁴⁵"[k]}x`}]`);
  const bias = problem.bias ? [`${short(problem.bias)} [b]`] : [];
  return `z = ${[...shifts, ...functions, ...bias].join(" + ")} = ${short(before[node])}; output = ${problem.then}(z) = ${short(outputs[node])}`;
}

function pythonOf(problem) {
  const list = values => `[${values.join(", ")}]`, isBank = problem.activation === BANK;
  return [
    "import torch", "import graphact", "", "torch.set_default_dtype(torch.float64)",
    `edges = torch.tensor([\n    ${list(problem.edges.map(edge => edge[0]))},\n    ${list(problem.edges.map(edge => edge[1]))},\n], dtype=torch.int64)`,
    problem.edges.every(edge => edge[2] === 1) ? `weight = torch.ones(${problem.edges.length})` : `weight = torch.tensor(${list(problem.edges.map(edge => edge[2]))})`,
    `graph = graphact.Graph.from_edge_index(edges, weight, num_nodes=${problem.nodes})`,
    ...(problem.normalize ? [`graph = graph.normalize("${problem.normalize}")`] : []),
    `x = torch.tensor(${list(problem.x)})[:, None]`,
    ...(isBank ? pythonOfBank(problem, list) : pythonOfActivation(problem, list)),
    "print(act(x, graph).squeeze(-1))",
  ].join("\n");
}

function pythonOfBank(problem, list) {
  return [
    `bank = graphact.nn.AdaptiveFilterBank(1, 1, order=${problem.hops}, ops=${list(problem.operations.map(name => `"${name}"`))}, closed=${problem.closed ? "True" : "False"})`,
    "with torch.no_grad():",
    `    bank.taps[:] = torch.tensor(${list(problem.taps)}).view(-1, 1, 1)`,
    `    bank.function_taps[:] = torch.tensor(${list(problem.weights)}).view(bank.function_taps.shape)`,
    `    bank.bias.fill_(${problem.bias})`,
    `act = graphact.nn.Sequential(bank, graphact.nn.make_activation("${problem.then}"))`,
  ];
}

function pythonOfActivation(problem, list) {
  const mixed = problem.activation in MIXED, shiftless = problem.activation.startsWith("shiftless");
  const options = mixed ? [shiftless ? "features=1" : null, `hops=${problem.hops}`, shiftless ? null : `closed=${problem.closed ? "True" : "False"}`] : [];
  if (problem.unshifted) options.push("unshifted=True");
  if (mixed) for (const [name, value] of Object.entries(problem.parameters)) options.push(`${name}=${value}`, ...(["temperature", "width"].includes(name) ? [`learn_${name}=False`] : []));
  const set = [];
  if (mixed) {
    set.push(`act.beta.fill_(${problem.beta})`);
    set.push(shiftless ? `act.weight[:] = torch.tensor(${list(problem.weights)}).view(-1, 1, 1)` : `act.weights[:] = torch.tensor(${list(problem.weights)}).view(act.weights.shape)`);
    if (shiftless) set.push("act.bias.zero_()");
  } else if (problem.activation === "prelu") set.push(`act.slope.fill_(${problem.parameters.slope})`);
  else if (problem.activation === "maxout") {
    const {a1, b1, a2, b2} = problem.parameters;
    set.push(`act.slope[:] = torch.tensor(${list([a1, a2])})`, `act.offset[:] = torch.tensor(${list([b1, b2])})`);
  }
  return [
    `act = graphact.nn.make_activation(${[`"${problem.activation}"`, ...options.filter(Boolean)].join(", ")})`,
    ...(set.length ? ["with torch.no_grad():", ...set.map(line => `    ${line}`)] : []),
  ];
}

function show() {
  const problem = problemOf(), found = compute(problem), gradient = found.jacobian[state.selected] || [], rounds = roundsOf(problem);
  const limit = limitOf([state.x, found.outputs, ...rounds.flatMap(round => [round.areCounts ? [] : round.sent, round.shift || []])].flat()); // one for all pictures of signals
  draw("signal", state.x, limit);
  drawRounds(problem, rounds, limit);
  draw("output", found.outputs, limit);
  draw("gradient", [...gradient], limitOf([...gradient]), {chosen: found.chosen.filter(({node, share}) => node === state.selected && share)});
  draw("bound", found.bounds, found.bounds && limitOf(found.bounds));
  find("gradientCaption").textContent = `gradient of the output of node ${state.selected}; lines: whose values it took`;
  find("boundCaption").textContent = found.bounds ? `Lipschitz bound of each node, at most ${short(Math.max(0, ...found.bounds))}` : "Lipschitz bound: none is certified for this activation";
  const body = find("values");
  if (body.rows.length !== state.x.length) body.innerHTML = state.x.map((_, i) => `<tr><td>${i}</td><td><input type="number" step="0.1" aria-label="value of node ${i}" data-value="${i}"></td><td></td><td></td><td></td></tr>`).join("");
  state.x.forEach((x, i) => { // in place: whoever types into a field stays in it
    const [, value, ...others] = body.rows[i].cells, shown = [found.outputs[i], gradient[i], found.bounds ? found.bounds[i] : NaN];
    body.rows[i].className = i === state.selected ? "selected" : "";
    value.firstChild.value = +x.toFixed(6);
    others.forEach((cell, place) => { cell.textContent = short(shown[place]); });
  });
  find("python").textContent = pythonOf(problem);
}

/** The inputs that belong to the function, made again when it or the hops change. */
function showControls() {
  const isBank = state.activation === BANK, isMixed = state.activation in MIXED, canBeUnshifted = state.activation.endsWith("-ga");
  const least = isBank || !(canBeUnshifted && state.unshifted) ? 1 : 0;
  state.hops = Math.max(least, Math.min(4, Math.round(state.hops)));
  find("hops").value = state.hops;
  find("hops").min = least;
  const kind = kindOf(problemOf()), terms = kind.shifts.length, old = state.weights;
  state.weights = Array.from({length: kind.operations.length * terms}, (_, i) => old[i] ?? 0.5);
  state.taps = Array.from({length: isBank ? state.hops + 1 : 0}, (_, k) => state.taps[k] ?? 0.5);
  state.parameters = {...PARAMETERS[state.activation]};
  const show = (selector, shown) => document.querySelectorAll(selector).forEach(each => { each.hidden = !shown; });
  show(".mixed", isMixed);
  show(".bank", isBank);
  show(".reads", isMixed || isBank);
  show("#unshiftedLabel", canBeUnshifted);
  show("#closedLabel", isBank || (isMixed && MIXED[state.activation].closed === undefined));
  find("hopsName").textContent = isBank ? "rounds" : "hops";
  find("operations").innerHTML = isBank ? BANK_OPERATIONS.map(name => `<label><input type="checkbox" data-operation="${name}" ${state.operations.includes(name) ? "checked" : ""}>${name}</label> `).join("") : "";
  const name = i => {
    const [operation, k] = [kind.operations[Math.floor(i / terms)], kind.shifts[i % terms]], place = kind.reads === "same" ? i % terms + 1 : k;
    return kind.operations.length > 1 || isBank ? `${operation} ${place}` : `h${place}`;
  };
  const field = (label, attribute, i, value) => `<label class="${isBank ? "full" : ""}">${label} <input type="number" step="0.1" data-${attribute}="${i}" value="${value}"></label> `;
  find("weights").innerHTML = state.taps.map((tap, k) => field(`H${k}`, "tap", k, tap)).join("") + state.weights.map((weight, i) => field(name(i), "weight", i, weight)).join("");
  find("parameters").innerHTML = Object.entries(state.parameters).map(([key, value]) => `<label class="full">${key} <input type="number" step="any" data-parameter="${key}" value="${value}"></label> `).join("");
}

const tool = () => document.querySelector("input[name=tool]:checked").value;

function removeNode(node) {
  const keep = place => place - (place > node ? 1 : 0);
  state.places.splice(node, 1);
  state.x.splice(node, 1);
  state.edges = state.edges.filter(([a, b]) => a !== node && b !== node).map(([a, b, weight]) => [keep(a), keep(b), weight]);
  state.selected = Math.min(state.selected, Math.max(0, state.x.length - 1));
}

function connect(a, b) {
  const same = (x, y) => ([from, to]) => from === x && to === y, oneWay = find("directed").checked;
  const there = state.edges.some(same(a, b));
  state.edges = state.edges.filter(edge => !same(a, b)(edge) && (oneWay || !same(b, a)(edge)));
  if (!there) state.edges.push([a, b, 1], ...(oneWay ? [] : [[b, a, 1]]));
}

function click(node) { // with the tool, in the picture of the signal
  if (tool() === "node") removeNode(node);
  else if (tool() === "connect") {
    if (state.pending === null) state.pending = node;
    else { if (state.pending !== node) connect(state.pending, node); state.pending = null; }
  }
}

function addNode(place) { state.places.push(place); state.x.push(0); }

/** What a key does at the selected node; false where it means nothing. */
function press(key, isSignal, shift) {
  const count = state.x.length, node = state.selected, up = {ArrowUp: 1, ArrowDown: -1}[key], along = {ArrowLeft: -1, ArrowRight: 1}[key];
  if (isSignal && tool() === "move" && shift && (up || along)) {
    const [x, y] = state.places[node], within = (value, most) => Math.max(17, Math.min(most - 17, value));
    state.places[node] = [within(x + 10 * (along || 0), 440), within(y - 10 * (up || 0), 300)];
  } else if (along) state.selected = (node + along + count) % count;
  else if (isSignal && up && tool() === "signal") state.x[node] = Math.round((state.x[node] + up * (shift ? 1 : 0.1)) * 100) / 100;
  else if (isSignal && key === "Enter" && tool() === "connect") click(node);
  else if (isSignal && key === "Delete" && count > 1) { state.pending = null; removeNode(node); }
  else if (isSignal && key === "+") { addNode([30 + 76 * count % 380, 275]); state.selected = count; }
  else return false;
  return true;
}

let dragged = null;
for (const id of ["signal", "rounds", "output", "gradient", "bound"]) {
  find(id).addEventListener("pointerdown", event => {
    const at = event.target.dataset.node, node = at === undefined ? null : Number(at);
    const {left, top, width} = find(id).getBoundingClientRect(), scale = 440 / width;
    if (node === null) {
      if (id === "signal" && tool() === "node") addNode([(event.clientX - left) * scale, (event.clientY - top) * scale]);
    } else if (id === "signal" && ["node", "connect"].includes(tool())) click(node);
    else {
      state.selected = node;
      if (id === "signal") dragged = {node, scale, x: event.clientX, y: event.clientY, value: state.x[node], place: [...state.places[node]]};
    }
    show();
  });
  find(id).addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || !press(event.key, id === "signal", event.shiftKey)) return;
    event.preventDefault();
    show();
  });
}
addEventListener("pointermove", event => {
  if (!dragged) return;
  if (tool() === "move") state.places[dragged.node] = [dragged.place[0] + (event.clientX - dragged.x) * dragged.scale, dragged.place[1] + (event.clientY - dragged.y) * dragged.scale];
  else state.x[dragged.node] = Math.round((dragged.value - (event.clientY - dragged.y) / DISTANCE) * 100) / 100;
  show();
});
addEventListener("pointerup", () => { dragged = null; });

addEventListener("change", event => {
  const {id, value, checked, dataset} = event.target, number = Number(value);
  if (id === "preset") load(value);
  else if (id === "normalize") state.normalize = value;
  else if (id === "closed") state.closed = checked;
  else if (event.target.name === "tool") state.pending = null;
  else if (id === "activation") { state.activation = value; setTime(0); showControls(); }
  else if (id === "hops") { state.hops = number || 0; setTime(0); showControls(); }
  else if (id === "unshifted") { state.unshifted = checked; setTime(0); showControls(); }
  else if (id === "then") state.then = value;
  else if (dataset.operation) { choose(dataset.operation, checked); showControls(); }
  else if (event.target.type === "number" && !Number.isFinite(event.target.valueAsNumber)) return;
  else if (id === "beta") state.beta = number;
  else if (id === "bias") state.bias = number;
  else if (dataset.tap) state.taps[Number(dataset.tap)] = number;
  else if (dataset.weight) state.weights[Number(dataset.weight)] = number;
  else if (dataset.parameter) {
    const positive = !(state.activation in POINTWISE); // widths and temperatures are
    if (positive && !(number > 0)) event.target.value = state.parameters[dataset.parameter];
    else state.parameters[dataset.parameter] = number;
  } else if (dataset.value) state.x[Number(dataset.value)] = number;
  show();
});

/** Take a function of the bank in or out; one remains. */
function choose(name, isIn) {
  const chosen = BANK_OPERATIONS.filter(each => each === name ? isIn : state.operations.includes(each));
  if (chosen.length) state.operations = chosen;
  state.weights = [];
}

// The animation: a round takes a second and a half, then a pause in which to read

const SECONDS = 1.4, PAUSE = 0.9;
let playing = null;

function setTime(time) {
  stop();
  state.time = time;
}

function stop() {
  if (playing !== null) cancelAnimationFrame(playing);
  playing = null;
  find("play").textContent = "▶ play";
}

function play() {
  const count = roundsOf(problemOf()).length, jumps = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const from = state.time >= count ? 0 : Math.floor(state.time), started = performance.now();
  find("play").textContent = "❚❚ pause";
  const frame = now => {
    const rounds = Math.max(0, now - started) / 1000 / (SECONDS + PAUSE), whole = Math.floor(rounds);
    const share = Math.min(1, (rounds - whole) * (SECONDS + PAUSE) / SECONDS);
    state.time = Math.min(count, from + whole + (jumps ? 1 : share));
    show();
    if (from + whole + share < count) playing = requestAnimationFrame(frame);
    else stop();
  };
  playing = requestAnimationFrame(frame);
}

find("play").addEventListener("click", () => { if (playing === null) play(); else { stop(); show(); } });
find("back").addEventListener("click", () => { setTime(Math.max(0, Math.ceil(state.time) - 1)); show(); });
find("next").addEventListener("click", () => { setTime(Math.floor(state.time) + 1); show(); });

// Inside another page: the essential controls, as high as its contents, in the colours of that page

if (new URLSearchParams(location.search).has("embed")) {
  document.body.classList.add("embed");
  addEventListener("message", ({data}) => { if (data.theme) document.documentElement.dataset.theme = data.theme; });
  new ResizeObserver(() => parent.postMessage({height: Math.ceil(document.body.getBoundingClientRect().height)}, "*")).observe(document.body);
  parent.postMessage({isReady: true}, "*");
}

find("preset").innerHTML = Object.keys(PRESETS).map(name => `<option>${name}</option>`).join("");
find("activation").innerHTML = [BANK, ...ACTIVATIONS].map(name => `<option ${name === state.activation ? "selected" : ""}>${name}</option>`).join("");
find("then").innerHTML = BANK_THEN.map(name => `<option ${name === state.then ? "selected" : ""}>${name}</option>`).join("");
load("two communities");
showControls();
show();
