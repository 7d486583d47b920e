"""A user who calls a model in a row, with the states that it gave in the call before.

`job.json` has `format`, `artifact` and `states`, each with its key, the next one, its shape and perhaps the
output to begin with. `calls.npz` has the inputs of call `n` as `n/KEY`; answers go to `answers.npz` alike.
"""

import json
from pathlib import Path

import numpy as np
import stream_user


def run():
    job = json.loads(Path("job.json").read_text())
    openers = {
        "savedmodel": stream_user.signatures_of,
        "onnx": stream_user.models_of,
        "tflite": stream_user.interpreters_of,
        "frozen": lambda path: stream_user.frozen_of(path, job),
    }
    (step,) = openers[job["format"]](Path(job["artifact"])).values()
    calls, answers = dict(np.load("calls.npz")), {}
    states = {each["key"]: np.zeros(each["shape"], np.float32) for each in job["states"]}
    for number in range(len({key.partition("/")[0] for key in calls})):
        own = {key.partition("/")[2]: value for key, value in calls.items() if key.startswith(f"{number}/")}
        if number == 0:
            begun = step(own | states)
            for each in job["states"]:
                if each["begin_key"]:
                    states[each["key"]] = begun[each["begin_key"]]
                    assert np.array_equal(begun[each["begin_key"]], np.float32(each["begin_value"]))
        answer = step(own | states)
        states = {each["key"]: answer[each["next_key"]] for each in job["states"]}
        answers |= {f"{number}/{key}": value for key, value in answer.items()}
    np.savez("answers.npz", **answers)
