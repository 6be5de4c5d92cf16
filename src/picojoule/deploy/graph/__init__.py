"""The front end that `convert`, `events` and `export` share: a network as a graph, and what they read from it.

* `capture`: the graph of layers (`torch.fx`), for the conversion and the event engine;
* `operations`: the graph of basic operations (`torch.export`), for NIR and ONNX;
* `nodes`: a node's name, place, arguments and shape;
* `batch_norm`: batch norm as a scale and a shift, and folded into the weights before it;
* `pools`: windows and divisors of pools;
* `refusal`: how a destination says what it cannot take.

**Why two graphs.** No single capture serves all destinations. The conversion returns a network of the user's own layers
under their names, and the event engine reads weights, pruning masks and settings from layers, so both need layers as
nodes; `torch.export` dissolves them into operations. The exports have no use for layers, but promise to follow
whatever the forward pass does (hooks, derived classes, functional calls with weights, decisions by shape), of which
`torch.fx` sees nothing or stops at it. Each graph gives up where it would have to guess.
"""
