// What a reader of the page would miss or could not read, one line each. arguments[0]: the window's width in CSS pixels.
const width = arguments[0];
const found = new Set();
const slack = 1;  // of a pixel: glyphs and boxes are laid out in fractions

const shown = (element) => element.getClientRects().length > 0 && getComputedStyle(element).visibility === "visible";
const name = (element) => {
  const text = element.textContent.trim().replace(/\s+/g, " ").slice(0, 40);
  return `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> "${text}"`;
};
const inside = (inner, outer) =>
  inner.left >= outer.left - slack && inner.right <= outer.right + slack &&
  inner.top >= outer.top - slack && inner.bottom <= outer.bottom + slack;
const overlap = (a, b) =>
  a.left < b.right - slack && b.left < a.right - slack && a.top < b.bottom - slack && b.top < a.bottom - slack;

// Colours as [red, green, blue, alpha], 0 to 1 for the last, and how far two of them stand apart (WCAG 2).
const channels = (colour) => {
  const numbers = colour.match(/[\d.]+/g).map(Number);
  return numbers.length === 3 ? [...numbers, 1] : numbers;
};
const luminance = (rgb) => {
  const [r, g, b] = rgb.slice(0, 3).map((c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
};
const behind = (element) => {
  for (let at = element; at; at = at.parentElement) {
    const colour = channels(getComputedStyle(at).backgroundColor);
    if (colour[3] > 0) return colour;
  }
  return [255, 255, 255, 1];
};

// The box that a text must not leave: for a label of a plot the plot with its margins, else the nearest box of text.
const box = (element) => {
  if (element.closest("svg")) return element.closest(".frame");
  while (getComputedStyle(element).display.startsWith("inline")) element = element.parentElement;
  return element;
};

if (document.scrollingElement.scrollWidth > width)
  found.add(`the page is ${document.scrollingElement.scrollWidth} pixels wide in a window of ${width}`);

for (const element of document.body.querySelectorAll("*")) {
  if (!shown(element)) continue;
  const rect = element.getBoundingClientRect();
  if (rect.left < -slack || rect.right > width + slack) found.add(`leaves the window: ${name(element)}`);
  if (element.closest("svg")) continue;
  const boxed = !getComputedStyle(element).display.startsWith("inline") && element.clientWidth > 0;
  if (boxed && element.scrollWidth > element.clientWidth + slack) found.add(`is wider than its box: ${name(element)}`);
  if (boxed && element.scrollHeight > element.clientHeight + 2 * slack) found.add(`is higher than its box: ${name(element)}`);
}

const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (texts.nextNode()) {
  const text = texts.currentNode;
  const element = text.parentElement;
  if (!text.data.trim() || !shown(element)) continue;
  const range = document.createRange();
  range.selectNodeContents(text);
  const style = getComputedStyle(element);
  for (const rect of range.getClientRects()) {
    if (!inside(rect, box(element).getBoundingClientRect())) found.add(`text leaves its box: ${name(element)}`);
    for (let at = element; at && at !== document.documentElement; at = at.parentElement)
      if (getComputedStyle(at).overflowX !== "visible" && !inside(rect, at.getBoundingClientRect()))
        found.add(`text is cut off by ${name(at)}: ${name(element)}`);
  }
  const monospace = style.fontFamily.includes("monospace");  // hashes and commands may be broken anywhere
  for (const word of monospace ? [] : text.data.matchAll(/[^\s-]+/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    if (new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size > 1)
      found.add(`a word is broken, "${word[0]}": ${name(element)}`);
  }
  if (parseFloat(style.fontSize) < 12) found.add(`smaller than 12 pixels: ${name(element)}`);
  const ratio = contrast(channels(element.closest("svg") ? style.fill : style.color), behind(element));
  if (ratio < 4.5) found.add(`contrast of ${ratio.toFixed(1)}, 4.5 is wanted: ${name(element)}`);
}

for (const plot of document.querySelectorAll("svg[role=img]")) {
  if (!plot.querySelector(":scope > title")?.textContent || !plot.querySelector(":scope > desc")?.textContent)
    found.add(`a picture without a text in its place: ${name(plot)}`);
  const labels = [...plot.querySelectorAll("text")].map((label) => [label, label.getBoundingClientRect()]);
  labels.forEach(([label, rect], i) => {
    for (const [other, its] of labels.slice(i + 1))
      if (overlap(rect, its)) found.add(`labels lie on each other: ${name(label)} and ${name(other)}`);
  });
}
for (const resource of performance.getEntriesByType("resource")) found.add(`is fetched: ${resource.name}`);
return [...found];
