"use strict";
// The mathematics of the explorer: pure functions. Definitions are those of graphact.functional, bounds those of graphact.guarantees.

const matrix = (rows, columns = rows) => Array.from({length: rows}, () => new Float64Array(columns));
const sum = values => values.reduce((total, value) => total + value, 0);
const oneNorm = row => sum(Array.from(row, Math.abs));

function multiply(a, b) {
  const product = matrix(a.length, b.length);
  a.forEach((row, i) => row.forEach((entry, k) => { if (entry) b[k].forEach((other, j) => { product[i][j] += entry * other; }); }));
  return product;
}

/** S with S[target][source] = weight, and the ascending lists of the nodes that each node hears. */
function operatorOf(nodes, edges, normalize) {
  const shift = matrix(nodes), heard = Array.from({length: nodes}, () => new Set());
  for (const [source, target, weight = 1] of edges) {
    shift[target][source] += weight;
    if (source !== target) heard[target].add(source);
  }
  const lists = heard.map(each => [...each].sort((a, b) => a - b));
  return {shift: normalized(shift, lists, normalize), lists};
}

function normalized(shift, lists, kind) {
  if (!kind) return shift;
  const size = shift.length, result = matrix(size);
  const inverse = value => value > 0 ? 1 / value : 0;
  if (kind === "gcn") {
    const loops = shift.map((row, i) => row[i] || 1);
    const scale = shift.map((row, i) => Math.sqrt(inverse(sum(lists[i].map(j => row[j])) + loops[i])));
    shift.forEach((row, i) => row.forEach((entry, j) => { result[i][j] = (i === j ? loops[i] : entry) * scale[i] * scale[j]; }));
  } else if (kind === "laplacian") {
    shift.forEach((row, i) => { for (const j of lists[i]) { result[i][j] = -row[j]; result[i][i] += row[j]; } });
  } else {
    const across = shift.map(row => inverse(oneNorm(row)));
    const down = shift.map((_, j) => inverse(oneNorm(shift.map(row => row[j]))));
    const factor = kind === "symmetric" ? (i, j) => Math.sqrt(across[i]) * Math.sqrt(down[j]) : i => across[i];
    shift.forEach((row, i) => row.forEach((entry, j) => { result[i][j] = entry * factor(i, j); }));
  }
  return result;
}

/** The nodes that walks of exactly k edges lead to; a closed walk may rest. */
function walked(lists, hops, closed) {
  let reached = lists.map((_, i) => new Set([i]));
  for (let k = 0; k < hops; k++) {
    reached = reached.map((_, i) => {
      const next = new Set(closed ? reached[i] : []);
      for (const j of lists[i]) for (const far of reached[j]) next.add(far);
      return next;
    });
  }
  return reached.map(each => [...each].sort((a, b) => a - b));
}

const ascending = values => values.map((_, place) => place).sort((a, b) => values[a] - values[b] || a - b);
const onlyAt = (place, count) => Array.from({length: count}, (_, other) => other === place ? 1 : 0);
const selecting = choose => values => {
  const place = choose(values);
  return {value: values[place], own: 0, parts: onlyAt(place, values.length)};
};

/** Functions of a neighbourhood that is not empty: value, and derivatives by the node's own value and the neighbours'. */
const OPERATIONS = {
  "max": selecting(values => values.indexOf(Math.max(...values))),
  "min": selecting(values => values.indexOf(Math.min(...values))),
  "median": selecting(values => values.indexOf(values[ascending(values)[(values.length - 1) >> 1]])),
  "std": values => {
    const mean = sum(values) / values.length, value = Math.sqrt(sum(values.map(each => (each - mean) ** 2)) / values.length);
    return {value, own: 0, parts: values.map(each => value > 1e-12 ? (each - mean) / (values.length * value) : 0)};
  },
  "mean": values => ({value: sum(values) / values.length, own: 0, parts: values.map(() => 1 / values.length)}),
  "soft-maximum": (values, own, {temperature}) => {
    const top = Math.max(...values), shares = values.map(value => Math.exp((value - top) / temperature)), total = sum(shares);
    return {value: top + temperature * Math.log(total / values.length), own: 0, parts: shares.map(share => share / total)};
  },
  "trimmed-mean": (values, own, {trim}) => {
    const count = values.length, cut = Math.min(Math.floor(count * trim + 1e-6), (count - 1) >> 1);
    const kept = ascending(values).slice(cut, count - cut), parts = values.map(() => 0);
    for (const place of kept) parts[place] = 1 / kept.length;
    return {value: sum(kept.map(place => values[place])) / kept.length, own: 0, parts};
  },
  "weighted-mean": (values, own, {width}) => {
    const logs = values.map(value => -((own - value) ** 2) / (2 * width ** 2)), top = Math.max(...logs);
    const weights = logs.map(log => Math.exp(log - top)), total = sum(weights);
    const value = sum(values.map((each, j) => weights[j] / total * each));
    const pulls = values.map((each, j) => weights[j] / total * (each - value) * (own - each) / width ** 2);
    return {value, own: -sum(pulls), parts: pulls.map((pull, j) => weights[j] / total + pull)};
  },
  "kernel": (values, own, {gamma}) => {
    const value = Math.exp(-sum(values.map(each => (own - each) ** 2)) / (2 * gamma ** 2));
    const parts = values.map(each => value * (own - each) / gamma ** 2);
    return {value, own: -sum(parts), parts};
  },
};

function errorFunction(x) { // Abramowitz and Stegun 7.1.6 (series) and 7.1.14 (continued fraction)
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  if (size < 3) {
    let term = x, total = x;
    for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(total); n++) { term *= 2 * x * x / (2 * n + 1); total += term; }
    return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * total;
  }
  let fraction = 0;
  for (let n = 60; n > 0; n--) fraction = (n / 2) / (size + fraction);
  return Math.sign(x) * (1 - Math.exp(-x * x) / Math.sqrt(Math.PI) / (size + fraction));
}

const normal = x => (1 + errorFunction(x / Math.SQRT2)) / 2;
const density = x => Math.exp(-x * x / 2) / Math.sqrt(2 * Math.PI);
const logistic = x => 1 / (1 + Math.exp(-x));
const kinked = slope => [x => x > 0 ? x : slope * x, x => x > 0 ? 1 : slope, Math.max(1, Math.abs(slope))];

/** Value, derivative and steepest slope, given the parameters. */
const POINTWISE = {
  "identity": () => [x => x, () => 1, 1],
  "relu": () => kinked(0),
  "leaky-relu": () => kinked(0.01),
  "prelu": ({slope}) => kinked(slope),
  "elu": () => [x => x > 0 ? x : Math.expm1(x), x => x > 0 ? 1 : Math.exp(x), 1],
  "gelu": () => [x => x * normal(x), x => normal(x) + x * density(x), normal(Math.SQRT2) + Math.SQRT2 * density(Math.SQRT2) + 1e-12],
  "silu": () => [x => x * logistic(x), x => logistic(x) * (1 + x * (1 - logistic(x))), 1.0998394],
  "tanh": () => [Math.tanh, x => 1 - Math.tanh(x) ** 2, 1],
  "abs": () => [Math.abs, x => Math.sign(x), 1],
  "maxout": ({a1, b1, a2, b2}) => [x => Math.max(a1 * x + b1, a2 * x + b2), x => {
    const first = a1 * x + b1, second = a2 * x + b2;
    return first === second ? (a1 + a2) / 2 : first > second ? a1 : a2;
  }, Math.max(Math.abs(a1), Math.abs(a2))],
};

/** Weighted functions of neighbours: which ones, what they read, their parameters, whether a bound is certified. */
const MIXED = {
  "max-l": {operations: ["max"], reads: "hops", certified: true},
  "median-l": {operations: ["median"], reads: "hops", certified: true},
  "max-ga": {operations: ["max"], reads: "shifted", certified: true},
  "median-ga": {operations: ["median"], reads: "shifted", certified: true},
  "kernel-ga": {operations: ["kernel"], reads: "shifted", parameters: {gamma: 0.1}, certified: true},
  "mean-ga": {operations: ["mean"], reads: "shifted", certified: true},
  "soft-maximum-ga": {operations: ["soft-maximum"], reads: "shifted", parameters: {temperature: 1}, certified: true},
  "trimmed-mean-ga": {operations: ["trimmed-mean"], reads: "shifted", parameters: {trim: 0.25}, certified: true},
  "weighted-mean-ga": {operations: ["weighted-mean"], reads: "shifted", parameters: {width: 1}},
  "mixture-ga": {operations: ["max", "median", "min", "mean"], reads: "shifted"},
  "shiftless-max": {operations: ["max"], reads: "same", closed: false},
  "shiftless-median": {operations: ["median"], reads: "same", closed: true},
};
const ACTIVATIONS = [...Object.keys(MIXED), ...Object.keys(POINTWISE)];
const BANK = "adaptive filter bank", BANK_OPERATIONS = ["max", "min", "median", "std", "mean"];
const BANK_THEN = Object.keys(POINTWISE).filter(name => !["prelu", "maxout"].includes(name));
const PARAMETERS = {prelu: {slope: 0.25}, maxout: {a1: 1, b1: 0, a2: 0, b2: 0}};
for (const [name, each] of Object.entries(MIXED)) PARAMETERS[name] = each.parameters || {};

/** Functions of a problem, and how many times the signal is shifted before each of their terms. */
function kindOf(problem) {
  const upTo = (first, last) => Array.from({length: last - first + 1}, (_, k) => first + k);
  if (problem.activation === BANK) {
    return {operations: problem.operations, reads: "shifted", certified: true, shifts: upTo(0, problem.hops - 1), isBank: true};
  }
  const kind = MIXED[problem.activation];
  if (!kind) return {operations: [], reads: "none", certified: true, shifts: []};
  if (kind.reads === "shifted") return {...kind, shifts: upTo(problem.unshifted ? 0 : 1, problem.hops)};
  return {...kind, shifts: upTo(1, problem.hops).map(k => kind.reads === "hops" ? k : 0)};
}

/** The terms of a function: rows of S^k, who is read, values there; k-hop neighbours of the signal where it is localized. */
function termsOf(problem, kind, {lists}, powers) {
  const closed = kind.closed ?? problem.closed, near = closedLists(lists, closed);
  return kind.shifts.map(k => {
    const rows = powers[kind.reads === "shifted" ? k : 0];
    return {shifts: k, rows, table: kind.reads === "hops" ? walked(lists, k, closed) : near, values: valuesOf(rows, problem.x)};
  });
}

const closedLists = (lists, closed) => lists.map((list, i) => closed ? [...list, i].sort((a, b) => a - b) : list);
const valuesOf = (rows, x) => rows.map(row => sum(Array.from(row, (entry, j) => entry * x[j])));

/** I, S, ..., S^K. */
function powersOf(shift, count) {
  const powers = [shift.map((_, i) => Float64Array.from(onlyAt(i, shift.length)))];
  for (let k = 0; k < count; k++) powers.push(multiply(shift, powers[k]));
  return powers;
}

/** problem: {nodes, edges, normalize, x, activation, hops, closed, unshifted, beta, weights, parameters}, weights function by
 * function; of a bank {..., activation: BANK, operations, hops, taps, weights, bias, then}, taps being those of S^0 .. S^K. */
function compute(problem) {
  const size = problem.nodes, jacobian = matrix(size), outputs = new Array(size).fill(0), chosen = [];
  if (problem.activation in POINTWISE) {
    const [value, slope, steepest] = POINTWISE[problem.activation](problem.parameters || {});
    problem.x.forEach((x, i) => { outputs[i] = value(x); jacobian[i][i] = slope(x); });
    return {outputs, jacobian, chosen, bounds: new Array(size).fill(steepest)};
  }
  const kind = kindOf(problem), operator = operatorOf(size, problem.edges, problem.normalize);
  const powers = powersOf(operator.shift, problem.hops), terms = termsOf(problem, kind, operator, powers);
  const addRow = (i, factor, row) => row.forEach((entry, column) => { jacobian[i][column] += factor * entry; });
  if (kind.isBank) {
    powers.forEach((rows, k) => valuesOf(rows, problem.x).forEach((value, i) => {
      outputs[i] += problem.taps[k] * value;
      addRow(i, problem.taps[k], rows[i]);
    }));
    outputs.forEach((_, i) => { outputs[i] += problem.bias; });
  } else {
    problem.x.forEach((x, i) => { outputs[i] = problem.beta * Math.max(x, 0); jacobian[i][i] = x > 0 ? problem.beta : 0; });
  }
  kind.operations.forEach((name, m) => terms.forEach(({shifts, rows, table, values}, place) => {
    const weight = problem.weights[m * terms.length + place];
    for (let i = 0; i < size; i++) {
      if (table[i].length === 0) { outputs[i] += name === "kernel" ? weight : 0; continue; }
      const found = OPERATIONS[name](table[i].map(j => values[j]), values[i], problem.parameters || {});
      outputs[i] += weight * found.value;
      table[i].forEach((j, at) => {
        if (found.parts[at]) chosen.push({node: i, from: j, shifts, share: weight * found.parts[at]});
        addRow(i, weight * found.parts[at], rows[j]);
      });
      addRow(i, weight * found.own, rows[i]);
    }
  }));
  if (!kind.isBank) {
    return {outputs, jacobian, chosen, bounds: kind.certified ? problem.x.map((_, i) => boundOf(i, problem, kind, terms)) : null};
  }
  const [value, slope] = POINTWISE[problem.then]({}), before = [...outputs];
  before.forEach((z, i) => { outputs[i] = value(z); jacobian[i] = jacobian[i].map(entry => slope(z) * entry); });
  return {outputs, before, jacobian, chosen, bounds: boundsOfBank(problem, kind, terms, powers, operator.shift)};
}

/** How far an output can move when no input moves by more than 1: graphact.guarantees.lipschitz_bound(...).per_node. */
function boundOf(i, problem, kind, terms) {
  const [name] = kind.operations, size = Math.abs(problem.beta), centre = new Float64Array(problem.nodes);
  let byRows = size, spread = 0;
  terms.forEach(({rows, table}, place) => {
    const weight = problem.weights[place], read = table[i].map(j => rows[j]);
    if (read.length === 0) return;
    if (name === "kernel") {
      const slope = Math.exp(-0.5) / problem.parameters.gamma;
      const moved = Math.abs(weight) * slope * longest(read.map(row => row.map((entry, column) => entry - rows[i][column])));
      byRows += moved; spread += moved;
      return;
    }
    byRows += place > 0 ? Math.abs(weight) * Math.max(...read.map(oneNorm)) : Math.max(...read.map(row => {
      const norm = oneNorm(row), together = Math.abs(weight) * (norm - Math.abs(row[i])) + Math.abs(problem.beta + weight * row[i]);
      return Math.max(together, Math.abs(weight) * norm); // while the ReLU is on, and while it is off
    })) - size;
    const [middle, deviation] = middleOf(name, read);
    middle.forEach((entry, column) => { centre[column] += weight * entry; });
    spread += Math.abs(weight) * deviation;
  });
  const off = oneNorm(centre);
  centre[i] += problem.beta;
  return Math.min(byRows, Math.max(off, oneNorm(centre)) + spread);
}

/** What is known of the direction of a function's change, from the rows that it reads, and how far it may deviate. */
function middleOf(name, read) {
  const mean = Array.from(read[0], (_, column) => sum(read.map(row => row[column])) / read.length);
  const apart = Math.max(...read.map(row => oneNorm(row.map((entry, column) => entry - mean[column]))));
  return [name === "std" ? mean.map(() => 0) : mean, name === "mean" ? 0 : apart];
}

/** The same of a bank, for every node: the least of three bounds of its sum, times the steepest slope of what follows. */
function boundsOfBank(problem, kind, terms, powers, shift) {
  const size = problem.nodes, linear = matrix(size), forms = new Array(size).fill(0), sizes = powersOf(shift.map(row => row.map(Math.abs)), problem.hops);
  powers.forEach((rows, k) => rows.forEach((row, i) => row.forEach((entry, column) => { linear[i][column] += problem.taps[k] * entry; })));
  const composed = linear.map(oneNorm), magnitudes = linear.map((_, i) => sum(sizes.map((rows, k) => Math.abs(problem.taps[k]) * oneNorm(rows[i]))));
  kind.operations.forEach((name, m) => terms.forEach(({rows, table}, place) => {
    const weight = problem.weights[m * terms.length + place];
    const largest = of => i => Math.max(0, ...table[i].map(j => oneNorm(of[j])));
    const everywhere = Math.max(...linear.map((_, i) => largest(rows)(i)));
    for (let i = 0; i < size; i++) {
      composed[i] += Math.abs(weight) * everywhere;
      magnitudes[i] += Math.abs(weight) * largest(sizes[place])(i);
      if (table[i].length === 0) continue;
      const [middle, deviation] = middleOf(name, table[i].map(j => rows[j]));
      middle.forEach((entry, column) => { linear[i][column] += weight * entry; });
      forms[i] += Math.abs(weight) * deviation;
    }
  }));
  const steepest = POINTWISE[problem.then]({})[2], product = problem.then === "identity" ? composed : composed.map(() => Math.max(...composed));
  return linear.map((row, i) => steepest * Math.min(product[i], magnitudes[i], forms[i] + oneNorm(row)));
}

/** Round by round: what every node sends, the shift that it forms and the functions; null where it forms none.
 * Each function has its value and whose values it took, by node. A localized median relays lists: sent has their lengths. */
function roundsOf(problem) {
  const kind = kindOf(problem), operator = operatorOf(problem.nodes, problem.edges, problem.normalize);
  if (!kind.shifts.length) return [];
  const powers = powersOf(operator.shift, problem.hops), terms = termsOf(problem, kind, operator, powers);
  const foundIn = place => kind.operations.map((name, m) => {
    const {table, values} = terms[place];
    const each = table.map((list, i) => list.length ? OPERATIONS[name](list.map(j => values[j]), values[i], problem.parameters || {}) : null);
    return {
      name, weight: problem.weights[m * terms.length + place], values: each.map(one => one ? one.value : name === "kernel" ? 1 : 0),
      from: each.map((one, i) => one ? table[i].filter((_, at) => one.parts[at]) : []),
    };
  });
  if (kind.reads === "same") { // one round: all terms read the signal
    const found = kind.shifts.flatMap((_, place) => foundIn(place));
    return [{sent: problem.x, sentName: "x", shift: null, functions: found}];
  }
  if (kind.reads === "hops") {
    return kind.shifts.map((k, place) => {
      const before = place && foundIn(place - 1)[0].values, known = place && terms[place - 1].table.map(list => list.length);
      const relayed = kind.operations[0] === "max" ? {sent: before, sentName: `the largest x ${k - 1} away`} : {sent: known, sentName: `all x ${k - 1} away`, areCounts: true};
      return {...(place ? relayed : {sent: problem.x, sentName: "x"}), shift: null, functions: foundIn(place)};
    });
  }
  const count = kind.isBank ? problem.hops : problem.hops + 1;
  return Array.from({length: count}, (_, k) => {
    const place = kind.shifts.indexOf(k), next = powers[k + 1];
    return {
      sent: valuesOf(powers[k], problem.x), sentName: ["x", "Sx"][k] ?? `S${"⁰¹²³⁴⁵"[k]}x`,
      shift: next ? valuesOf(next, problem.x) : null, functions: place < 0 ? [] : foundIn(place),
    };
  });
}

function longest(differences) { // the square root of the sum of |DᵀD|
  const columns = differences[0].length;
  let total = 0;
  for (let a = 0; a < columns; a++) for (let b = 0; b < columns; b++) total += Math.abs(sum(differences.map(row => row[a] * row[b])));
  return Math.sqrt(total);
}
