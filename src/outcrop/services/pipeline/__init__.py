"""From a target to findings: plan a run, look at each of its sources, record what is there, resolve what is gone.

A run takes minutes or hours, so this service opens transactions of its own, one for each step that is true by itself.
"""
