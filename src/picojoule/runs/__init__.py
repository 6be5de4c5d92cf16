"""A run on disk: its folder, checkpoints and typed result; evaluating it and answering pictures with it."""
