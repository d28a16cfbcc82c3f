// Elements, and tables that are changed in place: what has the focus, a selection or a place scrolled to keeps it.
const SVG = "http://www.w3.org/2000/svg";
const at = id => document.getElementById(id);

// What comes from data is only ever set as text.
function made(tag, attributes, ...children) {
  const drawn = ["svg", "g", "path", "rect", "line", "circle", "text", "title"].includes(tag);
  const element = drawn ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value); else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
function say(element, text) { if (element.textContent !== text) element.textContent = text; }

// Let the children of an element be those of `items`, by their keys; `make` makes a new one, `change` brings any up to date.
function renew(parent, items, keyOf, make, change) {
  const known = new Map([...parent.children].map(child => [child.dataset.key, child]));
  const wanted = items.map(item => {
    const key = String(keyOf(item)), child = known.get(key) || make(item);
    known.delete(key);
    child.dataset.key = key;
    change(child, item);
    return child;
  });
  const held = [...parent.children].find(child => child.contains(document.activeElement));
  const lost = held && known.get(held.dataset.key) === held, place = [...parent.children].indexOf(held);
  for (const child of known.values()) if (child !== held) child.remove();
  let next = parent.firstChild;
  for (const child of wanted) {
    // One that is moved would lose the focus: the others go around it.
    if (child === next || child === held) next = child.nextSibling; else parent.insertBefore(child, next);
  }
  if (!lost) return;
  wanted[Math.min(place, wanted.length - 1)]?.querySelector("button")?.focus();
  held.remove();
}

// A table's columns are [name, text of a row or a function that changes its cell, whether it is a number].
function fill(table, columns, rows, keyOf, more) {
  const shape = columns.map(([name, , number]) => name + (number ? "#" : "")).join("\n");
  if (table.dataset.shape !== shape) {
    table.tHead.replaceChildren(made("tr", {}, ...columns.map(([name, , number]) => made("th", { scope: "col", ...(number ? { class: "number" } : {}) }, name))));
    table.tBodies[0].replaceChildren();
    table.dataset.shape = shape;
  }
  renew(table.tBodies[0], rows, keyOf, () => made("tr", {}, ...columns.map(([, , number]) => made("td", number ? { class: "number" } : {}))), (line, row) => {
    columns.forEach(([, of], i) => {
      const place = line.cells[i], text = of(row, place);
      if (text !== undefined && place.textContent !== text) { place.textContent = text; place.title = text; }
    });
    if (more) more(line, row);
  });
  hint(table.parentElement);
}

// A table that is wider than its place says so, and can be scrolled by keys.
function hint(scroll) {
  const wide = scroll.scrollWidth > scroll.clientWidth + 1;
  let says = scroll.previousElementSibling;
  if (!says?.classList.contains("hint")) {
    says = made("p", { class: "hint soft" }, "Scroll sideways for all columns →");
    scroll.before(says);
    scroll.setAttribute("role", "region");
  }
  scroll.setAttribute("aria-label", scroll.querySelector("caption").textContent);
  says.hidden = !wide;
  if (wide) scroll.tabIndex = 0; else scroll.removeAttribute("tabindex");
}
