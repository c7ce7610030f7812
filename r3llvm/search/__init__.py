"""What is tried next, and the loop that tries it."""

from r3llvm.search.create import create_strategy
from r3llvm.search.evaluate import Builder, Evaluator, Outcome, Runner
from r3llvm.search.session import Settings, Subject, begin, resume
from r3llvm.search.strategy import Proposal, Strategy
from r3llvm.search.tuner import Tuner, best_trial, candidate_of

__all__ = [
    "Builder",
    "Evaluator",
    "Outcome",
    "Proposal",
    "Runner",
    "Settings",
    "Strategy",
    "Subject",
    "Tuner",
    "begin",
    "best_trial",
    "candidate_of",
    "create_strategy",
    "resume",
]
