/** The scale of a timeline: from times to pixels, with idle stretches folded. Pure. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** The distances between labels. */
export const STEPS_MS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE,
  10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 7 * DAY,
];
export const FOLD_PX = 48;
const FOLDS_MAX = 8;
const LABEL_PX = 80;
const ROOM = 0.02;

/** @typedef {{from: number, to: number}} Span */
/** @typedef {{x: (at: number) => number, at: (x: number) => number, from: number, to: number, width: number, folds: Span[]}} Scale */

/**
 * Returns the range that is shown: 2 % of room on both sides, at least a second.
 * @param {number} from
 * @param {number} to
 * @returns {Span}
 */
export function extent(from, to) {
  const span = Math.max(SECOND, to - from);
  return { from: from - span * ROOM, to: from + span * (1 + ROOM) };
}

/** @param {number[]} values */
function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : 0;
}

/**
 * Finds the stretches in which nothing happens, to fold them: longer than 8 times the median distance of marks, and more than
 * a quarter of the width. The largest is folded first, and the rest is measured again.
 * @param {number[]} marks Times at which something happens.
 * @param {Span} range
 * @returns {Span[]}
 */
export function findFolds(marks, range) {
  const times = [...new Set(marks.filter((at) => at >= range.from && at <= range.to))].sort((a, b) => a - b);
  const gaps = times.slice(1).map((at, n) => ({ from: times[n], to: at }));
  const typical = median(gaps.map((gap) => gap.to - gap.from).filter((size) => size > 0));
  /** @type {Span[]} */
  const folds = [];
  let shown = range.to - range.from;
  for (const gap of gaps.sort((a, b) => b.to - b.from - (a.to - a.from))) {
    const size = gap.to - gap.from;
    if (folds.length >= FOLDS_MAX || size <= 8 * typical || size <= shown / 4) break;
    const edge = Math.min(size * 0.05, Math.max(typical, size * 0.01));
    folds.push({ from: gap.from + edge, to: gap.to - edge });
    shown -= size - 2 * edge;
  }
  return folds.sort((a, b) => a.from - b.from);
}

/**
 * Makes a scale. A fold takes 48 pixels, however long it is.
 * @param {Span} range
 * @param {number} width
 * @param {Span[]} folds
 * @returns {Scale}
 */
export function makeScale(range, width, folds) {
  const inside = folds
    .map((fold) => ({ from: Math.max(fold.from, range.from), to: Math.min(fold.to, range.to) }))
    .filter((fold) => fold.to > fold.from);
  const folded = inside.reduce((sum, fold) => sum + fold.to - fold.from, 0);
  const perMs = Math.max(1, width - FOLD_PX * inside.length) / Math.max(1e-6, range.to - range.from - folded);
  /** @param {number} at */
  function x(at) {
    let place = (at - range.from) * perMs;
    for (const fold of inside) {
      if (at <= fold.from) break;
      const part = Math.min(at, fold.to) - fold.from;
      place += (part / (fold.to - fold.from)) * FOLD_PX - part * perMs;
    }
    return place;
  }
  /** @param {number} place */
  function at(place) {
    for (const fold of inside) {
      const start = x(fold.from);
      if (place < start) break;
      if (place <= start + FOLD_PX) return fold.from + ((place - start) / FOLD_PX) * (fold.to - fold.from);
    }
    const before = inside.filter((fold) => x(fold.to) <= place);
    const passed = before.reduce((sum, fold) => sum + fold.to - fold.from, 0);
    return range.from + passed + (place - FOLD_PX * before.length) / perMs;
  }
  return { x, at, from: range.from, to: range.to, width, folds: inside };
}

/**
 * Returns the times of labels: of the smallest step with 80 pixels between two labels, none inside a fold.
 * @param {Scale} scale
 * @param {number} [zone] Minutes between UTC and the zone that is shown.
 */
export function ticks(scale, zone = 0) {
  const folded = scale.folds.reduce((sum, fold) => sum + fold.to - fold.from, 0);
  const perMs = (scale.width - FOLD_PX * scale.folds.length) / Math.max(1, scale.to - scale.from - folded);
  const step = STEPS_MS.find((one) => one * perMs >= LABEL_PX) ?? STEPS_MS[STEPS_MS.length - 1];
  const shift = zone * MINUTE;
  /** @type {number[]} */
  const found = [];
  let last = -LABEL_PX;
  for (const part of shownParts(scale)) {
    for (let at = Math.ceil((part.from - shift) / step) * step + shift; at <= part.to; at += step) {
      if (scale.x(at) - last >= LABEL_PX - 1) {
        found.push(at);
        last = scale.x(at);
      }
    }
  }
  return { step, times: found };
}

/** The stretches between the folds. @param {Scale} scale */
function shownParts(scale) {
  const edges = [scale.from, ...scale.folds.flatMap((fold) => [fold.from, fold.to]), scale.to];
  return Array.from({ length: edges.length / 2 }, (_, n) => ({ from: edges[2 * n], to: edges[2 * n + 1] }));
}
