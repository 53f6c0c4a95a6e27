"""What the states of a model tell of a sequence, by support vector machines on frozen vectors."""
