"""Tables with a row for each tape, made block by block, so that long work survives a stop (Parquet, by polars)."""

import json
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

Settings = Mapping[str, Any]

_SETTINGS = "stocktake_settings"  # where a table's file says what it was made with
_SHARD = "shard"


class TableError(Exception):
    """The table that was asked for cannot be made here. The message says what was wrong and what would be right."""


def polars() -> ModuleType:
    """The polars package, which only tables need.

    Raises:
        TableError: it is not installed.
    """
    try:
        import polars
    except ImportError as error:
        raise TableError("tables need polars: pip install 'stocktake-jax[data]'.") from error
    return polars


class Table:
    """A table at a path: its finished blocks lie in a folder beside it until the last one is there.

    Rows have a ``source``, "published" or "minted", and a ``seed``, by which they are sorted in the end. The file is
    a function of its rows and settings: it does not show where the work was stopped, nor how it was cut into blocks.

    Attributes:
        finished: whether the file is there, made with the very same settings.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        """Looks at what is there; nothing is written yet.

        Args:
            path: the file to make.
            settings: all that its values depend on, plain JSON.

        Raises:
            TableError: something else stands in the way, or polars is not installed.
        """
        self._pl = polars()
        self._path = path
        self._folder = path.with_name(path.name + ".parts")
        self._settings = dict(settings)
        self.finished = path.exists()
        if self.finished:
            _check_same(path, read_settings(path), settings)
            self._frames = [self._pl.read_parquet(path)]
            return
        manifest = self._folder / "manifest.json"
        parts = sorted(self._folder.glob("*.parquet"))
        if manifest.exists() or parts:
            try:
                written = json.loads(manifest.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise TableError(f"{manifest} cannot be read: choose another file (--out).") from error
            _check_same(self._folder, written, settings)
        self._frames = [_read(part) for part in parts]

    @property
    def frame(self) -> Any:
        """All rows so far, sorted: published before minted, by rising seed; a polars frame."""
        if not self._frames:
            return self._pl.DataFrame()
        rows = self._pl.concat(self._frames).unique(["source", "seed"], keep="first")
        return rows.sort("source", "seed", descending=[True, False])

    @property
    def done(self) -> set[tuple[str, int]]:
        """Source and seed of all rows so far."""
        return {key for frame in self._frames for key in frame.select("source", "seed").iter_rows()}

    def keep(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Puts a block of new rows on disk."""
        self._folder.mkdir(parents=True, exist_ok=True)
        manifest = self._folder / "manifest.json"
        if not manifest.exists():
            with _Renamed(manifest) as temporary:
                temporary.write_text(json.dumps(self._settings, indent=2) + "\n", encoding="utf-8", newline="\n")
        frame = self._pl.DataFrame(rows)
        with _Renamed(self._folder / f"{rows[0]['source']}-{rows[0]['seed']}.parquet") as temporary:
            frame.write_parquet(temporary)
        self._frames.append(frame)

    def finish(self) -> None:
        """Writes the file from all its rows, and removes the folder of blocks."""
        if not self.finished:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with _Renamed(self._path) as temporary:
                self.frame.write_parquet(temporary, metadata={_SETTINGS: json.dumps(self._settings)})
            self.finished = True
        shutil.rmtree(self._folder, ignore_errors=True)


def merge(parts: Iterable[Path], path: Path) -> Table:
    """Makes one table of the shards of a sweep, equal to that of the sweep in one go.

    Args:
        parts: finished tables whose setting ``shard`` reads ``1/3``, ``2/3`` and ``3/3``.
        path: the file to make.

    Raises:
        TableError: the parts do not belong together, some are missing or given twice, or ``path`` is taken.
    """
    found: dict[int, Path] = {}
    common: dict[str, Any] = {}
    for part in parts:
        settings = read_settings(part)
        if not settings.get(_SHARD):
            raise TableError(f"{part} is no shard but a whole table: merge the files of a sweep with --shard.")
        index, count = map(int, settings[_SHARD].split("/"))
        settings[_SHARD] = f"of {count}"
        common = common or settings
        _check_same(part, settings, common)
        if index in found:
            raise TableError(f"{part} is shard {index} of {count}, and so is {found[index]}: give each shard once.")
        found[index] = part
    if not found:
        raise TableError("there is nothing to merge: name the files of all shards.")
    missing = sorted(set(range(1, count + 1)) - set(found))
    if missing:
        raise TableError(f"{len(found)} of {count} shards are here: add {', '.join(f'{i}/{count}' for i in missing)}.")
    table = Table(path, common | {_SHARD: None})
    if not table.finished:
        table._frames = [_read(found[index]) for index in sorted(found)]
    table.finish()
    return table


def read_settings(path: Path) -> dict[str, Any]:
    """What a finished table was made with.

    Raises:
        TableError: the file is no such table.
    """
    try:
        settings = json.loads(polars().read_parquet_metadata(path)[_SETTINGS])
    except (OSError, ValueError, KeyError, polars().exceptions.PolarsError) as error:
        what = "is no table of this kind" if path.exists() else "is not there"
        raise TableError(f"{path} {what}: name another file.") from error
    return dict(settings)


def _read(part: Path) -> Any:
    try:
        return polars().read_parquet(part)
    except polars().exceptions.PolarsError as error:
        raise TableError(f"{part} cannot be read: remove it, and its rows are made again.") from error


def _check_same(path: Path, written: Any, settings: Settings) -> None:
    written = written if isinstance(written, dict) else {}
    for name in [*settings, *written]:
        theirs, mine = written.get(name), settings.get(name)
        if theirs != mine:
            raise TableError(
                f"{path} was made with {name} {json.dumps(theirs)}, not {json.dumps(mine)}: "
                "give the same settings, or another file (--out)."
            )


class _Renamed:
    """A temporary path that takes its own name once all is written to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)
