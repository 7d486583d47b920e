"""Runs CuDNN layers on a CPU: the layer's op gives way to the same equations in ordinary ops.

Only the method that calls the op is replaced, and only while a model is built that must run. Variables, their
shapes and names, the optimizer's slots and the file are those of the CuDNN layers.
"""
import contextlib


@contextlib.contextmanager
def on_cpu(writer):
    """Inside, the writer's CuDNN layers build graphs that a CPU runs."""
    steps = {"CuDNNLSTM": lstm_step, "CuDNNGRU": gru_step}
    classes = {name: writer.cudnn_class(name) for name in steps}
    methods = {name: layer_class._process_batch for name, layer_class in classes.items()}
    for name, layer_class in classes.items():
        layer_class._process_batch = process_batch(writer.backend, steps[name])
    try:
        yield
    finally:
        for name, layer_class in classes.items():
            layer_class._process_batch = methods[name]


def process_batch(backend, step_of):
    def _process_batch(layer, inputs, initial_state):
        step = step_of(backend, layer)
        major = {"time_major": True} if getattr(layer, "time_major", False) else {}
        last, outputs, states = backend.rnn(step, inputs, list(initial_state), **major)
        return (outputs if layer.return_sequences else last), list(states)

    return _process_batch


def blocks(backend, matrix, units):
    """Gate blocks [rows, units] of a kernel; each is cuDNN's row-major matrix [units, rows]."""
    rows, columns = backend.int_shape(matrix)
    gates = range(columns // units)
    parts = [matrix[:, gate * units:(gate + 1) * units] for gate in gates]
    return [backend.transpose(backend.reshape(part, (units, rows))) for part in parts]


def pieces(layer, half):
    """One half of the bias, gate by gate: 0 is added to the input's product, 1 to the state's."""
    gates = int(layer.bias.shape[0]) // (2 * layer.units)
    starts = [(half * gates + gate) * layer.units for gate in range(gates)]
    return [layer.bias[start:start + layer.units] for start in starts]


def products(backend, layer):
    """Functions of the inputs and of the state: the biased product of every gate."""
    kernels = blocks(backend, layer.kernel, layer.units)
    recurrent = blocks(backend, layer.recurrent_kernel, layer.units)

    def of(value, matrices, biases):
        return [backend.dot(value, matrix) + bias for matrix, bias in zip(matrices, biases)]

    return (lambda x: of(x, kernels, pieces(layer, 0))), (lambda h: of(h, recurrent, pieces(layer, 1)))


def lstm_step(backend, layer):
    from_input, from_state = products(backend, layer)

    def step(x, states):
        h, c = states[:2]
        i, f, g, o = [a + b for a, b in zip(from_input(x), from_state(h))]
        c = backend.sigmoid(f) * c + backend.sigmoid(i) * backend.tanh(g)
        h = backend.sigmoid(o) * backend.tanh(c)
        return h, [h, c]

    return step


def gru_step(backend, layer):
    from_input, from_state = products(backend, layer)

    def step(x, states):
        h = states[0]
        (z, r, g), (z_h, r_h, g_h) = from_input(x), from_state(h)
        z, r = backend.sigmoid(z + z_h), backend.sigmoid(r + r_h)
        h = z * h + (1 - z) * backend.tanh(g + r * g_h)
        return h, [h]

    return step
