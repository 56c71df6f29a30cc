"""A measurement that would fill the disk fails before it begins, and says what is missing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from blackstart.cluster.disk import DiskShort, require_disk

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1024 * 1024


@pytest.mark.holds("B-243")
def test_room_that_is_missing_is_named_with_its_place_and_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def usage(place: Path) -> object:
        asked.append(place)
        return shutil._ntuple_diskusage(1000 * MIB, 800 * MIB, 200 * MIB)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    assert require_disk(tmp_path, needed=200 * MIB, what="moving weights") == 200 * MIB
    with pytest.raises(
        DiskShort, match=r"moving weights needs 320 MiB there and 200 MiB are free, 120 too few; try: "
    ) as short:
        require_disk(tmp_path, needed=320 * MIB, what="moving weights")
    assert f"disk={tmp_path}" in str(short.value)
    assert asked == [tmp_path, tmp_path]
    assert not isinstance(short.value, pytest.skip.Exception), "a skip is easily overlooked"


def test_the_disk_of_this_machine_is_asked(tmp_path: Path) -> None:
    free = require_disk(tmp_path, needed=0, what="nothing")
    with pytest.raises(DiskShort):
        require_disk(tmp_path, needed=free * 1000 + MIB, what="everything")
