"""The file `checkpoint` that a saver leaves in its folder: text that names the latest of its checkpoints.

Source: tensorflow v1.15.0 python/training/checkpoint_state.proto, checkpoint_management.py
`get_checkpoint_state`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

_PATH: Final = "model_checkpoint_path"


def latest(path: Path) -> str | None:
    """The prefix that the file names, as it stands there, None where it names none or is of another kind.

    Raises OSError.
    """
    # A pool of its own: TensorFlow, imported before or after, has a message of its own in the common one.
    file = descriptor_pb2.FileDescriptorProto(name="checkpoint_state.proto", package="cudnn_convert")
    field = descriptor_pb2.FieldDescriptorProto
    file.message_type.add(name="CheckpointState").field.add(
        name=_PATH, number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    state = message_factory.GetMessageClass(pool.FindMessageTypeByName("cudnn_convert.CheckpointState"))()
    try:
        text_format.Parse(path.read_text(encoding="utf-8"), state, allow_unknown_field=True)
    except (UnicodeDecodeError, RecursionError, text_format.ParseError):
        return None
    return str(getattr(state, _PATH)) or None
