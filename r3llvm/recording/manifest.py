"""The manifest of a recording: what was recorded, in versioned JSON.

`python -m r3llvm.recording.manifest` prints the JSON schema that `recordings/manifest.schema.json` publishes.
"""

from __future__ import annotations

import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

SCHEMA_VERSION = 1

Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]
# What fits 32 bits, and what an address can be.
Small = Annotated[int, Field(ge=0, lt=1 << 32)]
Large = Annotated[int, Field(ge=0, lt=1 << 62)]
Positive = Annotated[int, Field(gt=0, lt=1 << 32)]
Dimensions = tuple[Positive, Positive, Positive]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Parameter(_Model):
    """One kernel parameter in the packed argument buffer (PTX layout)."""

    offset: Small
    size: Small
    alignment: Positive
    kind: Literal["scalar", "pointer", "aggregate"]


class Region(_Model):
    """A range of device memory before and after the launch, as chunk hashes in address order."""

    kind: Literal["allocation", "variable"]
    name: str = ""
    base: Large
    size: Large = Field(gt=0)
    prologue: tuple[Hash, ...]
    epilogue: tuple[Hash, ...]


class Attribute(_Model):
    """One attribute of an extended launch (cuLaunchKernelEx)."""

    id: Small = Field(description="CUlaunchAttributeID")
    value: str = Field(description="the CUlaunchAttributeValue's 64 bytes, in hex", pattern="^[0-9a-f]{128}$")


class Relocation(_Model):
    """An argument word that points into a module variable, whose address differs from load to load."""

    offset: Small = Field(description="of the word, in the packed arguments")
    variable: str
    addend: Large = Field(description="bytes into the variable")


class Launch(_Model):
    """One recorded launch of a kernel."""

    kernel: str = Field(description="mangled name, as the module has it where there is one")
    module: Hash | None = Field(
        default=None, description="content hash of the module's bitcode; none: only the image is known"
    )
    image: Hash | None = Field(default=None, description="content hash of the device image that the application ran")
    image_kernel: str = Field(default="", description="the kernel's name in the image, where that is another")
    index: Large = Field(description="how many launches of this kernel the application made before this one")
    grid: Dimensions
    block: Dimensions
    dynamic_shared: Small = 0
    cooperative: bool = False
    arguments: str = Field(description="the packed argument bytes, in hex", pattern="^([0-9a-f]{2})*$")
    parameters: tuple[Parameter, ...]
    regions: tuple[Region, ...]
    attributes: tuple[Attribute, ...] = ()
    shared_carveout: int = Field(default=-1, ge=-1, le=100, description="percent; -1: the driver's choice")
    relocations: tuple[Relocation, ...] = ()
    warnings: tuple[str, ...] = Field(default=(), description="what may keep this launch from replaying faithfully")

    @property
    def name_in_image(self) -> str:
        """The kernel's name in the device image: nvcc names kernels that only their translation unit sees by itself."""
        return self.image_kernel or self.kernel


class Module(_Model):
    """A module and where it came from."""

    hash: Hash
    source: str
    command: tuple[str, ...]
    arch: str = Field(description='what it was compiled for, e.g. "sm_90"')
    includes: tuple[str, ...] = ()
    options: tuple[str, ...] = Field(default=(), description="LLVM options that the build amounts to")
    assembler: tuple[str, ...] = Field(default=(), description="ptxas options that the build asked for")


class Image(_Model):
    """A device image that the application loaded."""

    hash: Hash
    kind: Literal["cubin", "ptx", "fatbin"]
    size: Large


class Refusal(_Model):
    """A kernel or launch that was seen but not recorded, and why."""

    kernel: str
    reason: str
    launches: int = 1


class Foreign(_Model):
    """Memory of the application that lies in no arena: a kernel that reaches it is refused."""

    kind: str = Field(description='such as "managed memory"')
    bytes: Large


class Manifest(_Model):
    """manifest.json of a recording folder."""

    schema_version: int = SCHEMA_VERSION
    r3llvm_version: str
    created: str = Field(description="ISO 8601, UTC")
    device: str = Field(description='"host" or the GPU\'s name')
    capability: str = Field(default="", description='compute capability of the GPU, e.g. "9.0"; empty on the host')
    application: tuple[str, ...]
    chunk_bytes: int = Field(gt=0, le=64 << 20)
    modules: tuple[Module, ...]
    images: tuple[Image, ...] = ()
    launches: tuple[Launch, ...]
    refusals: tuple[Refusal, ...] = ()
    launches_seen: int = 0
    graph_launches: int = Field(default=0, description="launches of whole graphs, which are not recorded")
    captured_launches: int = Field(default=0, description="launches into a capturing stream, which are not recorded")
    other_processes: int = Field(
        default=0, description="processes of the application that launched kernels, unrecorded"
    )
    other_launches: int = Field(default=0, description="how many those launched")
    foreign: tuple[Foreign, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        modules = {module.hash for module in self.modules}
        images = {image.hash for image in self.images}
        for launch in self.launches:
            which = f"launch {launch.index} of {launch.kernel}"
            if launch.module is None and launch.image is None:
                raise ValueError(f"{which} names neither a module nor an image")
            if launch.module is not None and launch.module not in modules:
                raise ValueError(f"{which} names module {launch.module}, which is not listed")
            if launch.image is not None and launch.image not in images:
                raise ValueError(f"{which} names image {launch.image}, which is not listed")
            for region in launch.regions:
                n_chunks = -(-region.size // self.chunk_bytes)
                if len(region.prologue) != n_chunks or len(region.epilogue) != n_chunks:
                    raise ValueError(f"the region at {region.base:#x} of {launch.kernel} needs {n_chunks} chunks")
        return self


if __name__ == "__main__":
    print(json.dumps(Manifest.model_json_schema(), indent=2, sort_keys=True))
