"""What is between picojoule and the system: files, signals, threads in the background, tables as text."""
