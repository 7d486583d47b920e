"""Makes local copies of a call's paths in a store, and uploads the results.

A call with an address among its paths works on copies in a temporary folder: a source with all its files, an
artifact, a file that a flag names. OUT is made beside them and copied to its address at the end. Errors and
results name addresses, as the user does.
"""

from __future__ import annotations

import atexit
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from glob import has_magic
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from cudnn_convert import context, storage
from cudnn_convert.artifacts import runners
from cudnn_convert.context import Limits
from cudnn_convert.errors import CudnnConvertError, ReadError, Reason, Remedy, UsageError
from cudnn_convert.formats import PROVENANCE
from cudnn_convert.options import Options
from cudnn_convert.read import paths
from cudnn_convert.storage import remote

#: The provenance of a folder OUT, the last object that is written; a folder without it is not finished.
MARKS: Final = (storage.RECORD, f"assets.extra/{PROVENANCE}")
_SAVED_MODELS: Final = ("saved_model.pb", "saved_model.pbtxt")
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def with_copies(work: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """Wrap `work` to run on local copies in place of addresses.

    The addresses are among its paths and the files of its Options. Its `out` is written locally, and copied
    to its address at the end. Raises what `work` raises, of addresses; ReadError, AccessError, WriteError,
    UsageError and MissingDependencyError for stores.
    """

    @wraps(work)
    def run_on_copies(*given: _Given.args, **named: _Given.kwargs) -> _Result:
        bound = inspect.signature(work).bind(*given, **named)
        options = next(value for value in bound.arguments.values() if isinstance(value, Options))
        for path in (*bound.arguments.values(), *_files_of(options).values()):
            if isinstance(path, Path):
                remote.check(path)
        paths_given = {
            name: value
            for name, value in bound.arguments.items()
            if isinstance(value, Path) and remote.address_of(value)
        }
        if not paths_given and not _files_of(options):
            return work(*given, **named)
        with context.within(Limits.of(options.limit)), open_copies() as copies:
            return copies.run(work, bound, paths_given, options)

    return run_on_copies


def _files_of(options: Options) -> dict[str, Path]:
    """Return the options with an address as value, by name."""
    values = {field.name: getattr(options, field.name) for field in fields(options)}
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, Path) and remote.address_of(value) and not has_magic(value.name)
    }


@contextmanager
def open_copies() -> Iterator[Copies]:
    """Yield a temporary folder for copies, removed at the end."""
    with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as folder:
        yield Copies(Path(folder))


@contextmanager
def local_copy(path: Path) -> Iterator[Path]:
    """Yield a local copy of an address, removed at the end, or a local path.

    A local path is as it is. Raises as `Copies.copy`; errors of the body name the address.
    """
    if not remote.address_of(path):
        yield path
        return
    with open_copies() as copies:
        try:
            yield copies.copy(path)
        except CudnnConvertError as error:
            copies.rename_in(error)
            raise


#: The copies that this call works on.
_CURRENT: Final[ContextVar[Copies | None]] = ContextVar("copies", default=None)


@contextmanager
def _use(copies: Copies) -> Iterator[None]:
    token = _CURRENT.set(copies)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def name_again(value: Any) -> Any:
    """Return a value with addresses in place of the call's copies.

    It replaces paths at any depth of the value.
    """
    copies = _CURRENT.get()
    if copies is None:
        return value
    match value:
        case Path():
            return Path(copies.rename(str(value)))
        case tuple():
            return tuple(map(name_again, value))
        case _ if is_dataclass(value) and not isinstance(value, type):
            values = {field.name: getattr(value, field.name) for field in fields(value)}
            own = {name: name_again(path) for name, path in values.items() if isinstance(path, Path)}
            return replace(value, **own)
    return value


#: The copies that this process keeps to its end, by address; the process of a pool works on one call.
_kept: dict[Path, Path] = {}


def keep_copy(value: Any) -> Any:
    """Return a path, or Options, with copies in place of addresses.

    The copies are kept as long as this process runs.
    """
    if isinstance(value, Options):
        files: dict[str, Any] = {name: keep_copy(file) for name, file in _files_of(value).items()}
        return replace(value, **files)
    if not remote.address_of(value):
        return value
    if value not in _kept:
        folder = tempfile.mkdtemp(prefix="cudnn_convert.")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _kept[value] = Copies(Path(folder)).copy(value)
    return _kept[value]


class Copies:
    """Copies of addresses, in a folder, with the addresses by the copies' folders."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._addresses: dict[str, str] = {}

    def run(
        self,
        work: Callable[..., _Result],
        bound: inspect.BoundArguments,
        given: Mapping[str, Path],
        options: Options,
    ) -> _Result:
        """Call `work` on copies of the paths `given` and of the files in the options."""
        out = given.get("out")
        local = bound.arguments
        try:
            if out is not None:
                reads = (path for name, path in given.items() if name != "out")
                refuse_place(out, reads, force=options.force)
                local["out"] = self._place(out)
            for name in given.keys() - {"out"}:
                local[name] = self.copy(given[name], is_artifact=name == "artifact")
            files: dict[str, Any] = {name: self.copy(path) for name, path in _files_of(options).items()}
            own = next(name for name, value in local.items() if value is options)
            local[own] = replace(options, **files)
            if "ready" in local:
                hear = local["ready"]
                local["ready"] = lambda report: hear(self.rename(report))
            with context.renaming(self.rename), _use(self):
                result: _Result = work(*bound.args, **bound.kwargs)
            if out is not None and local["out"].exists():
                self._publish(local["out"], out, options)
            renamed: _Result = self.rename(result)
            return renamed
        except CudnnConvertError as error:
            self.rename_in(error)
            raise

    def rename_in(self, error: CudnnConvertError) -> None:
        """Name addresses in an error in place of copies."""
        error.args = self.rename(error.args)
        error.__dict__.update({name: self.rename(value) for name, value in error.__dict__.items()})

    def copy(self, path: Path, *, is_artifact: bool = False) -> Path:
        """Copy the file or model at an address, and return the local path.

        All files of a model are copied. Raises ReadError where nothing is there, or an artifact that is not
        finished; AccessError.
        """
        given, path = path, _whole(path)
        listed = list_model(path)
        if not listed:
            expected = "a model or a file in a bucket"
            actual = "nothing at this address"
            raise ReadError(
                remote.name_of(given), "source", expected=expected, found=actual, advice="check the address"
            )
        _require_finished(path, listed, is_artifact=is_artifact)
        total, most = sum(entry.size for entry in listed.values()), context.current().staged
        if total > most:
            advice = f"if that is meant, give --limit staged={total}"
            raise ReadError(
                remote.name_of(given),
                "source",
                expected=f"at most {most} bytes",
                found=f"{total}",
                advice=advice,
            )
        local = self._place(path)
        remote.fetch(
            path, listed, local.parent, tell=lambda done: context.report_progress("fetching", done, total)
        )
        return local / given.relative_to(path)

    def _place(self, path: Path) -> Path:
        """Return the local path of an address, in a separate folder."""
        folder = self._folder / str(len(self._addresses))
        folder.mkdir()
        self._addresses[str(folder)] = remote.name_of(path.parent)
        return folder / path.name

    def _publish(self, local: Path, out: Path, options: Options) -> None:
        refuse_place(out, (), force=options.force)  # what another run put there meanwhile stays
        files = [file for file in local.rglob("*") if file.is_file()] if local.is_dir() else [local]
        total = sum(file.stat().st_size for file in files)

        def tell(done: int) -> None:
            context.report_progress("uploading", done, total)

        if listed := remote.list_below(out):
            storage.require_kind(remote.name_of(out), folder=local.is_dir(), is_folder="" not in listed)
        if local.is_dir():
            remote.put_folder(local, out, MARKS, tell=tell)
        else:
            remote.put(local, out)

    def rename(self, value: Any) -> Any:
        """Return a value with addresses in place of copies, in texts at any depth."""
        match value:
            case Reason():
                text = self.rename("".join(value))
                return Reason(text, *(self.rename(remedy) for remedy in value.remedies))
            case str():
                for folder, address in self._addresses.items():
                    value = value.replace(folder, address)
            case Remedy():
                return replace(value, options=self.rename(dict(value.options)), lead=self.rename(value.lead))
            case tuple() | list():
                return type(value)(self.rename(item) for item in value)
            case dict():
                return {name: self.rename(item) for name, item in value.items()}
            case _ if is_dataclass(value) and not isinstance(value, type):
                own = (field.name for field in fields(value) if field.init)
                return replace(value, **{name: self.rename(getattr(value, name)) for name in own})
        return value


def _whole(path: Path) -> Path:
    """Return the SavedModel with the file at an address, else the address."""
    if path.name in _SAVED_MODELS:
        return path.parent
    above = path.parent.parent
    if path.parent.name in paths.FOLDERS and {*_SAVED_MODELS} & remote.list_below(above).keys():
        return above
    return path


def list_model(path: Path) -> dict[str, remote.Object]:
    """Return the objects of the model at an address, by name from the parent.

    Of a SavedModel and of an OUT all below it, of another folder those directly in it; else the object, or
    the files of the checkpoint that it is the prefix or a file of. Raises AccessError.
    """
    stem, folder = paths.prefix(path).name, f"{path.name}/"
    listed = remote.list_objects(paths.prefix(path))
    is_whole = any(f"{folder}{name}" in listed for name in (*_SAVED_MODELS, *MARKS, remote.BEGUN))
    return {
        name: entry
        for name, entry in listed.items()
        if (name.startswith(folder) and (is_whole or "/" not in name.removeprefix(folder)))
        or ("/" not in name and paths.prefix(Path(name)).name == stem)
    }


def _require_finished(path: Path, listed: Mapping[str, remote.Object], *, is_artifact: bool) -> None:
    """Raise ReadError for a folder with an unfinished upload.

    An artifact's folder without its provenance is taken for one.
    """
    inside = {name.removeprefix(f"{path.name}/") for name in listed if name.startswith(f"{path.name}/")}
    if inside and not inside & {*MARKS} and (is_artifact or remote.BEGUN in inside):
        expected = f"a finished artifact, with {' or '.join(MARKS)}"
        advice = "its upload did not end, so convert it again"
        raise ReadError(
            remote.name_of(path),
            "artifact",
            expected=expected,
            found="one without such a file",
            advice=advice,
        )


def refuse_place(out: Path, reads: Iterable[Path] = (), *, force: bool) -> None:
    """Raise UsageError for an OUT in a store unless OUT may be written.

    The rules are those of a local OUT. What an upload began there and did not finish may be replaced. Raises
    AccessError.
    """
    address = remote.name_of(out)
    if "/" not in address.partition("://")[2]:
        raise UsageError(f"{address}: expected a name in a bucket, found a bucket; choose a name")
    for path in reads:
        here, there = paths.prefix(out), paths.prefix(path)
        if here == there or out in path.parents or path in out.parents:
            what = f"expected a path apart from the source {remote.name_of(path)}, found an overlap"
            raise UsageError(f"{address}: {what}; choose another path")
    listed = remote.list_below(out)
    is_unfinished = remote.BEGUN in listed and not listed.keys() & {*MARKS}
    if listed and not is_unfinished:
        kind = "file" if "" in listed else "folder"
        storage.refuse_existing(address, kind, is_ours=_is_ours(out, listed), force=force)


def _is_ours(out: Path, listed: Mapping[str, remote.Object]) -> bool:
    """Return True if the provenance at an address is by cudnn-convert."""
    kept = [name for name in ("", *MARKS) if name in listed]
    with tempfile.TemporaryDirectory(prefix="cudnn_convert.") as folder:
        local = Path(folder, out.name)
        for name in kept:
            file = f"{out.name}/{name}" if name else out.name
            remote.fetch(out, {file: listed[name]}, Path(folder), tell=lambda _: None)
        return bool(kept) and runners.is_ours(local)
