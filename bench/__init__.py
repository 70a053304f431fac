"""Measurements that print their targets beside the numbers.

``python -m bench``, and by themselves: ``bench.admission``, ``bench.calls``, ``bench.metrics``.
"""
