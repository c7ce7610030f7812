"""The manifest of a recording: what was recorded, in versioned JSON.

`python -m r3llvm.recording.manifest` prints the JSON schema that `recordings/manifest.schema.json` publishes.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 1


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Model):
    """One kernel parameter in the packed argument buffer (PTX layout)."""

    offset: int
    size: int
    alignment: int
    kind: Literal["scalar", "pointer", "aggregate"]


class Region(_Model):
    """A range of device memory before and after the launch, as chunk hashes in address order."""

    kind: Literal["allocation", "variable"]
    name: str = ""
    base: int
    size: int
    prologue: tuple[str, ...]
    epilogue: tuple[str, ...]


class Launch(_Model):
    """One recorded launch of a kernel."""

    kernel: str = Field(description="mangled name")
    module: str = Field(description="content hash of the module's bitcode")
    index: int = Field(description="how many launches of this kernel the application made before this one")
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared: int = 0
    cooperative: bool = False
    arguments: str = Field(description="the packed argument bytes, in hex")
    parameters: tuple[Parameter, ...]
    regions: tuple[Region, ...]


class Module(_Model):
    """A module and where it came from."""

    hash: str
    source: str
    command: tuple[str, ...]
    arch: str = Field(description='what it was compiled for, e.g. "sm_90"')
    includes: tuple[str, ...] = ()


class Refusal(_Model):
    """A kernel or launch that was seen but not recorded, and why."""

    kernel: str
    reason: str
    launches: int = 1


class Manifest(_Model):
    """manifest.json of a recording folder."""

    schema_version: int = SCHEMA_VERSION
    r3llvm_version: str
    created: str = Field(description="ISO 8601, UTC")
    device: str = Field(description='"host" or the GPU\'s name')
    application: tuple[str, ...]
    chunk_bytes: int
    modules: tuple[Module, ...]
    launches: tuple[Launch, ...]
    refusals: tuple[Refusal, ...] = ()
    launches_seen: int = 0


if __name__ == "__main__":
    print(json.dumps(Manifest.model_json_schema(), indent=2, sort_keys=True))
