// Elements from words. Foreign text only ever becomes a text node: there is no way to markup from here.

/** An element of a class, with texts and elements in it; whatever is null is left out. */
export function element(tag, kind, ...inside) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

/** The same with attributes. They are ours: nothing foreign is put into one. */
export function withAttributes(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export const byId = (id) => document.getElementById(id);

/** A number as people read it. */
export const digits = (value, count = 3) => value.toFixed(count);

/** A share in percent, small ones with enough digits to tell them from nothing. */
export function percent(share) {
  const value = 100 * share;
  if (value === 0) return "0\u00a0%";
  return value >= 10 ? `${value.toFixed(0)}\u00a0%` : value >= 0.01 ? `${Number(value.toPrecision(2))}\u00a0%` : "<\u00a00.01\u00a0%";
}

/** Seconds as people say them. */
export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
}
