"""The demo: see what a DNA model sees, in a browser. `python -m demo` opens it."""
