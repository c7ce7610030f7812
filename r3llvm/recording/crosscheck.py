"""A GPU's launches against their modules: does the IR say what the driver said, and can a replay be faithful?"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from r3llvm.capture import Store
from r3llvm.errors import R3Error
from r3llvm.ir import Reach, Slot, parameter_layouts, reach
from r3llvm.recording.journal import Journal
from r3llvm.recording.manifest import Launch, Parameter, Refusal
from r3llvm.recording.names import module_names


@dataclass(frozen=True)
class _Module:
    layouts: dict[str, tuple[Slot, ...]]
    reaches: dict[str, Reach]

    def name_of(self, kernel: str) -> str | None:
        """What the module calls a kernel that the program launched."""
        return next((name for name in module_names(kernel) if name in self.layouts), None)


def crosscheck(journal: Journal, store: Store) -> None:
    """Takes parameter kinds and alignments from the IR, and turns launches that cannot be replayed into refusals.

    A launch whose module cannot be read keeps its image alone, and a warning; without an image that is an R3Error.
    """
    kernels: dict[str, set[str]] = defaultdict(set)
    for launch in journal.launches:
        if launch.module is not None:
            kernels[launch.module].add(launch.kernel)
    modules = {module: _read(module, kernels[module], store) for module in kernels}
    kept = []
    refused: Counter[tuple[str, str]] = Counter()
    for launch in journal.launches:
        module = modules[launch.module] if launch.module else None
        if module is None:
            kept.append(launch)
        elif isinstance(module, R3Error):
            kept.append(_image_only(launch, module))
        elif (kernel := module.name_of(launch.kernel)) is None:
            kept.append(_image_only(launch, R3Error(f"module {launch.module} defines no kernel of this name")))
        elif reason := module.reaches[kernel].obstacle or _disagreement(launch, module.layouts[kernel]):
            refused[launch.kernel, reason] += 1
        else:
            kept.append(_checked(launch, kernel, module))
    journal.launches = kept
    journal.refusals += [Refusal(kernel=kernel, reason=reason, launches=n) for (kernel, reason), n in refused.items()]


def _read(module: str, kernels: set[str], store: Store) -> _Module | R3Error:
    try:
        store.describe(module)
        bitcode = store.module(module)
        names = {name for kernel in kernels for name in module_names(kernel)}
        return _Module(parameter_layouts(bitcode, names), reach(bitcode, names))
    except R3Error as error:
        return error


def _image_only(launch: Launch, error: R3Error) -> Launch:
    if launch.image is None:
        raise error
    warning = f"its module is left out: {error}"
    return launch.model_copy(update={"module": None, "warnings": (*launch.warnings, warning)})


def _disagreement(launch: Launch, slots: tuple[Slot, ...]) -> str:
    driver = [(parameter.offset, parameter.size) for parameter in launch.parameters]
    module = [(slot.offset, slot.size) for slot in slots]
    if driver == module:
        return ""
    return (
        f"the driver lays its parameters out as {_shown(driver)} (offset:size), its module as {_shown(module)}: "
        "the program was not built from the module; build it again through `r3llvm wrap`"
    )


def _shown(layout: list[tuple[int, int]]) -> str:
    return " ".join(f"{offset}:{size}" for offset, size in layout) or "none"


def _checked(launch: Launch, kernel: str, module: _Module) -> Launch:
    parameters = tuple(
        Parameter(offset=slot.offset, size=slot.size, alignment=slot.alignment, kind=slot.kind)
        for slot in module.layouts[kernel]
    )
    reached = module.reaches[kernel]
    recorded = {region.name for region in launch.regions if region.kind == "variable"}
    warnings = [
        f"its variable {name} was not found in the program, so its value is not recorded"
        for name in reached.own_variables
        if name not in recorded
    ]
    if reached.calls_pointers:
        warnings.append("it calls functions through pointers; one that memory holds means nothing in a replay")
    changes: dict[str, object] = {"parameters": parameters, "warnings": (*launch.warnings, *warnings)}
    if kernel != launch.kernel:
        changes |= {"kernel": kernel, "image_kernel": launch.kernel}
    return launch.model_copy(update=changes)
