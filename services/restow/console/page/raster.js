// Rectangles into the pixels of a canvas. Tens of thousands of small ones cost a few milliseconds on any machine, with or without a GPU.

export class Raster {
  constructor(canvas) {
    this.context = canvas.getContext("2d", { alpha: false, desynchronized: false });
    this.canvas = canvas;
    this.resize(1, 1);
  }

  resize(width, height) {
    this.width = Math.max(1, width);
    this.height = Math.max(1, height);
    this.canvas.width = this.width;
    this.canvas.height = this.height;
    this.image = this.context.createImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  clear(color) {
    this.pixels.fill(color);
  }

  // Everything so many rows further down (up, where it is negative); `from` and `to` are the rows that have to be drawn now.
  shift(rows, color) {
    const moved = Math.min(Math.abs(rows), this.height);
    const [from, to] = rows > 0 ? [0, moved] : [this.height - moved, this.height];
    if (rows > 0) this.pixels.copyWithin(moved * this.width, 0, (this.height - moved) * this.width);
    else this.pixels.copyWithin(0, moved * this.width);
    this.pixels.fill(color, from * this.width, to * this.width);
    return { from, to };
  }

  rect(x, y, width, height, color) {
    const left = x < 0 ? 0 : x;
    const right = x + width > this.width ? this.width : x + width;
    const top = y < 0 ? 0 : y;
    const bottom = y + height > this.height ? this.height : y + height;
    if (left >= right) return;
    const pixels = this.pixels;
    for (let row = top; row < bottom; row++) {
      const begin = row * this.width;
      for (let at = begin + left, end = begin + right; at < end; at++) pixels[at] = color;
    }
  }

  // Diagonal stripes, one pixel of every `step`.
  hatch(x, y, width, height, color, step) {
    const right = Math.min(this.width, x + width);
    const bottom = Math.min(this.height, y + height);
    for (let row = Math.max(0, y); row < bottom; row++) {
      for (let column = Math.max(0, x); column < right; column++) {
        if ((column + row) % step < step / 2.5) this.pixels[row * this.width + column] = color;
      }
    }
  }

  frame(x, y, width, height, color, thick = 1) {
    this.rect(x, y, width, thick, color);
    this.rect(x, y + height - thick, width, thick, color);
    this.rect(x, y, thick, height, color);
    this.rect(x + width - thick, y, thick, height, color);
  }

  show() {
    this.context.putImageData(this.image, 0, 0);
  }
}
