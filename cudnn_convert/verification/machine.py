"""The machine that a recording is made on: versions, devices and settings that bear on the numbers."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.client import device_lib


def facts() -> dict[str, Any]:
    """What a recording's `meta` says of the machine."""
    built, found = tf.sysconfig.get_build_info(), devices()
    return {
        "tensorflow": tf.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cuda": built.get("cuda_version"),
        "cudnn": built.get("cudnn_version"),
        "devices": found,
        "tf32": tf32(
            [device["description"] for device in found if device["type"] == "GPU"],
            enabled=bool(tf.config.experimental.tensor_float_32_execution_enabled()),
            environment=os.environ,
        ),
    }


def devices() -> list[dict[str, str]]:
    """TensorFlow's devices: of each its `name`, its `type`, and a `description` where it has one."""
    return [
        {"name": found.name, "type": found.device_type, "description": found.physical_device_desc}
        for found in device_lib.list_local_devices()
    ]


def tf32(gpus: Sequence[str], *, enabled: bool, environment: Mapping[str, str]) -> dict[str, Any]:
    """Whether float32 is computed with 10 bits of mantissa; `gpus` are TensorFlow's descriptions of them.

    Devices of compute capability 8.0 and later do so unless told not to (tensorflow v2.21.0 python/framework/
    config.py enable_tensor_float_32_execution).
    """
    known = [match for gpu in gpus if (match := re.search(r"compute capability: (\d+)\.", gpu))]
    newest = max((int(match[1]) for match in known), default=0)
    told = {
        name: value
        for name, value in environment.items()
        if name.startswith("TF_ENABLE_") or name == "NVIDIA_TF32_OVERRIDE"
    }
    off = [
        *(["no GPU"] if not gpus else []),
        *([f"compute capability {newest}, TF32 needs 8"] if known and newest < 8 else []),
        *(["NVIDIA_TF32_OVERRIDE=0"] if told.get("NVIDIA_TF32_OVERRIDE") == "0" else []),
        *([] if enabled else ["switched off in TensorFlow"]),
    ]
    reason = off[0] if off else f"compute capability {newest}"
    return {"on": not off, "reason": reason, "execution_enabled": enabled, "environment": told}
