from pathlib import Path

import pytest

from tests.recording.fake import small_recording


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return small_recording(tmp_path / "small")
