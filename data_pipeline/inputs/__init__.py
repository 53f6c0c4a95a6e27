"""What goes into a corpus: assemblies, finished sequences and reads, and places on them."""
