"""The spikes of a forward pass: which modules fire, watching them, and where time is in what they emit."""
