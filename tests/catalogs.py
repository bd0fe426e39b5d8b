"""Catalogs of a few tars, as the stages shard and catalog make them."""

from collections.abc import Sequence
from pathlib import Path

from hpcddm.data.catalog import Catalog, CatalogPart, SplitEntry
from hpcddm.data.column_files import write_columns
from hpcddm.data.sample_file import SampleFile
from hpcddm.data.tars import tar_index
from hpcddm.data.transforms.centre_crop import CentreCrop, CentreCropSettings

CENTRE_CROP = CentreCrop(CentreCropSettings(name="centre_crop"))


def catalog_of(folder: Path, tars: Sequence[Path], ranges: int = 1) -> Catalog:
    """Write the columns of some tars in a folder, in so many ranges, and return their catalog."""
    parts, names = [], []
    for number in range(ranges):
        own = range(len(tars) * number // ranges, len(tars) * (number + 1) // ranges)
        columns = tar_index.columns_of({index: tar_index.index_tar(tars[index]) for index in own})
        file, names = f"columns-{number}.h5", sorted(columns)
        write_columns(folder / file, columns)
        parts.append(CatalogPart(f"train-{number:03d}", file, len(columns["key"]), f"digest {number}"))
    return Catalog(folder, SplitEntry(names, [SampleFile(path.name, path.stat().st_size) for path in tars], parts))
