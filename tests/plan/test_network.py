"""The links between inputs, recurrences and outputs."""

from __future__ import annotations

from support.samples import fixture

from cudnn_convert.options import Options
from cudnn_convert.plan.make import make_plan
from cudnn_convert.plan.network import draw_network
from cudnn_convert.plan.source import read_source


def test_links_stand_by_the_names_of_recurrences() -> None:
    """The order of a set differs from process to process, and a report's would with it."""
    source = read_source(fixture("1.15.5-towers_split").prefix, Options(), tag=None)
    network = draw_network(make_plan(source, Options()))
    assert network is not None
    assert [(link.source, link.target) for link in network.links] == [
        ("input x", "model/encoder/CudnnRNN"),
        ("input x", "model_1/encoder/CudnnRNN"),
        ("model/encoder/CudnnRNN", "output logits"),
        ("model_1/encoder/CudnnRNN", "output logits"),
    ]
