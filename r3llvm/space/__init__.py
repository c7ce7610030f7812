"""The set of candidates a search may draw from."""

from r3llvm.space.candidate import BASELINE, Candidate
from r3llvm.space.catalogue import Catalogue, load_catalogue
from r3llvm.space.pipeline import Action, parse_pipeline, pipeline_text
from r3llvm.space.space import PipelineSpace, Point

__all__ = [
    "BASELINE",
    "Action",
    "Candidate",
    "Catalogue",
    "PipelineSpace",
    "Point",
    "load_catalogue",
    "parse_pipeline",
    "pipeline_text",
]
