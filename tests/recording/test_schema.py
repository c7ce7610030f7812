"""The published schema."""

import json
from pathlib import Path

import jsonschema
import pytest

from r3llvm.recording import Manifest
from tests.recording.fake import small_recording

PUBLISHED = Path(__file__).parents[2] / "recordings" / "manifest.schema.json"


def test_the_published_schema_is_current() -> None:
    assert json.loads(PUBLISHED.read_text()) == Manifest.model_json_schema(), (
        "run: python -m r3llvm.recording.manifest > recordings/manifest.schema.json"
    )


def test_the_published_schema_accepts_a_recording_and_no_other_thing(tmp_path: Path) -> None:
    schema = json.loads(PUBLISHED.read_text())
    manifest = json.loads((small_recording(tmp_path / "small") / "manifest.json").read_text())
    jsonschema.validate(manifest, schema)
    del manifest["launches"][0]["grid"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest, schema)
