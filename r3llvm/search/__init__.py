"""What is tried next, and the loop that tries it."""

from r3llvm.search.create import create_strategy
from r3llvm.search.evaluate import Evaluator, Outcome
from r3llvm.search.session import Settings, Subject, begin, resume
from r3llvm.search.strategy import Proposal, Strategy
from r3llvm.search.tuner import Confirmation, Tuner, best_trial, candidate_of

__all__ = [
    "Confirmation",
    "Evaluator",
    "Outcome",
    "Proposal",
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
