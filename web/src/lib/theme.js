// Light or dark: the system's setting, until the user chooses. The choice is kept in this browser.

import { make, setAttr } from './dom.js';
import { icon } from './icons.js';

const KEY = 'bluetick-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

function chosen() {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === 'light' || kept === 'dark' ? kept : null;
  } catch { return null; }
}

export const isDark = () => (document.documentElement.dataset.theme ?? (system.matches ? 'dark' : 'light')) === 'dark';

/** Applies the kept choice. Call it before anything is drawn. */
export function applyTheme() {
  const kept = chosen();
  if (kept) document.documentElement.dataset.theme = kept;
}

/** Choosing the system's own setting means: follow the system again. */
function setDark(dark) {
  const follow = dark === system.matches;
  if (follow) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  try {
    if (follow) localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, dark ? 'dark' : 'light');
  } catch { /* storage is forbidden here: the choice lasts as long as the page */ }
}

/** A button that switches between the two. */
export function themeToggle() {
  const button = make('button', { class: 'round theme', type: 'button' });
  const draw = () => {
    const words = isDark() ? 'Switch to light' : 'Switch to dark';
    setAttr(button, 'aria-label', words);
    setAttr(button, 'title', words);
    button.replaceChildren(icon(isDark() ? 'sun' : 'moon'));
  };
  button.addEventListener('click', () => { setDark(!isDark()); draw(); });
  system.addEventListener('change', draw);
  addEventListener('storage', (event) => {
    if (event.key !== KEY) return;
    delete document.documentElement.dataset.theme;
    applyTheme();
    draw();
  });
  draw();
  return button;
}
