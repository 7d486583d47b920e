"""Reports of conversions and verifications, the same for library and `--json`.

* values: Values of a report: what was converted, compared and found.
* model_reports: Reports of a model's recurrences, states and decoders.
* provenance: Provenance in an artifact: its origin as JSON, enough to verify it again.
* html : HTML from Python values: the style sheet, escaped elements, tables and plots.
* draw : The network around recurrences as a picture, from its inputs to its outputs.
* page : A report as one self-contained page of HTML: no script, no font, no address.
* card : A model card in Markdown: where an artifact comes from, and its verdict on a date.
* verdict: The verdict in a sentence, or a headline: what was proven, how closely, and what was not looked at.
* files: Writes reports beside OUT: JSON, a page, a model card.

May import: version, text, errors, model, values, storage.
Entry: `Report` and `Verification`, the results; `files.write_reports` writes them.
"""

from dataclasses import dataclass

from cudnn_convert.report.values import Conversion, Proof


@dataclass(frozen=True, slots=True)
class Verification(Proof):
    """A verification, which a notebook shows as a short page; `Proof` has its fields."""

    def _repr_html_(self) -> str:
        from cudnn_convert.report import page

        return page.fragment(self)


@dataclass(frozen=True, slots=True)
class Report(Conversion):
    """A conversion, which a notebook shows as a short page; `Conversion` has its fields."""

    verification: Verification | None

    def _repr_html_(self) -> str:
        from cudnn_convert.report import page

        return page.fragment(self)
