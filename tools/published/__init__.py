"""Published TPU programs, and how each is laid out, run and checked."""
