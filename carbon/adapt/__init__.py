"""Labels of sequences learned on top of a DNA model, and predicted.

`data` reads files into `examples`, `split` and `leaks` part them, `question` says what is asked and
how an answer is measured, `baselines` answer without a model.
"""
