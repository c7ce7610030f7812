"""A GPU's launches against their modules: does the IR say what the driver said, and can a replay be faithful?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from r3llvm.capture import Store
from r3llvm.errors import R3Error
from r3llvm.ir import Slot, obstacles, parameter_layouts
from r3llvm.recording.journal import Journal
from r3llvm.recording.manifest import Launch, Parameter, Refusal

_ModuleLayouts = dict[str, tuple[Slot, ...]]


def crosscheck(journal: Journal, store: Store) -> None:
    """Takes parameter kinds and alignments from the IR, and turns launches that cannot be replayed into refusals.

    A launch whose module cannot be read keeps its image alone, and a warning; without an image that is an R3Error.
    """
    wanted: dict[str, set[str]] = defaultdict(set)
    for launch in journal.launches:
        if launch.module is not None:
            wanted[launch.module].add(launch.kernel)
    layouts: dict[str, _ModuleLayouts] = {}
    reasons: dict[str, dict[str, str]] = {}
    lost: dict[str, R3Error] = {}
    for module, kernels in wanted.items():
        try:
            store.describe(module)
            bitcode = store.module(module)
            layouts[module], reasons[module] = parameter_layouts(bitcode, kernels), obstacles(bitcode, kernels)
        except R3Error as error:
            lost[module] = error
    kept, refusals = [], []
    for launch in journal.launches:
        if launch.module is None:
            kept.append(launch)
        elif launch.module in lost:
            kept.append(_image_only(launch, lost[launch.module]))
        elif launch.kernel not in layouts[launch.module]:
            kept.append(_image_only(launch, R3Error(f"module {launch.module} defines no kernel of this name")))
        elif reason := reasons[launch.module].get(launch.kernel) or _disagreement(launch, layouts[launch.module]):
            refusals.append((launch.kernel, reason))
        else:
            kept.append(_typed(launch, layouts[launch.module][launch.kernel]))
    journal.launches = kept
    journal.refusals += _counted(refusals)


def _image_only(launch: Launch, error: R3Error) -> Launch:
    if launch.image is None:
        raise error
    warning = f"its module is left out: {error}"
    return launch.model_copy(update={"module": None, "warnings": (*launch.warnings, warning)})


def _disagreement(launch: Launch, layouts: _ModuleLayouts) -> str:
    driver = [(parameter.offset, parameter.size) for parameter in launch.parameters]
    module = [(slot.offset, slot.size) for slot in layouts[launch.kernel]]
    if driver == module:
        return ""
    return (
        f"the driver lays its parameters out as {_shown(driver)} (offset:size), its module as {_shown(module)}: "
        "the program was not built from the module; build it again through `r3llvm wrap`"
    )


def _shown(layout: list[tuple[int, int]]) -> str:
    return " ".join(f"{offset}:{size}" for offset, size in layout) or "none"


def _typed(launch: Launch, slots: tuple[Slot, ...]) -> Launch:
    parameters = tuple(
        Parameter(offset=slot.offset, size=slot.size, alignment=slot.alignment, kind=slot.kind) for slot in slots
    )
    return launch.model_copy(update={"parameters": parameters})


def _counted(refusals: Iterable[tuple[str, str]]) -> list[Refusal]:
    launches: dict[tuple[str, str], int] = defaultdict(int)
    for refusal in refusals:
        launches[refusal] += 1
    return [Refusal(kernel=kernel, reason=reason, launches=n) for (kernel, reason), n in launches.items()]
