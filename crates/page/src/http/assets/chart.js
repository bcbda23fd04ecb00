// A chart of the server with a cursor over it: hover and arrow keys choose a moment, a drag a span.
//
// The server's SVG says where its plots are (`rect.plot`), and its root which time they cover (`data-from`, `data-until`).

import { h, parseSvg } from "./dom.js";

/** How far a pointer moves before it is a drag, in pixels. */
const DRAG = 8;
const SHORTEST = 600;

/** One chart in `host`. `on` has `hover(at)`, `pin(at)`, `zoom(from, until)` and `pan(direction)`. */
export class Plot {
  constructor(host, on) {
    this.on = on;
    this.drawing = h("div.drawing");
    this.line = h("div.hair");
    this.tip = h("div.tip");
    this.span = h("div.drag");
    this.slider = h("div.cursor", { role: "slider", tabindex: 0, "aria-label": "Moment. Arrow keys move it, Escape returns to now, plus and minus zoom" }, this.span, this.line, this.tip);
    host.replaceChildren(this.drawing, this.slider);
    this.listen();
  }

  /** Shows another drawing, if its text differs. */
  draw(text, label) {
    if (text === this.text) return;
    this.text = text;
    const svg = parseSvg(text, label);
    this.drawing.replaceChildren(svg ?? "");
    if (!svg) return;
    this.from = Number(svg.dataset.from);
    this.until = Number(svg.dataset.until);
    this.svg = svg;
    this.slider.setAttribute("aria-valuemin", this.from);
    this.slider.setAttribute("aria-valuemax", this.until);
  }

  /** Brings a layer to the front, by its name in the drawing; the others fade. */
  pick(layer) {
    if (!this.svg) return;
    let found = false;
    for (const path of this.svg.querySelectorAll("[data-layer]")) {
      const is = path.dataset.layer === layer;
      path.classList.toggle("picked", is);
      found ||= is;
    }
    this.svg.classList.toggle("picking", found);
  }

  /** Puts the cursor at a moment, with lines of text beside it, or hides it. */
  show(at, lines, spoken) {
    this.at = at;
    const place = at === null ? null : this.place(at);
    this.slider.classList.toggle("on", place !== null);
    this.slider.setAttribute("aria-valuenow", at ?? this.until ?? 0);
    this.slider.setAttribute("aria-valuetext", spoken);
    if (place === null) return;
    const { left, right, top, height } = this.plots();
    this.line.style.cssText = `transform:translateX(${place}px);top:${top}px;height:${height}px`;
    this.tip.replaceChildren(...lines);
    const width = this.tip.offsetWidth + 12;
    const x = place + width > right && place - width > left - 40 ? place - width : place + 12;
    this.tip.style.cssText = `transform:translateX(${Math.max(0, Math.min(x, this.slider.clientWidth - width + 12))}px);top:${top}px`;
  }

  /** Where the plots are, in pixels of the page. */
  plots() {
    const scale = this.svg.getBoundingClientRect().width / this.svg.viewBox.baseVal.width;
    const boxes = [...this.svg.querySelectorAll("rect.plot")].map((rect) => rect.getBBox());
    const first = boxes[0] ?? { x: 0, width: 1, y: 0, height: 0 };
    const last = boxes.at(-1) ?? first;
    return { left: first.x * scale, right: (first.x + first.width) * scale, top: first.y * scale, height: (last.y + last.height - first.y) * scale };
  }

  place(at) {
    if (!this.svg || at < this.from || at > this.until) return null;
    const { left, right } = this.plots();
    return left + ((at - this.from) / (this.until - this.from)) * (right - left);
  }

  /** The minute under a pointer. */
  moment(event) {
    const { left, right } = this.plots();
    const x = event.clientX - this.slider.getBoundingClientRect().left;
    const share = Math.max(0, Math.min(1, (x - left) / (right - left)));
    return Math.floor((this.from + share * (this.until - this.from)) / 60) * 60;
  }

  listen() {
    const { slider } = this;
    let pressed = null;
    slider.addEventListener("pointermove", (event) => {
      if (!this.svg) return;
      if (pressed !== null && event.pointerType === "mouse") this.mark(pressed, event.clientX);
      this.on.hover(this.moment(event));
    });
    slider.addEventListener("pointerleave", () => this.on.hover(null));
    slider.addEventListener("pointerdown", (event) => {
      if (event.button || !this.svg) return;
      pressed = event.clientX;
      if (event.pointerType === "mouse") slider.setPointerCapture(event.pointerId);
    });
    slider.addEventListener("pointercancel", () => (pressed = null));
    slider.addEventListener("pointerup", (event) => {
      if (pressed === null) return;
      const [start, end] = [pressed, event.clientX].sort((a, b) => a - b);
      pressed = null;
      this.span.style.cssText = "";
      if (end - start < DRAG || event.pointerType !== "mouse") return this.on.pin(this.moment(event));
      const from = this.moment({ clientX: start });
      this.on.zoom(from, Math.max(from + SHORTEST, this.moment({ clientX: end })));
    });
    slider.addEventListener("keydown", (event) => this.key(event));
  }

  mark(start, end) {
    if (Math.abs(end - start) < DRAG) return;
    const { top, height } = this.plots();
    const x = Math.min(start, end) - this.slider.getBoundingClientRect().left;
    this.span.style.cssText = `transform:translateX(${x}px);width:${Math.abs(end - start)}px;top:${top}px;height:${height}px`;
  }

  key(event) {
    if (!this.svg || event.ctrlKey || event.metaKey || event.altKey) return;
    const length = this.until - this.from;
    const step = Math.max(60, Math.round(length / 360 / 60) * 60) * (event.shiftKey ? 10 : 1);
    const at = this.at ?? Math.min(this.on.now(), this.until);
    const middle = this.at ?? (this.from + this.until) / 2;
    const scaled = (factor) => this.on.zoom(...[-1, 1].map((side) => Math.round(middle + (side * Math.max(SHORTEST, length * factor)) / 2)));
    const acts = {
      ArrowLeft: () => this.on.pin(Math.max(this.from, at - step)),
      ArrowRight: () => this.on.pin(Math.min(this.until, at + step)),
      Home: () => this.on.pin(this.from),
      End: () => this.on.pin(this.until),
      Escape: () => this.on.pin(null),
      PageUp: () => this.on.zoom(this.from - length / 2, this.until - length / 2),
      PageDown: () => this.on.zoom(this.from + length / 2, this.until + length / 2),
      "+": () => scaled(0.5),
      "-": () => scaled(2),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
}
