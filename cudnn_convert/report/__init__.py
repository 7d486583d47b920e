"""Reports of conversions and verifications, the same for library and `--json`.

* values: Values of a report on a conversion, a comparison or a map.
* model_reports: Reports of a model's recurrences, states and decoders.
* provenance: Provenance in an artifact: the origin as JSON, enough to repeat the verification.
* html : HTML from Python values: the style sheet, escaped elements, tables and plots.
* draw : Draws the network around recurrences, from the inputs to the outputs.
* page : A report as a self-contained page of HTML: free of scripts, fonts and addresses.
* card : A model card in Markdown: the origin of an artifact, and the dated verdict.
* verdict: The verdict as a sentence or headline: results, errors, and parts left out.
* files: Writes reports beside OUT: JSON, a page, a model card.

May import: version, text, errors, model, values, storage.
Entry: `Report` and `Verification`, the results; `files.write_reports` writes them.
"""

from dataclasses import dataclass

from cudnn_convert.report.values import Conversion, Proof


@dataclass(frozen=True, slots=True)
class Verification(Proof):
    """A verification, shown by notebooks as a short page.

    `Proof` has its fields.
    """

    def _repr_html_(self) -> str:
        from cudnn_convert.report import page

        return page.fragment(self)


@dataclass(frozen=True, slots=True)
class Report(Conversion):
    """A conversion, shown by notebooks as a short page.

    `Conversion` has its fields.
    """

    verification: Verification | None

    def _repr_html_(self) -> str:
        from cudnn_convert.report import page

        return page.fragment(self)
