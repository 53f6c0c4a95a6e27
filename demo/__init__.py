"""The demo: see what a DNA model sees, in a browser. `carbon demo` opens it."""
