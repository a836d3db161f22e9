// Building and updating elements without innerHTML, which the page's policy forbids.

/**
 * make('button', { class: 'round', type: 'button', onclick: f }, 'words', child): attributes by name, handlers by
 * `on…`, true for a bare attribute; null, false and undefined are left out, among the children too.
 */
export function make(tag, attributes = {}, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) el.addEventListener(name.slice(2), value);
    else el.setAttribute(name, value === true ? '' : value);
  }
  el.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return el;
}

/** Sets the text only if it differs: an untouched node keeps its selection and costs no layout. */
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

/** Sets an attribute only if it differs; null removes it. */
export function setAttr(el, name, value) {
  if (value === null || value === undefined || value === false) {
    if (el.hasAttribute(name)) el.removeAttribute(name);
  } else {
    const text = value === true ? '' : String(value);
    if (el.getAttribute(name) !== text) el.setAttribute(name, text);
  }
}

/** Makes these nodes an element's children, touching only differences: the others keep their focus and animation. */
export function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const child of [...parent.children]) if (!wanted.has(child)) child.remove();
  let at = parent.firstElementChild;
  for (const node of nodes) {
    if (node === at) at = at.nextElementSibling;
    else parent.insertBefore(node, at);
  }
}

/** A count in a bubble, hidden at zero; `what` makes its label: "3 unread messages". */
export function setBadge(el, count, what = 'unread message') {
  el.hidden = !count;
  setText(el, count > 99 ? '99+' : String(count));
  setAttr(el, 'role', 'img');
  setAttr(el, 'aria-label', plural(count, what));
}

export const plural = (count, what) => `${count} ${what}${count === 1 ? '' : 's'}`;

/** Calls `draw` at most once a frame. A hidden page has no frames, so a timer does it there. */
export function oncePerFrame(draw) {
  let frame = 0;
  let timer = 0;
  let over = false;
  const run = () => {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    frame = timer = 0;
    if (!over) draw();
  };
  const soon = () => {
    if (frame || timer || over) return;
    frame = requestAnimationFrame(run);
    timer = setTimeout(run, 200);
  };
  soon.now = run;
  soon.stop = () => { over = true; run(); };
  return soon;
}
