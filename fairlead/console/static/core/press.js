// A click belongs to the control that was pressed, also if the page moves between pressing and releasing the button of
// the mouse: the browser would give it to what both places have in common, and it would be lost.

const CONTROLS = "button, a[href], summary, label, [role=tab], [role=option]";
const STILL = 4; // pixels that a hand moves without meaning it

/** @type {{control: HTMLElement, x: number, y: number} | null} */
let pressed = null;

export function keepClicks() {
  document.addEventListener("pointerdown", remember, { capture: true });
  document.addEventListener("click", redirect, { capture: true });
}

/** @param {PointerEvent} event */
function remember(event) {
  const control = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest?.(CONTROLS));
  pressed = control && event.button === 0 ? { control, x: event.clientX, y: event.clientY } : null;
}

/** @param {MouseEvent} event */
function redirect(event) {
  const press = pressed;
  pressed = null;
  if (!press || !event.detail || !press.control.isConnected) return; // `detail` is 0 for keys and scripts
  const { control, x, y } = press;
  if (control.contains(/** @type {Node} */ (event.target))) return;
  if (Math.hypot(event.clientX - x, event.clientY - y) > STILL) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  control.click();
}
