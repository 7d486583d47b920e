"""The same bytes in every run: datasets without times, archives with a fixed date, attributes and
updates in order.
"""
import contextlib
import json
import zipfile

import h5py
from google.protobuf import json_format


@contextlib.contextmanager
def datasets():
    """Inside, h5py stores no creation time with a dataset; h5py 3 never does, h5py 2 always."""
    create = h5py.Group.create_dataset

    def without_times(group, name, *arguments, **options):
        return create(group, name, *arguments, **dict({"track_times": False}, **options))

    h5py.Group.create_dataset = without_times
    try:
        yield
    finally:
        h5py.Group.create_dataset = create


@contextlib.contextmanager
def attributes(_):
    """Inside, the attributes of a NodeDef become JSON in the order of their names; a map of protobuf has none."""
    to_dict = json_format.MessageToDict

    def in_order(message):
        described = to_dict(message)
        return dict(described, attr=dict(sorted(described["attr"].items())))

    json_format.MessageToDict = in_order
    try:
        yield
    finally:
        json_format.MessageToDict = to_dict


def archive(path):
    """Rewrites a .keras archive: the date of every member, and the one that metadata.json holds."""
    with zipfile.ZipFile(path) as source:
        members = [(info.filename, source.read(info.filename)) for info in source.infolist()]
    with zipfile.ZipFile(path, "w") as target:
        for name, content in members:
            if name == "metadata.json":
                metadata = json.loads(content.decode())
                metadata["date_saved"] = "2026-01-01@00:00:00"
                content = json.dumps(metadata).encode()
            target.writestr(zipfile.ZipInfo(name), content)


def order_updates(optimizer):
    """keras-team's Adam writes a variable while gradients of others may still read it: a race whose outcome
    changes from run to run. Here updates wait for all gradients, and the step counter waits for them."""
    get_gradients, get_updates = optimizer.get_gradients, optimizer.get_updates
    gradients = []

    def kept(*arguments, **options):
        gradients.extend(get_gradients(*arguments, **options))
        return gradients[:]

    def ordered(*arguments, **options):
        updates = get_updates(*arguments, **options)
        ops = [getattr(update, "op", update) for update in updates]
        for op in ops[1:]:
            op._add_control_inputs([gradient.op for gradient in gradients])
        ops[0]._add_control_inputs(ops[1:])
        return updates

    optimizer.get_gradients, optimizer.get_updates = kept, ordered
