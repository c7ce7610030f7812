"""Programs nobody here wrote, fetched at test time: wrapped, run, recorded, replayed and checked.

`python -m tests.foreign --output FILE` does it without pytest and writes the counts as JSON.
"""
