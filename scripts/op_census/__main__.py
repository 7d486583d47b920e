"""Writes tests/data/op_census.tar.xz: each variant's graph, and what TensorFlow 1.15.5 answers.

    python -m op_census [--add] [VARIANT ...]        (in scripts/, Python 3.7 with tensorflow==1.15.5)

With variants it prints their answers, and writes nothing, or adds them to what is there. A call that TensorFlow refuses is left out; a variant
of which it refuses every call is named.
"""

import io
import multiprocessing
import os
import sys
import tarfile

import numpy as np

from op_census.record import VARIANTS, record_each

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def main(*names):
    members, absent, adds = {}, [], names[:1] == ("--add",)
    names = names[adds:]
    for name, graph, said in record_all(list(names or VARIANTS)):
        if graph is None:
            absent.append("%s: %s" % (name, said[:200]))
        else:
            members[name] = graph, said
    print("\n".join(absent))
    count = len({name.split("/")[0] for name in members})
    print("%d variants of %d ops, %d refused" % (len(members), count, len(absent)))
    path = os.path.join(ROOT, "tests", "data", "op_census.tar.xz")
    if names and not adds:
        for name, (_, answers) in members.items():
            print(name, *("\n  %s: %s" % (key, value.tolist()) for key, value in sorted(answers.items())))
        return
    earlier = []
    if adds:
        with tarfile.open(path) as packed:
            earlier = [(each.name, packed.extractfile(each).read()) for each in packed.getmembers()]
    with tarfile.open(path, "w:xz") as packed:
        for member, content in earlier:
            _write(packed, member, content)
        for name, (graph, answers) in members.items():
            _write(packed, "%s/graph.pb" % name, graph)
            _write(packed, "%s/golden.npz" % name, _savez(answers))


def _write(packed, member, content):
    info = tarfile.TarInfo(member)
    info.size = len(content)
    packed.addfile(info, io.BytesIO(content))


def record_all(names):
    """The name, graph and answers of each variant; without a graph, why there is none.

    TensorFlow ends the process on some: a new one goes on behind it.
    """
    while names:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        worker = multiprocessing.get_context("spawn").Process(target=record_each, args=(names, theirs))
        worker.start()
        theirs.close()
        try:
            while names:
                answered = ours.recv()
                names = names[1:]
                yield answered
        except EOFError:
            yield names[0], None, "TensorFlow ends the process"
            names = names[1:]
        worker.join()


def _savez(answers):
    file = io.BytesIO()
    np.savez(file, **answers)
    return file.getvalue()


if __name__ == "__main__":
    main(*sys.argv[1:])
