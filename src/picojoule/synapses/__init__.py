"""The synapses of a network: ψ, the number of synapses that a spike of each neuron reaches, by one structural pass."""
