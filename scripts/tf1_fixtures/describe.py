"""case.json: a fixture's inputs, outputs and recurrences in terms of its GPU graph."""
import json
import os

import tensorflow as tf

CUDNN_OPS = ("CudnnRNN", "CudnnRNNV2", "CudnnRNNV3")


def describe(build, case, gpu_graph, layers, folder):
    description = {
        "name": build.__name__,
        "tensorflow": tf.__version__,
        "about": " ".join(build.__doc__.split()),
        "inputs": sorted(case.feeds[0]),
        "outputs": list(case.outputs),
        "unreached": list(case.unreached),
        "flags": list(case.flags),
        "recurrences": inference_recurrences(gpu_graph, case.outputs, layers),
    }
    if case.states:
        description.update(stateful=True, states=dict(case.states))
    with open(os.path.join(folder, "case.json"), "w") as stream:
        json.dump(description, stream, indent=2, sort_keys=True)
        stream.write("\n")


def inference_recurrences(graph, outputs, layers):
    """The cuDNN nodes that the outputs need, each with the sizes of the layer whose blob it reads.

    Where several read one blob, those in training mode stand in branches that inference does not take.
    """
    by_kernel = {layer.opaque_key: layer.recurrence for layer in layers.built}
    needed = ancestors([graph.get_tensor_by_name(name).op for name in outputs])
    kernels = {}
    for op in sorted(needed, key=lambda op: op.name):
        if op.type in CUDNN_OPS:
            (kernels[op],) = {o.name for o in ancestors([op.inputs[3].op])} & set(by_kernel)
    serving = {kernel for op, kernel in kernels.items() if not op.get_attr("is_training")}
    found = []
    for op, kernel in sorted(kernels.items(), key=lambda item: item[0].name):
        if kernel not in serving or not op.get_attr("is_training"):
            sizes = by_kernel[kernel]._asdict()
            del sizes["dtype"]
            found.append(dict(sizes, node=op.name, op=op.type))
    assert found, "no recurrence reaches the outputs"
    return found


def ancestors(ops):
    """The ops and everything whose values they need; control edges carry none."""
    seen, waiting = set(), list(ops)
    while waiting:
        op = waiting.pop()
        if op not in seen:
            seen.add(op)
            waiting.extend(tensor.op for tensor in op.inputs)
    return seen
