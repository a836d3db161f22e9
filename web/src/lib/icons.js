// Icons as strokes on a 24 by 24 grid. The style is .icon in theme.css.

const SVG = 'http://www.w3.org/2000/svg';

const ICONS = {
  back: 'M15 5l-7 7 7 7',
  close: 'M6 6l12 12M18 6L6 18',
  down: 'M6 9.5l6 6 6-6',
  plus: 'M12 5v14M5 12h14',
  pencil: 'M4 20h4L19 9a2.1 2.1 0 0 0-4-4L4 16zM13.5 6.5l4 4',
  clip: 'M20 11.5l-8.2 8.2a5 5 0 0 1-7.1-7.1l8.6-8.6a3.4 3.4 0 0 1 4.8 4.8l-8.5 8.5a1.7 1.7 0 0 1-2.4-2.4l7.7-7.7',
  file: 'M13.5 3H7a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h10a2 2 0 0 0 2-2V8.5zM13.5 3v5.5H19',
  download: 'M12 4v11M7 10.5l5 5 5-5M5 20h14',
  image: 'M5 4h14a1.5 1.5 0 0 1 1.5 1.5v13A1.5 1.5 0 0 1 19 20H5a1.5 1.5 0 0 1-1.5-1.5v-13A1.5 1.5 0 0 1 5 4zM4 17l5-5 4 4 3-3 4 4M15.5 8.8v.01',
  sun: 'M16 12a4 4 0 1 1-8 0a4 4 0 0 1 8 0M12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M18.4 5.6l-1.1 1.1M6.7 17.3l-1.1 1.1',
  moon: 'M20 14.5A8.2 8.2 0 0 1 9.5 4a8.2 8.2 0 1 0 10.5 10.5z',
  leave: 'M14 4h4a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2h-4M10 8l-4 4 4 4M6.5 12H15',
  person: 'M16 8a4 4 0 1 1-8 0a4 4 0 0 1 8 0M4.5 20.5a7.5 7.5 0 0 1 15 0',
  more: 'M12 5.5v.01M12 12v.01M12 18.5v.01',
  retry: 'M20 12a8 8 0 1 1-2.4-5.7M20 3.5v4h-4',
  play: { solid: 'M8 5.5v13l11-6.5z' },
  send: { solid: 'M4.2 3.6l16.5 7.3c1 .4 1 1.8 0 2.2L4.2 20.4c-.8.4-1.7-.4-1.4-1.3L4.7 13.2 13.5 12 4.7 10.8 2.8 4.9c-.3-.9.6-1.7 1.4-1.3z' },
  logo: 'M2.5 12.8l4.2 4.2L15.4 7M10.6 16.2l1 .9L21.5 7',
};

/** An <svg> of paths, each [class, d]. */
export function svg(viewBox, paths) {
  const root = document.createElementNS(SVG, 'svg');
  root.setAttribute('viewBox', viewBox);
  for (const [name, d] of paths) {
    const path = document.createElementNS(SVG, 'path');
    path.setAttribute('d', d);
    if (name) path.setAttribute('class', name);
    root.append(path);
  }
  return root;
}

/** An icon by name. Screen readers skip it: the button around it has the label. */
export function icon(name) {
  const drawing = ICONS[name];
  const root = svg('0 0 24 24', [typeof drawing === 'string' ? ['', drawing] : ['solid', drawing.solid]]);
  root.setAttribute('class', 'icon');
  root.setAttribute('aria-hidden', 'true');
  return root;
}
