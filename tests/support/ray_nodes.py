"""A cluster of Ray on this machine: two nodes of one CPU, small stores of objects, one node to lose."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from support.samples import ROOT

#: Bytes of each node's store of objects: nearly the least that Ray takes.
STORE: Final = 80 << 20


@dataclass
class Nodes:
    """A running cluster; its head stays, the other node can be lost."""

    address: str
    cluster: Any
    other: Any
    is_lost: bool = False

    def lose_node(self) -> None:
        """Kill the node with all its processes, as a machine that goes."""
        self.cluster.remove_node(self.other, allow_graceful=False)
        self.is_lost = True


@contextmanager
def begin_cluster() -> Iterator[Nodes]:
    """Begin two nodes, whose workers can import what tests can, and end them at the end."""
    from ray.cluster_utils import Cluster

    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    settings = {"num_cpus": 1, "object_store_memory": STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**settings, "include_dashboard": False})
    try:
        yield Nodes(cluster.address, cluster, cluster.add_node(**settings))
    finally:
        del os.environ["PYTHONPATH"]
        cluster.shutdown()
