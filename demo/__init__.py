"""The demo: explore a DNA model in a browser. `carbon demo` opens it."""
