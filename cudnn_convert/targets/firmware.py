"""C++ source of a TensorFlow Lite file for firmware: bytes, arena and operators.

TensorFlow Lite Micro links the kernels of the operators that a resolver names, and takes its memory from an
arena of a fixed size.
"""

import re
from collections.abc import Iterator
from typing import Final

from cudnn_convert.artifacts.micro_operators import METHODS
from cudnn_convert.report.values import MicroReport

#: Bytes of the model in a line of source.
_IN_A_LINE: Final = 16
#: What the Python interpreter of Micro takes where it is told nothing, as a multiple of the file.
#: Source: tflite-micro 90b983c python/tflite_micro/runtime.py (Interpreter.__init__).
_UNMEASURED: Final = 10


def make_source(content: bytes, name: str, micro: MicroReport) -> str:
    """Return C++ source with a model's bytes, arena size and resolver.

    All names in it begin with `name`, without what no name of C++ has. Raises ValueError for operators
    without a kernel.
    """
    if micro.missing:
        listed = ", ".join(micro.missing)
        raise ValueError(f"operators: expected those of TensorFlow Lite Micro, found {listed}")
    return "\n".join(_list_lines(content, _name(name), micro)) + "\n"


def _name(text: str) -> str:
    """Return a name as the beginning of names in C++."""
    name = re.sub("[^A-Za-z0-9]+", "_", text).strip("_")
    return name if name[:1].isalpha() else f"model_{name}".rstrip("_")


def _list_lines(content: bytes, name: str, micro: MicroReport) -> Iterator[str]:
    kind = f"tflite::MicroMutableOpResolver<{max(1, len(micro.operators))}>"
    yield from _describe_use(name, kind, keeps_state=micro.variables > 0)
    yield ""
    yield '#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"'
    yield ""
    yield "// The TensorFlow Lite file."
    yield f"alignas(16) const unsigned char {name}_data[] = {{"
    for start in range(0, len(content), _IN_A_LINE):
        yield f"    {', '.join(f'0x{byte:02x}' for byte in content[start : start + _IN_A_LINE])},"
    yield "};"
    yield f"const unsigned int {name}_size = {len(content)};"
    yield ""
    yield from _describe_arena(micro)
    yield f"constexpr int {name}_arena_size = {micro.arena or _UNMEASURED * len(content)};"
    yield ""
    yield "// The operators of the file, and no others: only their kernels are linked."
    yield f"inline {kind} {name}_resolver() {{"
    yield f"  {kind} resolver;"
    for operator in micro.operators:
        yield f"  resolver.{METHODS[operator]}();"
    yield "  return resolver;"
    yield "}"


def _describe_use(name: str, kind: str, *, keeps_state: bool) -> Iterator[str]:
    """Yield the comment on calling the model."""
    yield "// A model for TensorFlow Lite Micro, written by cudnn-convert. Include this file to call it:"
    yield "//"
    yield '//   #include "tensorflow/lite/micro/micro_interpreter.h"'
    yield "//"
    yield f"//   alignas(16) static unsigned char arena[{name}_arena_size];"
    yield f"//   static {kind} resolver = {name}_resolver();"
    yield f"//   static const tflite::Model* model = tflite::GetModel({name}_data);"
    yield f"//   static tflite::MicroInterpreter interpreter(model, resolver, arena, {name}_arena_size);"
    yield "//   interpreter.AllocateTensors();  // once; kTfLiteOk, or the arena is too small"
    yield "//"
    yield "// Then for each sequence, in this order:"
    yield "//"
    if keeps_state:
        yield "//   interpreter.Reset();  // all states are zeros again"
    yield "//   TfLiteTensor* input = interpreter.input(0);  // set every input: a call may overwrite it"
    yield "//   interpreter.Invoke();  // kTfLiteOk, or a kernel failed"
    yield "//   TfLiteTensor* output = interpreter.output(0);"
    yield "//"
    yield "// The values of float32 are input->data.f, those of int8 input->data.int8."


def _describe_arena(micro: MicroReport) -> Iterator[str]:
    if micro.arena is None:
        yield f"// Bytes of the arena. They were not measured: {_UNMEASURED} times those of the file."
    else:
        yield "// Bytes of the smallest arena in which tflite-micro's interpreter ran the file, with 64 bits."
    yield "// Kernels of your processor may need more. AllocateTensors() tells whether it is enough."
