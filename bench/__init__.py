"""Measurements that print their targets beside the numbers.

``python -m bench`` runs most of them; ``bench.admission``, ``bench.calls`` and ``bench.metrics`` run alone.
"""
